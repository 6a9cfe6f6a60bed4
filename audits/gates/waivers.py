"""Waivers: findings that somebody answers for, for a reason, until a day.

A waiver excuses what one attack by one adversary reaches: whatever gates say of it and whatever no
gate judges, or, with a ``metric``, that figure alone and what is judged by it. One without a
``metric`` also excuses that the attack was switched off, or that what it reads was not recorded. A
gate whose figure was not measured, a failed control and figures of utility are not to be waived.
From the day after ``expires`` on, what it excused fails the audit.
"""

from datetime import date
from typing import Annotated, Any

from attacks.scoring.measures import MEASURES
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Filled, Refused, Settings

UNREAD = "unread"
"""In the place of an attack: messages that reach an adversary and that no attack has read."""

UNPRICED = "unpriced"
"""In the place of an attack: what tells an adversary of clients, and no price bounds."""

BESIDE_ATTACKS = (UNREAD, UNPRICED)
"""What a waiver can name in the place of an attack."""


class _Day:
    """Text that is a date, year first."""

    def check(self, value: str) -> None:
        """Refuse any other."""
        try:
            if date.fromisoformat(value).isoformat() == value:
                return
        except ValueError:
            pass
        raise Refused(value, "should be a date, year first: 2027-03-31")


class WaiverConfig(Settings, section="waivers"):
    """One waiver.

    Args:
        adversary: whose findings.
        attack: by which attack; "unread" for messages that reach the adversary and that no attack
            has read, "unpriced" for messages and sums that tell it of clients, without noise whose
            price is bounded.
        metric: the figure that is excused; without one, the whole finding, and that the attack did
            not run or lacked what was not recorded.
        reason: why this is accepted for now.
        owner: who answers for it.
        expires: the last day on which it holds (UTC), as "2027-03-31".

    Raises:
        ConfigError: something is left empty, the figure is no attack's, or the day is no date.
    """

    adversary: Annotated[str, Filled()]
    attack: Annotated[str, Filled()]
    metric: str | None = None
    reason: Annotated[str, Filled()]
    owner: Annotated[str, Filled()]
    expires: Annotated[str, _Day()]

    def _agree(self) -> None:
        if self.metric is not None and self.metric not in MEASURES:
            raise self.refusal("metric", "is no figure of an attack", MEASURES)


def with_days(table: dict[str, Any]) -> dict[str, Any]:
    """A table of a waiver whose day may be a date of TOML.

    Raises:
        ConfigError: it is a date with a time, which would need a time zone.
    """
    day = table.get("expires")
    if not isinstance(day, date):
        return table
    if hasattr(day, "hour"):
        raise ConfigError("waivers.expires", str(day), "should be a date without a time")
    return {**table, "expires": day.isoformat()}
