"""Waivers: findings that a person accepts, with a reason and a last day.

A waiver excuses what one attack by one adversary reaches, with and without gates; with a ``metric``
only that figure and the figures judged by it. A waiver without a ``metric`` also excuses that the
attack was switched off, or that what it reads was not recorded. A gate whose figure was not
measured, a failed control and figures of utility cannot be waived. From the day after ``expires``
on, what it excused fails the audit.
"""

from datetime import date
from typing import Annotated, Any

from attacks.scoring.measures import MEASURES
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Filled, Refused, Settings

UNREAD = "unread"
"""In place of an attack: messages that reach an adversary and that no attack has read."""

UNPRICED = "unpriced"
"""In place of an attack: information about clients that no price bounds."""

BESIDE_ATTACKS = (UNREAD, UNPRICED)
"""What a waiver can name in place of an attack."""


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
        adversary: the adversary of the findings.
        attack: the attack of the findings; "unread" for messages that reach the adversary and that
            no attack has read, "unpriced" for messages and sums that tell it about clients, without
            noise whose price is bounded.
        metric: the figure that is excused; without one, the whole finding, and that the attack did
            not run or lacked what was not recorded.
        reason: why this is accepted for now.
        owner: the person who answers for it.
        expires: the last day on which it holds (UTC), as "2027-03-31".

    Raises:
        ConfigError: a field is empty, the figure is not an attack's, or the day is not a date.
    """

    adversary: Annotated[str, Filled()]
    attack: Annotated[str, Filled()]
    metric: str | None = None
    reason: Annotated[str, Filled()]
    owner: Annotated[str, Filled()]
    expires: Annotated[str, _Day()]

    def _agree(self) -> None:
        if self.metric is not None and self.metric not in MEASURES:
            raise self.refusal("metric", "is not a figure of an attack", MEASURES)


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
