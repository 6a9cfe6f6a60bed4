"""What the leakage chart draws of a finding: one number with its interval, beside another."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from audits.gates.measures import measure_of

__all__ = ["Point", "leakage_label", "leakage_point"]


class Point(NamedTuple):
    """What is drawn of a finding."""

    name: str
    value: float
    low: float | None
    high: float | None
    prior: float | None


def leakage_point(finding: Mapping[str, Any]) -> Point | None:
    """The AUC of a rated set with its prior, or the measure of another game with its chance."""
    if finding.get("combined_auc") is not None:
        ends = finding.get("combined_auc_low"), finding.get("combined_auc_high")
        return Point("AUC", finding["combined_auc"], *ends, finding.get("prior_auc"))
    if finding.get("auc") is not None:
        ends = finding.get("auc_low"), finding.get("auc_high")
        return Point("AUC", finding["auc"], *ends, finding.get("prior_auc"))
    measure = measure_of(finding)
    if measure is None:
        return None
    low, high = finding.get(f"{measure.key}_low"), finding.get(f"{measure.key}_high")
    prior = None if measure.beside is None else finding.get(measure.beside)
    return Point(measure.name, finding[measure.key], low, high, prior)


def leakage_label(finding: Mapping[str, Any]) -> str:
    """An attack, with the measure where that is no AUC."""
    point = leakage_point(finding)
    if point is None or point.name == "AUC":
        return str(finding["attack"])
    return f"{finding['attack']}: {point.name.lower()}"
