"""How a value of a figure is read: its unit, what it is compared with, where it is shown."""

from typing import NamedTuple


class Unit(NamedTuple):
    """How a figure is written, and its range.

    Attributes:
        write: "percent", "decimal", "signed", or "count", of clients that are exposed say.
        low, high: ends of its range; None where there is none.
        nothing: the value without information, whatever the data; a value up to it is not a leak.
    """

    write: str
    low: float | None
    high: float | None
    nothing: float = 0.0


COUNTED = "count"
"""Format of units for figures that count clients or items."""

SHARE, COUNT = Unit("percent", 0.0, 1.0), Unit(COUNTED, 0.0, None)

UNITS = {
    "share": SHARE,
    "area": Unit("decimal", 0.0, 1.0, nothing=0.5),
    "correlation": Unit("decimal", -1.0, 1.0),
    "difference": Unit("signed", -1.0, 1.0),
    "headroom": Unit("signed", None, 1.0),
    "count": COUNT,
}
"""By their names in records of figures."""


class Prior(NamedTuple):
    """The comparison value of a figure: what is reached without the view.

    Attributes:
        key: key of the figure.
        words: how it is reached.
        about: its meaning; "For comparison: ..." by default.
        ceiling: whether it is what the best view could reach, instead of a chance level.
    """

    key: str
    words: str
    about: str = ""
    ceiling: bool = False


class Scale(NamedTuple):
    """The meaning of a figure's values.

    Attributes:
        unit: how it is written, and where it lies.
        chance: what is reached without the view: another figure, or words.
        abstention: how clients count about which an attack makes no claim.
        rounds: how several rounds make one figure.
        lower_is_worse: whether low is a leak.
    """

    unit: Unit
    chance: Prior | str
    abstention: str
    rounds: str = "the worst of the rounds tried; intervals and limits allow for the choice"
    lower_is_worse: bool = False


class Page(NamedTuple):
    """Where a figure is shown.

    Attributes:
        leads: whether it is preferred as the one number that represents a finding.
        by_round: whether it is listed for every round that was tried.
        chooses: the kind of findings whose strongest round it selects, "rated sets" or "other
            secrets".
        listed: whether it has a key of its own in ``report.json``; others are in the details.
        units: what it is measured on.
        rate: the false-positive rate at which it is measured; it needs ten over this rate
            negatives.
    """

    leads: bool = False
    by_round: bool = False
    chooses: str = ""
    listed: bool = True
    units: str = "clients"
    rate: float | None = None
