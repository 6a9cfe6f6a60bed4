"""Utility compared with trivial rules: the gain of a run over the best of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audits.gates.gate import UTILITY_GAIN
from audits.report.text import measure
from secure_fedrec.evaluation import Rule, best_gain

_HEADLINE = "rmse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run beside the best trivial rule.

    Args:
        metric: RMSE if it is measured, else the first figure of reports.
        value: the run's.
        rule: the best applicable rule's name.
        rule_value: its figure.
        gain: by how much the run is better, in the metric's unit; negative if it is worse.
    """

    metric: str
    value: float
    rule: str
    rule_value: float
    gain: float

    @property
    def verdict(self) -> str | None:
        """The sentence for a run that is not better than the rule; None if it is better."""
        if self.gain > 0:
            return None
        return (
            f"the model is no better than a trivial rule: {measure(self.metric)} {self.value:.4f}, "
            f"{self.rule!r} has {self.rule_value:.4f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility:
    """Utility over all folds.

    Args:
        folds: the run's figures per fold, the audited one first.
        mean: averages over the folds, for figures that every fold has.
        rules: figures of trivial rules, averaged over the same folds.
        standing: the run compared with the best applicable rule; None if they cannot be compared.
    """

    folds: Sequence[Mapping[str, float]]
    mean: Mapping[str, float]
    rules: Mapping[str, Rule]
    standing: Standing | None

    def figures(self) -> dict[str, float]:
        """Figures for gates, by name."""
        gain = {} if self.standing is None else {UTILITY_GAIN: self.standing.gain}
        return {**self.mean, **gain}


def utility_of(
    metrics: Sequence[str],
    folds: Sequence[Mapping[str, float]],
    rules: Sequence[Mapping[str, Rule]],
    *,
    local_only: bool,
) -> Utility:
    """Average a run and the trivial rules over the same folds, and compare them.

    Args:
        metrics: names of the figures, in the order of reports.
        folds: the run's figures per fold.
        rules: what trivial rules reach, per fold.
        local_only: whether only rules that need no sum over clients apply, see ``best_gain``.
    """
    mean = _mean(metrics, folds)
    shared = [name for name in rules[0] if all(name in fold for fold in rules)]
    averaged = {
        name: Rule(
            figures=_mean(metrics, [fold[name].figures for fold in rules]),
            local=rules[0][name].local,
        )
        for name in shared
    }
    return Utility(
        folds=folds, mean=mean, rules=averaged, standing=_standing(mean, averaged, local_only)
    )


def _standing(
    mean: Mapping[str, float], rules: Mapping[str, Rule], local_only: bool
) -> Standing | None:
    metric = _HEADLINE if _HEADLINE in mean else next(iter(mean), None)
    if metric is None:
        return None
    best = best_gain(mean[metric], rules, metric, local_only=local_only)
    if best is None:
        return None
    rule, gain = best
    return Standing(
        metric=metric,
        value=mean[metric],
        rule=rule,
        rule_value=rules[rule].figures[metric],
        gain=gain,
    )


def _mean(metrics: Sequence[str], folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: float(np.mean([fold[name] for fold in folds]))
        for name in metrics
        if all(name in fold for fold in folds)
    }
