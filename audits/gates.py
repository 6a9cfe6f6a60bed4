"""Gates: what must hold, judged three ways.

A gate compares a figure with a bound, using the figure's confidence interval where it has one:
"max" fails if even the lower end exceeds the bound, passes if the upper end does not, and is
inconclusive in between; "min" the other way round. A figure that could not be measured, or an
attack that was not applicable, is inconclusive: an audit that did not run never looks like a pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from attacks import Finding
from secure_fedrec.errors import ConfigError

__all__ = ["GateConfig", "GateResult", "Outcome", "judge"]

FEWEST_CLIENTS = 20
"""Fewer clients than this support no statement about a federation."""

UTILITY_METRICS = ("mae", "rmse")
ATTACK_METRICS = (
    "auc",
    "support_auc",
    "lift_over_prior",
    "support_lift_over_prior",
    "tpr_at_1pct_fpr",
    "tpr_at_01pct_fpr",
    "advantage",
    "precision",
    "recall",
    "exact_set_share",
    "rating_accuracy",
    "user_vector_share",
    "linked_share",
    "unmasked_share",
    "tail_rating_accuracy",
    "tail_rating_share",
)


class Outcome(StrEnum):
    """Outcome of a gate or of an audit."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """One gate.

    Args:
        metric: an attack figure, "mae" or "rmse" (mean over the utility folds), or "lossless".
        attack: whose figure; required for attack figures.
        adversary: whose view; required for attack figures.
        max: the figure must not exceed this.
        min: the figure must reach this.
        equals: for "lossless".

    Raises:
        ConfigError: no bound, more than one, or a metric without its attack and adversary.
    """

    metric: str
    attack: str | None = None
    adversary: str | None = None
    max: float | None = None
    min: float | None = None
    equals: bool | None = None

    def __post_init__(self) -> None:
        known = ("lossless", *UTILITY_METRICS, *ATTACK_METRICS)
        if self.metric not in known:
            raise ConfigError("gates.metric", self.metric, "unknown metric", known)
        bounds = [name for name in ("max", "min", "equals") if getattr(self, name) is not None]
        if len(bounds) != 1:
            raise ConfigError(
                "gates", self.metric, "needs exactly one bound", ("max", "min", "equals")
            )
        if (self.metric == "lossless") != (self.equals is not None):
            raise ConfigError(
                "gates.metric", self.metric, "only 'lossless' is compared with equals"
            )
        named = self.attack is not None and self.adversary is not None
        if self.metric in ATTACK_METRICS and not named:
            raise ConfigError("gates.metric", self.metric, "needs an attack and an adversary")
        if self.metric not in ATTACK_METRICS and (self.attack or self.adversary):
            raise ConfigError("gates.metric", self.metric, "belongs to no attack")

    @property
    def bound(self) -> str:
        """Which bound is set."""
        return next(name for name in ("max", "min", "equals") if getattr(self, name) is not None)

    @property
    def name(self) -> str:
        """How the gate is called in messages: ``server/lattice: support_auc <= 0.6``."""
        sign = {"max": "<=", "min": ">=", "equals": "=="}[self.bound]
        where = "" if self.attack is None else f"{self.adversary}/{self.attack}: "
        threshold = getattr(self, self.bound)
        return (
            f"{where}{self.metric} {sign} {threshold:g}"
            if self.bound != "equals"
            else (f"{self.metric} {sign} {str(threshold).lower()}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A judged gate.

    Args:
        gate: what was asked.
        value, low, high: the figure and its interval, where it has one.
        outcome: the judgement.
        reason: the judgement in words.
    """

    gate: GateConfig
    value: float | bool | None
    low: float | None
    high: float | None
    outcome: Outcome
    reason: str


def judge(
    gate: GateConfig,
    *,
    findings: Iterable[Finding],
    utility: Mapping[str, float],
    lossless: bool | None,
) -> GateResult:
    """Judge one gate.

    Args:
        gate: what must hold.
        findings: of all attacks by all adversaries.
        utility: mean test errors by name.
        lossless: outcome of the twin comparison; None if it was not made.
    """
    if gate.metric == "lossless":
        return _judge_lossless(gate, lossless)
    if gate.metric in UTILITY_METRICS:
        return _judge_number(gate, utility[gate.metric], None)
    finding = next(
        (f for f in findings if (f.attack, f.adversary) == (gate.attack, gate.adversary)), None
    )
    if finding is None or not finding.measured:
        reason = "the attack did not run" if finding is None else str(finding.reason)
        return _undecided(gate, f"not applicable: {reason}")
    clients = finding.units.get("clients", 0)
    if clients < FEWEST_CLIENTS:
        return _undecided(
            gate, f"only {clients} clients behind the figure, a gate needs {FEWEST_CLIENTS}"
        )
    value_or_none = finding.figures.get(gate.metric)
    if value_or_none is None:
        return _undecided(gate, "the figure is not measurable on this data")
    low = finding.figures.get(f"{gate.metric}_low")
    high = finding.figures.get(f"{gate.metric}_high")
    interval = None if low is None or high is None else (low, high)
    return _judge_number(gate, value_or_none, interval)


def _judge_number(
    gate: GateConfig, value: float, interval: tuple[float, float] | None
) -> GateResult:
    low, high = (value, value) if interval is None else interval
    if gate.max is not None:
        failed, passed = low > gate.max, high <= gate.max
    elif gate.min is not None:
        failed, passed = high < gate.min, low >= gate.min
    else:
        raise ValueError("a numeric gate has a numeric bound")
    outcome = Outcome.FAIL if failed else Outcome.PASS if passed else Outcome.INCONCLUSIVE
    reason = f"{gate.metric} is {value:.4f}"
    if interval is None:
        return GateResult(
            gate=gate, value=value, low=None, high=None, outcome=outcome, reason=reason
        )
    reason += f" (95 % interval {low:.4f} to {high:.4f})"
    return GateResult(gate=gate, value=value, low=low, high=high, outcome=outcome, reason=reason)


def _judge_lossless(gate: GateConfig, lossless: bool | None) -> GateResult:
    if lossless is None:
        return _undecided(gate, "the plain twin was not trained (run.check_lossless = false)")
    outcome = Outcome.PASS if lossless == gate.equals else Outcome.FAIL
    reason = "every table equals the plain twin's" if lossless else "the tables differ"
    return GateResult(
        gate=gate, value=lossless, low=None, high=None, outcome=outcome, reason=reason
    )


def _undecided(gate: GateConfig, reason: str) -> GateResult:
    return GateResult(
        gate=gate, value=None, low=None, high=None, outcome=Outcome.INCONCLUSIVE, reason=reason
    )
