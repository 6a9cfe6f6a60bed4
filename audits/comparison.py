"""Comparing two runs, or two sets of runs: what has got worse beyond its noise.

Runs are paired by their seed, so that data, split and start of the training are the same on both
sides. From three pairs on, the interval of a figure's difference is Student's, over the differences
of the pairs: it sees all noise that changes from run to run. All intervals hold at once: with m
figures each is taken at the level 1 - 2 ERROR_RATE / m (Bonferroni), so at most ``ERROR_RATE`` of
the comparisons of equal systems call any figure worse. Student's interval assumes noise with one
peak. If trainings end in states that lie far apart, three of them can agree by chance.

With fewer pairs the interval is combined from those that both reports state (the square-and-add
rule of Zou and Donner 2008). These cover the noise of every single client but not noise that all
clients share, such as the initial values of a training. So a figure outside them is undecided,
never worse.

A gain over what is known without the view is 0 for an attack that claims nothing, and below 0 for
an attack that misleads. So a gain that rises from below 0 to 0 is not worse: the attack then claims
nothing. A gain that rises to another value may show a trace of a leak, and is judged.

Means hide single clients. So a finding that is more severe in any pair, or a count of clients that
is higher in any pair, is never "the same", whatever the number of pairs and the other pairs.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attacks.scoring.measures import MEASURES, Behind, Context, Gained
from attacks.scoring.scales import COUNTED, SHARE
from audits.gates.figures import figure_of, grades, rank
from audits.gates.verdict import Report
from audits.report.reading import REPORT_NAME, read_report
from audits.run.folder import CONFIG_NAME
from secure_fedrec.core.special import ndtri, stdtrit
from secure_fedrec.errors import DataError
from secure_fedrec.evaluation import LOWER_IS_BETTER
from secure_fedrec.evaluation.intervals import share_interval

ERROR_RATE = 0.05
"""Largest share of comparisons of equal systems that may call a figure worse."""

FEWEST_PAIRS = 3
"""From this number of pairs on, the noise is estimated from their differences."""

_SILENT = 5e-4
"""Values nearer to 0 than this are printed as 0."""

WORSE, BETTER, SAME, OPEN = "worse", "better", "same", "undecided"
LOST, NEW, UNTOLD = "lost", "new", "noise unknown"
GONE, ACCEPTED = "inapplicable", "accepted"

LOSSLESS, ATTACK = "lossless", "attack:"
"""Changes that may be accepted: sums are no longer exact, or an attack does not apply."""


class Key(NamedTuple):
    """A figure of a report: of an adversary's attack, or of the whole report (both empty)."""

    adversary: str
    attack: str
    metric: str

    def __str__(self) -> str:
        where = "/".join(part for part in (self.adversary, self.attack) if part)
        return f"{where}: {self.metric}" if where else self.metric


class Figure(NamedTuple):
    """A value with its 95 % interval, if it has noise and the noise is known."""

    value: float
    low: float | None
    high: float | None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of both sides.

    Args:
        key: key of the figure.
        outcome: "worse", "better" or "same" (nothing beyond the noise); "undecided" if it may have
            got worse with too few pairs to decide, or by more than is tolerated; "noise unknown" if
            there are too few pairs to know its noise; "lost" if the first side of a pair has it and
            the second does not; "inapplicable" if this is because the attack does not apply there;
            "new" if only the second side has it; "accepted" if ``accept`` names it.
        before, after: means over the pairs; None if missing.
        low, high: interval of the change, in the figure's unit; None if exact or unknown.
        pairs: pairs of runs behind it.
        reason: why the second side no longer has it, according to its report.
    """

    key: Key
    outcome: str
    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    reason: str = ""


class Change(NamedTuple):
    """A setting that differs between the sides, as JSON values; None where it is missing."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All figures of two sides.

    Args:
        seeds: those of the pairs.
        unpaired: seeds that only one side has.
        differences: the figures, worst outcome first.
        changes: settings that differ between the sides, for the first pair.
    """

    seeds: tuple[int, ...]
    unpaired: tuple[int, ...]
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...] = ()

    def of(self, *outcomes: str) -> list[Difference]:
        """The figures with these outcomes."""
        return [each for each in self.differences if each.outcome in outcomes]

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a figure is worse; 3 if one is lost or undecided, or none is left."""
        if self.of(WORSE):
            return 1
        return 3 if self.of(LOST, GONE, OPEN) or not self.of(SAME, BETTER) else 0

    @property
    def verdict(self) -> str:
        """The meaning of the exit code, in words."""
        if worse := self.of(WORSE):
            return f"worse: figures beyond their noise: {len(worse)}"
        if missing := self.of(LOST, GONE):
            return f"undecided: figures that the second side no longer has: {len(missing)}"
        if open_ := self.of(OPEN):
            return f"undecided: figures that may have got worse: {len(open_)}"
        if not self.of(SAME, BETTER):
            return "undecided: no figure is left to compare"
        return "nothing got worse beyond its noise"


def runs_of(result: Path) -> dict[int, Report]:
    """Reports by seed, of a run folder, its ``report.json``, or a folder of run folders.

    Raises:
        DataError: there is no report, one is damaged, or two have the same seed.
    """
    paths = [result]
    if result.is_dir() and not any((result / name).exists() for name in (REPORT_NAME, CONFIG_NAME)):
        paths = sorted(
            path
            for path in result.iterdir()
            if (path / REPORT_NAME).exists() or (path / CONFIG_NAME).exists()
        ) or [result]
    found: dict[int, Report] = {}
    for path in paths:
        report = read_report(path)
        seed = report["configuration"].get("seed")
        if not isinstance(seed, int):
            raise DataError(path, "its configuration does not state a seed")
        if seed in found:
            raise DataError(path, f"another run of {result} has seed {seed} too")
        found[seed] = report
    return found


def compare(
    before: Mapping[int, Report],
    after: Mapping[int, Report],
    *,
    tolerance: float = math.inf,
    accept: Collection[str] = (),
) -> Comparison:
    """Compare two sides, pair by pair.

    Args:
        before: reports by seed.
        after: likewise.
        tolerance: by how much a figure may get worse undetected.
        accept: ``LOSSLESS``, or ``ATTACK`` with the name of an attack that need no longer apply. An
            attack that is missing from the second side's reports still counts as lost.

    Raises:
        DataError: no seed is on both sides, or a pair was run on different data.
    """
    seeds = tuple(sorted(before.keys() & after.keys()))
    if not seeds:
        problem = f"do not have a seed in common: {sorted(before)} and {sorted(after)}"
        raise DataError("the two sides", problem)
    for seed in seeds:
        if before[seed]["data"]["fingerprint"] != after[seed]["data"]["fingerprint"]:
            raise DataError("the two sides", f"were run on different data (seed {seed})")
    sides = [[_figures(side[seed]) for seed in seeds] for side in (before, after)]
    keys = dict.fromkeys(key for side in sides for figures in side for key in figures)
    paired = {
        key: [(a[key], b[key]) for a, b in zip(*sides, strict=True) if key in a and key in b]
        for key in keys
    }
    tested = sum(bool(pairs) and not pairs[0][0].exact for pairs in paired.values())
    lost = {key for a, b in zip(*sides, strict=True) for key in a.keys() - b.keys()}
    found = [
        _difference(key, pairs, tested, tolerance, lost=key in lost)
        if pairs
        else Difference(key=key, outcome=LOST if key in lost else NEW)
        for key, pairs in paired.items()
    ]
    found = [_explained(each, [after[seed] for seed in seeds], accept) for each in found]
    found += _more_severe([(before[seed], after[seed]) for seed in seeds])
    order = (WORSE, LOST, GONE, OPEN, NEW, BETTER, UNTOLD, ACCEPTED, SAME)
    return Comparison(
        seeds=seeds,
        unpaired=tuple(sorted(before.keys() ^ after.keys())),
        differences=tuple(sorted(found, key=lambda each: order.index(each.outcome))),
        changes=tuple(_changes("", *(_stated(side[seeds[0]]) for side in (before, after)))),
    )


def _stated(report: Report) -> dict[str, Any]:
    """What a report states about its data."""
    made_by = report.get("manifest", {}).get("tool_version")
    return {**report["configuration"], "tool_version": made_by}


def _changes(key: str, before: Any, after: Any) -> Iterator[Change]:
    """Settings that differ, by their dotted keys; tables of a list go by their names."""
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys(chain(before, after)):
            yield from _changes(f"{key}.{name}".lstrip("."), before.get(name), after.get(name))
    elif before != after:
        yield Change(key, before, after)


def _by_name(value: Any) -> Any:
    """A list of tables with names as one table by name."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    names = [each.get("layer", each.get("name")) for each in value]
    told = {name: each for name, each in zip(names, value, strict=True) if isinstance(name, str)}
    return told if len(told) == len(value) else value


def _more_severe(pairs: Sequence[tuple[Report, Report]]) -> Iterator[Difference]:
    """Findings that are more severe on the second side of a pair; unmeasured ones do not count."""
    raised: dict[Key, str] = {}
    for before, after in pairs:
        old, new = _severities(before), _severities(after)
        for (adversary, attack), severity in new.items():
            was = old.get((adversary, attack), "info")
            if rank(severity) < rank(was):
                raised.setdefault(Key(adversary, attack, "severity"), f"{was} to {severity}")
    for key, reason in raised.items():
        yield Difference(key=key, outcome=OPEN, pairs=len(pairs), reason=reason)


def _severities(report: Report) -> dict[tuple[str, str], str]:
    return {
        (each["adversary"], each["attack"]): next(iter(grades(each).values()), "info")
        for each in report["findings"]
    }


def _explained(each: Difference, after: Sequence[Report], accept: Collection[str]) -> Difference:
    """A missing figure with the reason, marked as accepted if ``accept`` names it."""
    if each.key == Key("", "", LOSSLESS) and each.outcome in (WORSE, LOST):
        reason = str(after[0]["lossless"].get("statement", ""))
        outcome = ACCEPTED if LOSSLESS in accept else each.outcome
        return replace(each, outcome=outcome, reason=reason)
    if each.outcome != LOST or not each.key.attack:
        return each
    reasons = [_inapplicable(report, each.key) for report in after]
    if None in reasons or not any(reasons):
        return each
    outcome = ACCEPTED if f"{ATTACK}{each.key.attack}" in accept else GONE
    return replace(each, outcome=outcome, reason=next(text for text in reasons if text))


def _inapplicable(report: Report, key: Key) -> str | None:
    """Why a figure's attack does not apply; "" if the figure is there, None if it is lost."""
    for each in report["findings"]:
        if (each["adversary"], each["attack"]) == (key.adversary, key.attack):
            if each["status"] != "measured":
                return each["reason"] or None
            return None if figure_of(each, key.metric) is None else ""
    return None


def _figures(report: Report) -> dict[Key, Figure]:
    """The figures that can get worse: those that determine severities, or have gates."""
    gated = {(each["adversary"], each["attack"], each["metric"]) for each in report["gates"]}
    found = {}
    for finding in report["findings"]:
        if finding["status"] != "measured":
            continue
        for metric, measure in MEASURES.items():
            key = Key(finding["adversary"], finding["attack"], metric)
            # A figure judged by its gains is compared by them; one that is not a finding is not
            # compared.
            if not isinstance(measure.severity, Behind | Context) or key in gated:
                figure = _finding_figure(finding, metric)
                if figure is not None:
                    found[key] = figure
    return found | dict(_others(report))


def _finding_figure(finding: Mapping[str, Any], metric: str) -> Figure | None:
    known = figure_of(finding, metric)
    if known is None:
        return None
    value, low, high = known
    clients = finding["units"]["clients"]
    if low < high:
        return Figure(value, low, high)
    if MEASURES[metric].scale.unit == SHARE and clients and 0 <= value <= 1:
        share = share_interval(round(value * clients), clients)
        return Figure(value, min(value, share.low), max(value, share.high))
    return Figure(value, None, None)


def _others(report: Report) -> Iterator[tuple[Key, Figure]]:
    """Utility, with noise that only several seeds show; losslessness and budgets, without noise."""
    for metric, value in report["utility"]["mean"].items():
        yield Key("", "", metric), Figure(value, None, None)
    if report["lossless"]["holds"] is not None:
        yield Key("", "", LOSSLESS), Figure(float(report["lossless"]["holds"]), None, None, True)
    for each in report.get("protection", {}).get("privacy", ()):
        yield Key(each["adversary"], "", "epsilon"), Figure(each["epsilon"], None, None, True)


def _lower_is_worse(key: Key) -> bool:
    if key.attack:
        return MEASURES[key.metric].scale.lower_is_worse
    return key.metric not in LOWER_IS_BETTER and key.metric != "epsilon"


def _difference(
    key: Key, pairs: Sequence[tuple[Figure, Figure]], tested: int, tolerance: float, *, lost: bool
) -> Difference:
    before, after = (float(np.mean([pair[side].value for pair in pairs])) for side in (0, 1))
    low, high = _interval(pairs, ERROR_RATE / max(tested, 1))
    towards = (-high, -low) if _lower_is_worse(key) else (low, high)
    sure = pairs[0][0].exact or len(pairs) >= FEWEST_PAIRS
    worse = (after - before) * (-1 if _lower_is_worse(key) else 1) > 0
    outcome = UNTOLD if math.isinf(high) else SAME
    if _fell_silent(key, pairs):
        outcome = SAME
    elif towards[0] > 0:
        outcome = WORSE if sure else OPEN
    elif towards[1] < 0:
        outcome = BETTER if sure else UNTOLD
    elif towards[1] > tolerance or (outcome == UNTOLD and worse and (key.attack or sure)):
        outcome = OPEN
    if outcome in (SAME, BETTER, UNTOLD) and _newly_exposed(key, pairs):
        outcome = OPEN
    if lost and outcome != WORSE:
        outcome = LOST
    unknown = pairs[0][0].exact or math.isinf(high)
    return Difference(
        key=key,
        outcome=outcome,
        before=before,
        after=after,
        low=None if unknown else low,
        high=None if unknown else high,
        pairs=len(pairs),
    )


def _newly_exposed(key: Key, pairs: Sequence[tuple[Figure, Figure]]) -> bool:
    """Whether more clients are counted in any pair."""
    counted = key.attack and MEASURES[key.metric].scale.unit.write == COUNTED
    return bool(counted) and any(after.value > before.value for before, after in pairs)


def _fell_silent(key: Key, pairs: Sequence[tuple[Figure, Figure]]) -> bool:
    """Whether a gain has risen from below 0 to 0, as reports print it."""
    if not key.attack or not isinstance(MEASURES[key.metric].severity, Gained):
        return False
    return all(before.value < -_SILENT and abs(after.value) < _SILENT for before, after in pairs)


def _interval(pairs: Sequence[tuple[Figure, Figure]], tail: float) -> tuple[float, float]:
    """Interval of a change, with that error at each end; infinite if the noise is unknown."""
    changes = np.array([after.value - before.value for before, after in pairs])
    mean = float(changes.mean())
    slack = 1e-9 * max(abs(each.value) for pair in pairs for each in pair)
    if pairs[0][0].exact:
        return (mean, mean) if abs(mean) > slack else (0.0, 0.0)
    deviation = float(changes.std(ddof=1)) if len(pairs) >= FEWEST_PAIRS else 0.0
    # Coarse figures may change equally in all pairs by chance; then the intervals over clients give
    # the noise.
    if deviation > slack or (len(pairs) >= FEWEST_PAIRS and abs(mean) <= slack):
        half = -float(stdtrit(len(pairs) - 1, tail)) * deviation / math.sqrt(len(pairs))
        return mean - half, mean + half
    downs, ups = zip(*(_reach(before, after) for before, after in pairs), strict=True)
    scale = -float(ndtri(tail) / ndtri(0.975))
    # All pairs have the same clients, so the noise of clients does not average out.
    return mean - scale * float(np.mean(downs)), mean + scale * float(np.mean(ups))


def _reach(before: Figure, after: Figure) -> tuple[float, float]:
    """How far the 95 % interval of a difference reaches down and up, from those of both figures."""
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return (0.0, 0.0) if before.value == after.value else (math.inf, math.inf)
    return (
        math.hypot(after.value - after.low, before.high - before.value),
        math.hypot(after.high - after.value, before.value - before.low),
    )
