"""What a bar shows of a finding: one number with its interval, beside another."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attacks.scoring.catalogue import leading, measures_of


class Point(NamedTuple):
    """What is drawn of a finding."""

    name: str
    value: float
    low: float | None
    high: float | None
    prior: float | None


def leakage_point(finding: Mapping[str, Any]) -> Point | None:
    """A figure that names the axis, else the one that stands for the finding, with its prior."""
    on_axis = (each for each in measures_of(finding) if each.page.axis)
    measure = next(on_axis, leading(finding))
    if measure is None:
        return None
    low, high = (finding.get(end) for end in measure.ends)
    prior = None if measure.prior is None else finding.get(measure.prior.key)
    return Point(measure.page.axis or measure.name, finding[measure.key], low, high, prior)
