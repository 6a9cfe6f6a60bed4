"""Log lines of hosts: one per round and one per refusal; figures are also fields of records.

A record's ``fields`` are a mapping from names to numbers, digests and fixed words, for handlers
that write records for machines or count them. They do not depend on a client's data.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import FedRecError, ProtocolError, WireError
from secure_fedrec.protection.base.hosting import Standing

log = logging.getLogger("secure-fedrec")

SPEAKABLE: Final = (ProtocolError, WireError)
"""Errors whose text is about messages and does not hold a client's data."""

_ASKED = "asked_for"
SHOWN_DIGITS: Final = 16
"""Digits of a digest in a line for people."""


def with_fields(**fields: object) -> dict[str, Any]:
    """The ``extra`` of a record with some fields; fields that are None are left out."""
    return {"fields": {name: value for name, value in fields.items() if value is not None}}


def price_fields(plan: TrainingPlan, releases: int) -> dict[str, float | None]:
    """Epsilon that noised uploads have spent, and that is left; empty without noised uploads.

    Args:
        plan: the computation.
        releases: noised uploads of one client so far.

    Returns:
        ``epsilon_spent`` and ``epsilon_left``; None in place of an infinite one.
    """
    if not plan.budget:
        return {}
    spent = plan.price(releases)
    return {"epsilon_spent": _finite(spent), "epsilon_left": _finite(plan.budget - spent)}


def log_sent(at: Standing, plan: TrainingPlan, *, size: int, seconds: float, spent: int) -> None:
    """The line of a round at a client's host, once its upload leaves.

    Args:
        at: the attempt.
        plan: the computation.
        size: bytes of the upload.
        seconds: since the attempt began here.
        spent: noised uploads that were sent so far.
    """
    statement, price = at.statement.digest.hex(), price_fields(plan, spent)
    log.info(
        "round %d, attempt %d: statement %s, %d bytes sent after %.2f s%s",
        *(at.round, at.serial, statement[:SHOWN_DIGITS], size, seconds, priced(price)),
        extra=with_fields(
            event="round",
            round=at.round,
            attempt=at.serial,
            statement=statement,
            bytes=size,
            seconds=round(seconds, 3),
            **price,
        ),
    )


def note_asked(refusal: Exception, *, round_: int, attempt: int) -> None:
    """Add the requested round and attempt to a refusal."""
    setattr(refusal, _ASKED, {"round": round_, "attempt": attempt})


def refusal_fields(refusal: BaseException) -> dict[str, Any]:
    """The ``extra`` of a record about a refusal: its kind, its round, and why if that may be said.

    The kind is the name of one of this package's errors, or "other".
    """
    ours = isinstance(refusal, FedRecError)
    return with_fields(
        event="refused",
        refused=type(refusal).__name__ if ours else "other",
        why=str(refusal) if isinstance(refusal, SPEAKABLE) else None,
        **getattr(refusal, _ASKED, {}),
    )


def priced(price: Mapping[str, float | None]) -> str:
    """The end of a line of a round, from ``price_fields``."""
    if not price:
        return ""
    spent, left = ("unbounded" if each is None else f"{each:.4g}" for each in price.values())
    return f", epsilon {spent} spent and {left} left"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
