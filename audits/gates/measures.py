"""Measures of attacks on other secrets than rated sets, as findings and reports name them.

A rated set is judged by an AUC over the catalogue, beside item popularity. Private vectors, labels,
sets, histograms and members of organisations have measures of their own, each beside what anybody
could have said without the messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MEASURES", "Measure", "measure_of", "report_keys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measure; its interval is under ``key_low`` and ``key_high``.

    Args:
        key: of the value in a finding.
        name: in reports.
        beside: key of the value to compare with; None if there is none.
        without: what that value is.
        as_percent: whether it is a share of somebody, written as a percentage.
        units: whom it is measured on.
    """

    key: str
    name: str
    beside: str | None = None
    without: str = "by chance"
    as_percent: bool = False
    units: str = "clients"


MEASURES: tuple[Measure, ...] = (
    Measure(
        key="reidentified_share",
        name="Vectors named",
        beside="reidentified_chance",
        as_percent=True,
    ),
    Measure(
        key="vector_cosine",
        name="Cosine with the private vector",
        beside="vector_cosine_chance",
        without="with another client's",
    ),
    Measure(
        key="label_accuracy",
        name="Labels named",
        beside="label_base_rate",
        without="always the commonest",
        as_percent=True,
    ),
    Measure(
        key="set_auc", name="AUC of the set", beside="set_prior_auc", without="popularity alone"
    ),
    Measure(key="set_precision", name="Precision of the set", as_percent=True),
    Measure(key="set_recall", name="Recall of the set", as_percent=True),
    Measure(key="set_exact_share", name="Clients with the exact set", as_percent=True),
    Measure(
        key="histogram_correlation",
        name="Rank correlation of the histogram",
        beside="histogram_correlation_chance",
        without="another client's histogram",
    ),
    Measure(
        key="histogram_error",
        name="Records misplaced in the histogram",
        beside="histogram_error_chance",
        without="another client's histogram",
        as_percent=True,
    ),
    Measure(key="activity_correlation", name="Rank correlation of activity"),
    Measure(
        key="holder_accuracy",
        name="Holders named",
        beside="holder_chance",
        as_percent=True,
        units="users",
    ),
    Measure(key="disclosed_share", name="Users disclosed", as_percent=True, units="users"),
    Measure(
        key="item_holder_accuracy",
        name="Holders of items named",
        beside="item_holder_chance",
        as_percent=True,
    ),
    Measure(key="item_disclosed_share", name="Items disclosed", as_percent=True),
    Measure(
        key="attribute_auc",
        name="AUC of the attribute",
        beside="attribute_ceiling_auc",
        without="from the true training data",
        units="persons",
    ),
    Measure(key="disclosed_attribute_auc", name="AUC of the attribute, of the disclosed"),
)
"""All measures; the first that a finding has speaks for it."""


def measure_of(finding: Mapping[str, Any]) -> Measure | None:
    """The measure that stands for a finding without a rated set; None if it has none."""
    return next((each for each in MEASURES if finding.get(each.key) is not None), None)


def report_keys() -> tuple[str, ...]:
    """Keys of all measures in a finding, with intervals and comparisons."""
    keys = []
    for each in MEASURES:
        keys += [each.key, f"{each.key}_low", f"{each.key}_high"]
        if each.beside is not None:
            keys.append(each.beside)
    return tuple(keys)
