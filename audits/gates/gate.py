"""Gates: what must hold, with three outcomes.

A gate compares a figure with a bound, using the figure's confidence interval where it has one:
"max" fails if even the lower end exceeds the bound, passes if the upper end does not, and is
inconclusive in between; "min" the other way round. A figure that could not be measured, or an
attack that was not applicable, is inconclusive: an audit that did not run is never a pass.

A gate that no leak could make fall is refused when the configuration is read: a bound at the end of
the figure's range, or one that asks an attack to succeed.

A gate with ``expect = "leak"`` documents in which range a figure of an attack lies, and why. If its
whole interval lies there, gate and audit leak as documented, which is not a pass. If it leaks more,
the gate falls; if it leaks less, the documentation or the audit is wrong, and the gate is
inconclusive.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from attacks import Finding
from attacks.scoring.measures import MEASURES, Behind
from attacks.scoring.scales import COUNTED
from secure_fedrec.core.registry import Derived
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import FIGURES
from secure_fedrec.settings import OneOf, Settings

EVERYTHING = "everything"
"""The default of ``covers``: everything that the adversary is sent."""

COVERED = (EVERYTHING, "sums", "reports", "bags")

FEWEST_CLIENTS = 20
"""Fewer clients than this do not support a statement about a federation."""

UTILITY_GAIN = "utility_gain"
"""Key of the gain of a run over the best trivial rule."""

UTILITY_METRICS = (*FIGURES, UTILITY_GAIN)
"""Figures of utility; the algorithm and the data set determine which are measured."""

METRICS = Derived(
    lambda: dict.fromkeys(("lossless", *UTILITY_METRICS, *MEASURES, "epsilon"), True), MEASURES
)
"""Every figure that a gate may bound."""

RATING_VALUES = frozenset(("rating_accuracy", "rating_lift", "rating_headroom_lift"))
"""Figures about naming the values of ratings."""

_BOUNDS = ("max", "min", "equals", "least")

_NEARLY_ALL = 0.9
"""From this share of a figure's range on, a documented leak need not state ``most``."""


class Outcome(StrEnum):
    """Outcome of a gate or of an audit."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    LEAK = "leaks as documented"


class GateConfig(Settings, section="gates"):
    """One gate.

    Args:
        metric: an attack figure, a figure of utility (mean over the utility folds), "lossless", or
            "epsilon", the stated privacy loss against the adversary.
            "auc" is the attack's figure if an attack is named, otherwise a figure of utility.
            "utility_gain" is the gain over the best applicable trivial rule. `secure-fedrec explain
            FIGURE` describes each figure.
        attack: the attack of the figure; required for attack figures.
        adversary: the adversary whose view is attacked; required for attack figures.
        max: the figure must not exceed this.
        min: the figure must reach this.
        equals: what "lossless" must be, true or false.
        covers: for "epsilon": everything that the adversary is sent, or the part it speaks of,
            the "sums", the "reports" of rated sets, or the "bags".
        expect: "leak" documents what an attack reaches, instead of bounding it.
        least: what the attack's figure must reach, by the lower end of its interval.
        most: what it must not exceed, by the upper end; by default the end of its range, which
            requires a `least` of nine tenths of it.
        reason: why it leaks, in a sentence for readers of the report.

    Raises:
        ConfigError: there is no bound or more than one, the bound cannot fall, a metric lacks its
            attack or adversary, or a documented leak is incomplete.
    """

    metric: Annotated[str, OneOf(METRICS, "unknown metric")]
    attack: str | None = None
    adversary: str | None = None
    max: float | None = None
    min: float | None = None
    equals: bool | None = None
    covers: Annotated[str, OneOf(COVERED, "is not sent")] = EVERYTHING
    expect: Annotated[str, OneOf(("leak",), "is not expected")] | None = None
    least: float | None = None
    most: float | None = None
    reason: str | None = None

    def _agree(self) -> None:
        self._require_whole_leak()
        if self.covers != EVERYTHING and self.metric != "epsilon":
            raise self.refusal("covers", "is for the metric epsilon only")
        bounds = [name for name in _BOUNDS if getattr(self, name) is not None]
        if len(bounds) != 1:
            raise ConfigError("gates", self.metric, "needs exactly one bound", _BOUNDS[:3])
        if (self.metric == "lossless") != (self.equals is not None):
            raise self.refusal("metric", "only 'lossless' is compared with equals")
        if self.metric == "epsilon":
            self._require_one_adversary()
            return
        names = (self.attack is not None) + (self.adversary is not None)
        if self.metric in MEASURES and names < 2 and not self.is_utility:
            raise self.refusal("metric", "needs an attack and an adversary")
        if self.metric not in MEASURES and names:
            raise self.refusal("metric", "belongs to no attack")
        if names:
            self._require_can_fall()

    def _require_can_fall(self) -> None:
        """Check that a successful attack could make the gate fall."""
        if self.expect is not None or falls(self.metric, self.bound, getattr(self, self.bound)):
            return
        unit, low = MEASURES[self.metric].scale.unit, MEASURES[self.metric].scale.lower_is_worse
        right, end = ("min", unit.low) if low else ("max", unit.high)
        if self.bound != right:
            worse = "lower" if low else "higher"
            problem = (
                f"would require a leak, since the figure is worse the {worse} it is: "
                f"bound it by '{right}'"
            )
            raise self.refusal(self.bound, problem + ("" if low else ", or document it: 'expect'"))
        beyond = "above" if low else "below"
        raise self.refusal(
            right, f"can never fall: the figure's range ends there, set it {beyond} {end:g}"
        )

    def _require_whole_leak(self) -> None:
        """Check that all keys of a documented leak are given, and no bound."""
        if self.expect is None:
            for name in ("least", "most", "reason"):
                if getattr(self, name) is not None:
                    problem = "belongs to a documented leak, expect = 'leak'"
                    raise self.refusal(name, problem)
            return
        for name in _BOUNDS[:3]:
            if getattr(self, name) is not None:
                problem = "cannot be used with expect = 'leak', which uses 'least' instead"
                raise self.refusal(name, problem)
        whole = self.attack is not None and self.adversary is not None
        if not whole or self.metric not in MEASURES or MEASURES[self.metric].scale.lower_is_worse:
            problem = "a documented leak needs a figure of an attack that is worse the higher it is"
            raise self.refusal("metric", problem)
        self._require_range()
        if self.reason is None or not self.reason.strip():
            raise self.refusal("reason", "a documented leak needs a reason")

    def _require_range(self) -> None:
        """Check that a documented leak is a leak, and states its range."""
        measure = MEASURES[self.metric]
        unit, rule = measure.scale.unit, measure.severity
        end = math.inf if unit.high is None else unit.high
        if self.least is None:
            problem = "a documented leak must state what its figure reaches at least"
            raise self.refusal("least", problem)
        if not could_tell(self.metric, self.least) or self.least > end:
            chance = f"it has to be above chance and {unit.nothing:g}, and at most {end:g}"
            problem = f"does not document a leak: {chance}; severity is {rule}"
            raise self.refusal("least", problem)
        if self.most is None and self.least < _NEARLY_ALL * end:
            problem = "a documented leak must state what its figure does not exceed, from"
            raise self.refusal("most", f"{problem} {self.least:g} to {end:g}")
        if self.most is not None and not self.least <= self.most <= end:
            raise self.refusal("most", f"lies between 'least' and the end: {self.least:g}, {end:g}")

    def _require_one_adversary(self) -> None:
        if self.adversary is None or self.attack is not None:
            raise self.refusal("metric", "needs an adversary, and no attack")
        if self.max is None:
            raise ConfigError("gates", "epsilon", "is an upper bound on what is lost", ("max",))

    @property
    def is_utility(self) -> bool:
        """Whether the figure is a figure of utility: it does not name an attack."""
        return self.metric in UTILITY_METRICS and self.attack is None and self.adversary is None

    def require_measured(self, utility: Sequence[str]) -> None:
        """Check that a figure of utility is measured.

        Args:
            utility: names of these.

        Raises:
            ConfigError: the figure is not measured.
        """
        if not self.is_utility or self.metric in (*utility, UTILITY_GAIN):
            return
        if self.metric in MEASURES:
            raise self.refusal("metric", "needs an attack and an adversary")
        raise self.refusal("metric", "is not measured on this data", utility)

    @property
    def bound(self) -> str:
        """Which bound is set."""
        return next(name for name in _BOUNDS if getattr(self, name) is not None)

    @property
    def documents_leak(self) -> bool:
        """Whether the gate holds where something leaks."""
        return self.expect is not None

    @property
    def name(self) -> str:
        """How the gate is called in messages: ``server/lattice: support_auc <= 0.6``."""
        sign = {"max": "<=", "equals": "=="}.get(self.bound, ">=")
        where = "/".join(part for part in (self.adversary, self.attack) if part)
        where = f"{where}: " if where else ""
        threshold = getattr(self, self.bound)
        figure = self.metric if self.covers == EVERYTHING else f"{self.metric} of {self.covers}"
        most = "" if self.most is None else f", <= {self.most:g}"
        return (
            f"{where}{figure} {sign} {threshold:g}{most}"
            if self.bound != "equals"
            else (f"{self.metric} {sign} {str(threshold).lower()}")
        )


def documents_leak(gate: Mapping[str, Any]) -> bool:
    """Whether a gate, as a report has it, holds where something leaks."""
    return bool(gate["bound"] == "least")


def falls(metric: str, bound: str, threshold: object) -> bool:
    """Whether a leak could give an attack's figure a value at which a bound falls."""
    if metric not in MEASURES or isinstance(threshold, bool):
        return False
    if not isinstance(threshold, int | float):
        return False
    unit, low = MEASURES[metric].scale.unit, MEASURES[metric].scale.lower_is_worse
    end = unit.low if low else unit.high
    if bound != ("min" if low else "max"):
        return False
    return end is None or (threshold > end if low else threshold < end)


def could_tell(metric: str, value: float) -> bool:
    """Whether this value of an attack's figure would be a finding if it were certain.

    For a figure that is judged by its gains, the gain is its distance from the value without
    information.
    """
    measure, rule = MEASURES[metric], MEASURES[metric].severity
    if isinstance(rule, Behind):
        return any(could_tell(name, value - measure.scale.unit.nothing) for name in rule.gains)
    return rule.grade(metric, {metric: value, f"{metric}_certain": value}) != "info"


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
    outcome: Outcome
    reason: str
    value: float | bool | None = None
    low: float | None = None
    high: float | None = None


def judge(
    gate: GateConfig,
    *,
    findings: Iterable[Finding],
    utility: Mapping[str, float],
    lossless: bool | None,
    lossless_words: str = "lossless",
    epsilons: Mapping[tuple[str, str], float] | None = None,
) -> GateResult:
    """Judge one gate.

    Args:
        gate: what must hold.
        findings: findings of all attacks by all adversaries.
        utility: mean test errors by name.
        lossless: outcome of the twin comparison; None if it was not made.
        lossless_words: the words for it if it holds.
        epsilons: privacy loss by adversary and what it covers; missing if no epsilon is claimed.
    """
    if gate.metric == "epsilon":
        # Only the price against this adversary counts.
        own = (epsilons or {}).get((gate.adversary or "", gate.covers))
        return _judge_number(gate, own, "no epsilon is claimed against this adversary")
    if gate.metric == "lossless":
        return _judge_lossless(gate, lossless, lossless_words)
    if gate.is_utility:
        unknown = "the figure is not measurable on the test examples"
        return _judge_number(gate, utility.get(gate.metric), unknown)
    return _judge_finding(gate, findings)


def _judge_finding(gate: GateConfig, findings: Iterable[Finding]) -> GateResult:
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
    counted = MEASURES[gate.metric].scale.unit.write == COUNTED
    if counted and gate.max is not None and gate.max >= clients:
        return _undecided(gate, f"can never fall: {clients} clients are all that there are")
    low, high = (finding.figures.get(f"{gate.metric}_{end}") for end in ("low", "high"))
    interval = None if low is None or high is None else (low, high)
    unknown = "the figure is not measurable on this data and these claims"
    if gate.documents_leak and (why := _says_nothing(gate, finding)):
        return _undecided(gate, why)
    return _judge_number(gate, finding.figures.get(gate.metric), unknown, interval)


def _says_nothing(gate: GateConfig, finding: Finding) -> str | None:
    """Why a documented leak would not be a leak on this data."""
    measure, figures = MEASURES[gate.metric], finding.figures
    if measure.prior is not None and not measure.prior.ceiling and gate.least is not None:
        prior = figures.get(measure.prior.key)
        if prior is not None and gate.least <= prior:
            return f"'least' is no more than {measure.prior.words}, {prior:.4f}: this is not a leak"
    mine = [each for each in MEASURES.values() if each.secret == measure.secret]
    if all(each.severity.grade(each.key, figures) == "info" for each in mine):
        return f"no figure of this secret, {measure.secret}, is above noise: this is not a leak"
    return None


def _judge_number(
    gate: GateConfig,
    value: float | None,
    unknown: str,
    interval: tuple[float, float] | None = None,
) -> GateResult:
    """Judge by the interval, if there is one; ``unknown`` says why there is no figure."""
    if value is None:
        return _undecided(gate, unknown)
    low, high = (value, value) if interval is None else interval
    if gate.max is not None:
        failed, passed = low > gate.max, high <= gate.max
    elif gate.min is not None:
        failed, passed = high < gate.min, low >= gate.min
    elif gate.least is not None:
        most = _most(gate)
        failed, passed = low > most, gate.least <= low and high <= most
    else:
        raise ValueError("a numeric gate has a numeric bound")
    held = Outcome.PASS if gate.expect is None else Outcome.LEAK
    outcome = Outcome.FAIL if failed else held if passed else Outcome.INCONCLUSIVE
    reason = f"{gate.metric} is {value:.4f}"
    if interval is None:
        return GateResult(gate=gate, value=value, outcome=outcome, reason=reason)
    reason += f" (95 % interval {low:.4f} to {high:.4f})"
    return GateResult(gate=gate, value=value, low=low, high=high, outcome=outcome, reason=reason)


def _most(gate: GateConfig) -> float:
    """What a documented leak must not exceed; the end of the figure's range is not a limit."""
    end = MEASURES[gate.metric].scale.unit.high
    return math.inf if gate.most is None or gate.most == end else gate.most


def _judge_lossless(gate: GateConfig, lossless: bool | None, words: str) -> GateResult:
    if lossless is None:
        return _undecided(gate, "no plain run was made (run.check_lossless = false)")
    outcome = Outcome.PASS if lossless == gate.equals else Outcome.FAIL
    reason = f"{words}: every table equals the plain twin's" if lossless else "the tables differ"
    return GateResult(gate=gate, value=lossless, outcome=outcome, reason=reason)


def _undecided(gate: GateConfig, reason: str) -> GateResult:
    return GateResult(gate=gate, outcome=Outcome.INCONCLUSIVE, reason=reason)
