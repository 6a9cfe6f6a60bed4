"""What every figure is that a gate may bound: those of attacks, and those of a whole run."""

from collections.abc import Mapping
from types import MappingProxyType

from attacks.scoring.measures import MEASURES
from audits.gates.gate import UTILITY_GAIN
from audits.report.text import measure
from secure_fedrec.evaluation import FIGURES, UtilityFigure


def figure_cards(name: str) -> list[dict[str, str]]:
    """What a figure is, in words; two where attacks and utility have one of that name.

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
"""Figures whose names keys of algorithms have too; for no other are algorithms imported."""

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
            "sums the same clients' own uploads without any layer, and whether layers did to rows "
            "what their records state; run.check_lossless trains it",
            "unit": "true or false",
            "worse": "false",
            "bounded": "by equals, without attack and adversary",
        },
        UTILITY_GAIN: {
            "name": "utility gain",
            "of": _UTILITY,
            "about": "by how much the run is better than the best trivial rule (a mean, a "
            "majority, popularity) that could stand in its place: by RMSE where it is measured, "
            "else by the first figure of utility. Where no exact sum is released, only rules that "
            "a client can follow alone",
            "unit": "that of the figure compared; negative where the rule is better",
            "worse": "lower",
            "bounded": _ALONE,
        },
        "epsilon": {
            "name": "epsilon",
            "of": "what noise costs over all rounds",
            "about": "the stated privacy loss (epsilon, delta) against one adversary, of all that "
            "it is sent or of the part that covers names; only where a layer draws noise",
            "unit": "nats of the likelihood ratio",
            "worse": "higher",
            "bounded": "by max, with an adversary and no attack",
        },
    }
)
"""Figures of a whole run that are no quality of predictions."""
