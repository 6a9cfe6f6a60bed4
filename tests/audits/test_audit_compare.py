"""Comparisons of runs: how often they see what is not there, that they see what is, and refusals.

``make nulls`` also compares whole audits that differ by their seed alone.
"""

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from attacks.scoring.measures import MEASURES, Observed
from audits import comparison
from audits.comparison import ERROR_RATE, FEWEST_PAIRS, Comparison, compare
from audits.config.audit import parse_config
from audits.run.audit import audit
from tests.audits.comparisons import GAINS, KINDS, audited, bare, noisy, stated
from tests.audits.nulls import kinds

Command = Callable[..., tuple[int, str, str]]
RARE = 1e-3
NULLS = int(os.environ.get("SECURE_FEDREC_NULLS", "100"))


def outcomes(found: Comparison) -> dict[str, str]:
    return {str(each.key): each.outcome for each in found.differences}


def sides(runs: Sequence[dict[str, Any]]) -> Comparison:
    """The first half of some runs with the second, whatever their seeds and data."""
    half = len(runs) // 2
    alike = {"data": {"fingerprint": "one"}}
    named = [
        {**run, **alike, "configuration": {"seed": number % half}}
        for number, run in enumerate(runs)
    ]
    return compare(dict(enumerate(named[:half])), dict(enumerate(named[half:])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pairs", [3, 6])
def test_noise_is_called_worse_no_more_often_than_stated(kind: str, pairs: int) -> None:
    """Of equal systems, by noise that is independent, shared, of few clients, heavy or rare."""
    rng, tries = np.random.default_rng(pairs), 80
    alarms = 0
    for _ in range(tries):
        runs = [
            stated(0, dict(zip(GAINS, noisy(kind, rng, 5), strict=True))) for _ in range(2 * pairs)
        ]
        alarms += sides(runs).exit_code == 1
    print(f"{kind}, {pairs} pairs: {alarms} of {tries} comparisons of noise call a figure worse")
    assert alarms <= binom.ppf(1 - RARE, tries, ERROR_RATE)


def test_attacks_on_one_federation_differ_by_their_noise_alone() -> None:
    """One pair of runs, figures and intervals as the harness states them, leak or none."""
    specs = [spec for spec in kinds(1) if spec.scores == "noise"]
    found = [
        sides([audited(spec, seed, noise, 0.4 * (seed % 2)) for noise in (1, 2)])
        for seed, spec in enumerate(specs)
    ]
    judged = [outcomes(each) for each in found]
    assert all(len(each) >= 10 for each in judged)
    assert not any("worse" in each.values() for each in judged)  # one pair decides nothing
    open_ = sum("undecided" in each.values() for each in judged)
    assert open_ <= binom.ppf(1 - RARE, len(judged), ERROR_RATE)


@pytest.mark.skipif(NULLS < 1000, reason="whole audits take minutes: make nulls")
@pytest.mark.parametrize("layers", [["virtual-ratings", "denoisers"], ["masking"]])
def test_whole_audits_differ_by_their_seed_alone(tmp_path: Path, layers: list[str]) -> None:
    shape = {"name": "synthetic", "clients": 60, "items": 60, "mean_ratings": 12.0}
    runs, draws = [], 400
    for seed in range(24):
        settings = {
            "seed": seed,
            "data": shape,
            "algorithm": {"name": "pmf", "rank": 4, "rounds": 6},
            "recording": {"payload_rounds": [1, 4]},
            "run": {"check_lossless": False},
            "protection": [{"layer": layer} for layer in layers],
            "adversaries": [{"name": "server", "corrupt": ["server"]}],
        }
        done = audit(
            parse_config(settings),
            out=tmp_path / str(seed),
            data_dir=None,
            resume=False,
            command=["secure-fedrec"],
            progress=False,
        )
        runs.append(dict(done.report))
    pairs = [sides(runs[first : first + 2]) for first in range(0, len(runs), 2)]
    left = sum(each.exit_code == 3 for each in pairs)
    print(f"{layers}: {left} of {len(pairs)} pairs are undecided")
    assert not any(each.exit_code == 1 for each in pairs)
    rng = np.random.default_rng(1)
    drawn = [[runs[n] for n in rng.permutation(len(runs))[:6]] for _ in range(draws)]
    alarms = sum(sides(six).exit_code == 1 for six in drawn)
    print(f"{layers}: {alarms} of {draws} comparisons of equal audits call a figure worse")
    assert alarms <= 2 * draws * ERROR_RATE  # draws of 24 audits overlap, and swing together


def test_a_system_that_got_worse_is_found() -> None:
    spec = next(spec for spec in kinds(1) if spec.scores == "noise" and spec.shuffled)
    before = [audited(spec, seed, 1, 0.0) for seed in range(5)]
    after = [audited(spec, seed, 1, 1.0) for seed in range(5)]
    found = sides([*before, *after])
    assert found.exit_code == 1
    assert outcomes(found)["server/stub: lift_over_prior"] == "worse"
    turned = sides([*after, *before])
    assert turned.exit_code == 0
    assert outcomes(turned)["server/stub: lift_over_prior"] == "better"
    single = sides([before[0], after[0]])
    assert single.exit_code == 3
    assert outcomes(single)["server/stub: lift_over_prior"] == "undecided"
    # Other figures, which the change leaves alone, are not called worse.
    assert {name for name, each in outcomes(found).items() if each == "worse"} <= {
        f"server/stub: {name}"
        for name in (*GAINS, "support_lift_over_prior", "support_headroom_lift")
    }


def test_what_has_no_noise_is_compared_exactly() -> None:
    before, after = bare(1, []), bare(1, [])
    price = {"adversary": "server", "epsilon": 2.0}
    before["protection"] = after["protection"] = {"privacy": [price]}
    assert set(outcomes(compare({1: before}, {1: after})).values()) == {"same"}
    after = copy.deepcopy(after)
    after["protection"]["privacy"][0]["epsilon"] = 2.1
    after["lossless"]["holds"] = False
    found = compare({1: before}, {1: after})
    assert found.exit_code == 1
    assert outcomes(found) == {"lossless": "worse", "server: epsilon": "worse", "rmse": "same"}
    assert compare({1: after}, {1: before}).exit_code == 0


def test_a_share_without_an_interval_has_that_of_its_clients() -> None:
    before, after = stated(1, {"user_vector_share": 0.0}), stated(1, {"user_vector_share": 1.0})
    assert outcomes(compare({1: before}, {1: after}))["server/stub: user_vector_share"] == (
        "undecided"
    )
    slight = stated(1, {"user_vector_share": 1 / 60})
    assert outcomes(compare({1: before}, {1: slight}))["server/stub: user_vector_share"] == "same"


def test_a_figure_that_is_lost_is_no_pass_and_a_new_one_no_failure() -> None:
    with_, without = stated(1, {"precision_gain": 0.1}), bare(1, [])
    assert compare({1: with_}, {1: without}).exit_code == 3
    assert outcomes(compare({1: with_}, {1: without}))["server/stub: precision_gain"] == "lost"
    assert compare({1: without}, {1: with_}).exit_code == 0
    nothing = bare(1, [])
    nothing["utility"]["mean"], nothing["lossless"]["holds"] = {}, None
    assert compare({1: nothing}, {1: nothing}).exit_code == 3


def test_equal_changes_of_all_pairs_are_no_certainty() -> None:
    """Three coarse figures may move alike by chance."""
    runs = [stated(0, {"exact_set_gain": value}) for value in (0, 0, 0, *[1 / 60] * 3)]
    assert outcomes(sides(runs))["server/stub: exact_set_gain"] == "undecided"


@pytest.mark.parametrize("before", [0, 1 / 60, 7 / 60])
def test_equal_changes_are_equal_but_for_rounding(before: float) -> None:
    values = [before + n / 180 for n in range(3)]
    runs = [stated(0, {"exact_set_gain": value}) for value in values]
    runs += [stated(0, {"exact_set_gain": value + 1 / 60}) for value in values]
    assert outcomes(sides(runs))["server/stub: exact_set_gain"] == "undecided"


def test_utility_that_fell_alike_in_all_pairs_is_undecided() -> None:
    good, bad = bare(1, []), bare(1, [])
    good["utility"]["mean"], bad["utility"]["mean"] = {"auc": 0.9}, {"auc": 0.5}
    assert outcomes(sides([good] * 3 + [bad] * 3))["auc"] == "undecided"
    assert sides([good] * 3 + [bad] * 3).exit_code == 3
    assert outcomes(sides([bad] * 3 + [good] * 3))["auc"] == "noise unknown"


def test_a_figure_that_is_lost_in_one_pair_is_lost() -> None:
    with_, without = stated(1, {"precision_gain": 0.1}), bare(1, [])
    found = sides([with_, with_, with_, with_, without, with_])
    assert outcomes(found)["server/stub: precision_gain"] == "lost"
    assert found.exit_code == 3
    assert sides([with_, without, with_, with_, with_, with_]).exit_code == 0


def test_a_tolerance_asks_for_power() -> None:
    rng = np.random.default_rng(3)
    runs = [stated(seed % 4, {"precision_gain": 0.2 + 0.02 * rng.random()}) for seed in range(8)]
    two = dict(enumerate(runs[:4])), dict(enumerate(runs[4:]))
    for run in runs:
        run["utility"]["mean"] = {}
    assert compare(*two).exit_code == 0
    assert compare(*two, tolerance=0.5).exit_code == 0
    assert compare(*two, tolerance=0.001).exit_code == 3


def test_the_command_compares_folders_of_runs(
    recorded: Path, command: Command, refusal: Callable[..., str], tmp_path: Path
) -> None:
    for side in ("a", "b"):
        for seed in range(FEWEST_PAIRS):
            folder = tmp_path / side / f"seed-{seed}"
            folder.mkdir(parents=True)
            report = json.loads((recorded / "report.json").read_text())
            report["configuration"]["seed"] = seed
            for finding in report["findings"]:
                if finding["attack"] == "lattice" and side == "b":
                    finding["precision_gain"] += 0.1 + 0.001 * seed
            (folder / "report.json").write_text(json.dumps(report))
    a, b = tmp_path / "a", tmp_path / "b"
    code, out, _ = command("compare", a, b)
    assert code == 1
    assert "worse         server/lattice: precision_gain" in out
    assert "at most 5% call any figure worse" in out
    assert "\nverdict: worse: figures beyond their noise: " in out
    assert out.endswith(" (exit code 1)\n")
    code, out, _ = command("compare", a, b, "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], found["seeds"]) == (1, 1, [0, 1, 2])
    worse = [each for each in found["figures"] if each["outcome"] == "worse"]
    assert {each["key"]["metric"] for each in worse} == {"precision_gain"}
    code, out, err = command("compare", b, a, "--accept", "attack:lattice")
    assert code == 0
    assert out.endswith("verdict: nothing got worse beyond its noise (exit code 0)\n")
    assert "--accept attack:lattice has no effect" in err
    assert "is not one of lossless, attack:" in command("compare", b, a, "--accept", "rmse")[2]
    assert command("compare", a, a / "seed-1")[0] == 0  # one pair, and unpaired seeds are told
    assert "seeds (0, 2)" in command("compare", a, a / "seed-1")[2]

    assert "not have a seed in common" in refusal("compare", a / "seed-1", b / "seed-2")
    assert "is not a run folder" in refusal("compare", a, tmp_path)
    assert "must be positive" in refusal("compare", a, b, "--tolerance", "0")
    assert "must be positive" in refusal("compare", a, b, "--tolerance", "nan")
    shutil.copytree(a / "seed-1", a / "again")
    assert "has seed 1 too" in refusal("compare", a, b)
    shutil.rmtree(a / "again")
    path = a / "seed-1" / "report.json"
    path.write_text(path.read_text().replace('"clients": 40', '"clients": NaN'))
    assert "is not valid JSON" in refusal("compare", a, b)
    path.write_text((b / "seed-1" / "report.json").read_text())
    report = json.loads(path.read_text())
    report["data"]["fingerprint"] = "other"
    path.write_text(json.dumps(report))
    assert "were run on different data (seed 1)" in refusal("compare", a, b)


def test_settings_that_changed_are_told_by_their_keys() -> None:
    before, after = stated(1, {"auc": 0.5}), stated(1, {"auc": 0.5})
    layers = [{"layer": "routing", "hops": 2}, {"layer": "denoisers", "count": 4}]
    before["configuration"] |= {"protection": layers, "gates": [{"metric": "auc"}], "rounds": 3}
    changed = [{"layer": "denoisers", "count": 5}]
    after["configuration"] |= {"protection": changed, "gates": [{"metric": "mae"}], "rounds": 3}
    assert compare({1: before}, {1: after}).changes == (
        ("protection.routing", layers[0], None),
        ("protection.denoisers.count", 4, 5),
        ("gates", [{"metric": "auc"}], [{"metric": "mae"}]),
    )
    assert compare({1: before}, {1: before}).changes == ()
    for odd in ([{"name": ["a"]}], [{"name": "a"}, {"name": "a"}], "x", None):
        after["configuration"]["protection"] = odd
        change = compare({1: before}, {1: after}).changes[0]
        assert (change.key, change.after) == ("protection", odd)


def test_an_attack_without_its_figures_is_told_on_one_line(
    command: Command, tmp_path: Path, recorded: Path
) -> None:
    report = json.loads((recorded / "report.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(report))
    gone = next(each for each in report["findings"] if each["status"] == "measured")
    report["findings"].remove(gone)
    whose = f"{gone['adversary']}/{gone['attack']}: "
    report["configuration"]["title"] = "line\nbreak" * 20
    (tmp_path / "b.json").write_text(json.dumps(report))
    _, out, _ = command("compare", tmp_path / "a.json", tmp_path / "b.json")
    lines = out.splitlines()
    assert lines[0].startswith("changed       title: ") and lines[0].endswith("...")
    [lost] = [line for line in lines if line.startswith("lost")]
    assert whose in lost
    assert lost.count(", ") >= 1
    _, out, _ = command("compare", tmp_path / "a.json", tmp_path / "b.json", "--all")
    assert out.count(f" {whose}") > 1
    _, out, _ = command("compare", tmp_path / "a.json", tmp_path / "b.json", "--json")
    assert [each["key"] for each in json.loads(out)["changes"]] == ["title"]


def test_a_gain_that_rises_to_zero_tells_nobody_anything() -> None:
    """What misled says nothing now; what rises and stays below 0 may have found a trace."""
    name = "server/stub: support_lift_over_prior"

    def gained(value: float) -> dict[str, Any]:
        ends = {"low": value - 0.02, "high": value + 0.02} if value else {}
        told = {f"support_lift_over_prior_{end}": each for end, each in ends.items()}
        return stated(1, {"support_lift_over_prior": value, **told})

    for before, after, wanted in (
        (-0.218, 0.0, "same"),
        (0.0, -0.218, "noise unknown"),
        (-0.3, -0.1, "undecided"),
        (-0.218, 0.3, "undecided"),
        (0.0, 0.3, "undecided"),
    ):
        told = outcomes(compare({1: gained(before)}, {1: gained(after)}))[name]
        assert told == wanted, (before, after)
    assert outcomes(compare({1: gained(-0.218)}, {1: gained(0.0)}, tolerance=0.001))[name] == "same"


def test_a_deliberate_change_is_accepted_by_name_and_nothing_else_is() -> None:
    """An attack that says why it does not apply; not one that did not run, nor what got worse."""
    before, after = stated(1, {"precision_gain": 0.1}), stated(1, {})
    after["findings"][0] |= {"status": "not-applicable", "reason": "only sums are sent"}
    after["lossless"] = {"holds": False, "statement": "noise is added"}
    found = compare({1: before}, {1: after})
    told = {str(each.key): (each.outcome, each.reason) for each in found.differences}
    assert told["server/stub: precision_gain"] == ("inapplicable", "only sums are sent")
    assert told["lossless"] == ("worse", "noise is added")
    assert (found.exit_code, found.verdict[:6]) == (1, "worse:")
    some = compare({1: before}, {1: after}, accept=["lossless"])
    assert (some.exit_code, some.verdict[:10]) == (3, "undecided:")
    whole = compare({1: before}, {1: after}, accept=["lossless", "attack:stub"])
    assert (whole.exit_code, whole.verdict) == (0, "nothing got worse beyond its noise")
    assert outcomes(whole)["lossless"] == "accepted"
    missing = bare(1, [])
    accepted = compare({1: before}, {1: missing}, accept=["attack:stub"])
    assert (accepted.exit_code, outcomes(accepted)["server/stub: precision_gain"]) == (3, "lost")
    unmeasured = stated(1, {})
    assert compare({1: before}, {1: unmeasured}, accept=["attack:stub"]).exit_code == 3
    worse = copy.deepcopy(after)
    worse["protection"] = {"privacy": [{"adversary": "server", "epsilon": 3.0}]}
    before["protection"] = {"privacy": [{"adversary": "server", "epsilon": 2.0}]}
    assert compare({1: before}, {1: worse}, accept=["lossless", "attack:stub"]).exit_code == 1


@pytest.mark.claim("comparisons-never-excuse")
def test_a_raised_severity_is_never_no_worse() -> None:
    """However few pairs there are, and in however few of them it is raised."""

    def graded(seed: int, certain: float) -> dict[str, Any]:
        told = {"precision_gain": 0.3, "precision_gain_low": 0.0, "precision_gain_high": 0.6}
        return stated(seed, {**told, "precision_gain_certain": certain})

    calm, loud = graded(1, 0.01), graded(1, 0.25)
    raised = compare({1: calm}, {1: loud})
    assert raised.exit_code == 3
    [each] = [each for each in raised.differences if each.key.metric == "severity"]
    assert (each.outcome, each.reason) == ("undecided", "low to high")
    assert compare({1: loud}, {1: calm}).exit_code == 0
    assert compare({1: loud}, {1: loud}).exit_code == 0
    assert compare({1: bare(1, [])}, {1: loud}).exit_code == 3  # it was nothing, and is something
    once = [graded(seed, 0.25 if seed == 4 else 0.01) for seed in range(5)]
    steady = [graded(seed, 0.01) for seed in range(5)]
    assert compare(dict(enumerate(steady)), dict(enumerate(once))).exit_code == 3


@pytest.mark.claim("comparisons-never-excuse")
@pytest.mark.parametrize("pairs", [1, 5])
def test_a_client_newly_exposed_is_never_no_worse(
    monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    exposed = replace(MEASURES["exact_clients"], severity=Observed(1.0, floor=1.0), key="exposed")
    monkeypatch.setattr(comparison, "MEASURES", {**MEASURES, "exposed": exposed})

    def exposing(*clients: int) -> dict[int, dict[str, Any]]:
        return {seed: stated(seed, {"exposed": each}) for seed, each in enumerate(clients)}

    some, more = [3] * pairs, [4, *[2] * (pairs - 1)]
    name = "server/stub: exposed"
    assert outcomes(compare(exposing(*some), exposing(*more)))[name] == "undecided"
    assert compare(exposing(*some), exposing(*more), tolerance=10).exit_code == 3
    assert outcomes(compare(exposing(*some), exposing(*some)))[name] == "same"
    assert compare(exposing(*some), exposing(*[2] * pairs)).exit_code == 0
