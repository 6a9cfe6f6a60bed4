"""The figures that a gate may bound: those of attacks, and those of a whole run."""

from collections.abc import Mapping
from types import MappingProxyType

from attacks.scoring.measures import MEASURES
from audits.gates.gate import UTILITY_GAIN
from audits.report.text import measure
from secure_fedrec.evaluation import FIGURES, UtilityFigure


def figure_cards(name: str) -> list[dict[str, str]]:
    """Cards of a figure; two if attacks and utility each have a figure of that name.

    Args:
        name: one of ``gate.METRICS``; nothing else has a card.
    """
    cards = [MEASURES[name].card()] if name in MEASURES else []
    if name in FIGURES:
        cards.append(_utility_card(name, FIGURES[name]))
    if name in _OTHERS:
        cards.append(dict(_OTHERS[name]))
    return cards


KEYS_TOO = frozenset({"accuracy", "epsilon"})
"""Figures whose names are also keys of algorithms; only for these algorithms are imported."""

_UTILITY = "the run's utility on test examples, mean over the folds"
_ALONE = "by max or min, without attack and adversary"


def _utility_card(name: str, figure: UtilityFigure) -> dict[str, str]:
    return {
        "name": measure(name),
        "of": _UTILITY,
        "about": figure.about,
        "unit": figure.unit,
        "worse": "higher" if figure.error else "lower",
        "bounded": _ALONE,
    }


_OTHERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "lossless": {
            "name": "lossless",
            "of": "the whole run",
            "about": "whether every round ends in the same bits as that of the plain twin, which "
            "sums the same clients' own uploads without any layer, and whether layers did to "
            "rows what their records state; run.check_lossless trains the twin",
            "unit": "true or false",
            "worse": "false",
            "bounded": "by equals, without attack and adversary",
        },
        UTILITY_GAIN: {
            "name": "utility gain",
            "of": _UTILITY,
            "about": "by how much the run is better than the best trivial rule (a mean, a "
            "majority, popularity) that could replace it: by RMSE if it is measured, else by the "
            "first figure of utility. If no exact sum is released, only rules count that a "
            "client can follow alone",
            "unit": "unit of the figure compared; negative if the rule is better",
            "worse": "lower",
            "bounded": _ALONE,
        },
        "epsilon": {
            "name": "epsilon",
            "of": "the privacy cost with noise over all rounds",
            "about": "the stated privacy loss (epsilon, delta) against one adversary, for "
            "everything that it is sent or for the part that `covers` names; only if a layer "
            "draws noise",
            "unit": "nats of the likelihood ratio",
            "worse": "higher",
            "bounded": "by max, with an adversary and no attack",
        },
    }
)
"""Figures of a whole run other than the quality of predictions."""
