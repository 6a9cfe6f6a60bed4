"""``audits.testing``: assertions on what leaks, for other people's tests."""

import dataclasses
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import audits
import audits.testing
import secure_fedrec.properties
from attacks.scoring.measures import MEASURES
from audits import api
from audits.testing import assert_no_leak
from secure_fedrec.errors import ConfigError
from secure_fedrec.wire import Adversary
from tests.audits.test_audit_python import TINY
from tests.recording.federations import matrix_factorization, ratings_of, start

LATTICE: dict[str, Any] = {"attack": "lattice", "adversary": "server"}


@pytest.fixture(scope="module")
def result() -> audits.AuditResult:
    return audits.audit(TINY)


def changed(result: audits.AuditResult, **changes: Any) -> audits.AuditResult:
    """The result with other facts in the finding of the lattice by the server."""
    findings = [
        {**each, **changes}
        if (each["attack"], each["adversary"]) == ("lattice", "server")
        else each
        for each in result.report["findings"]
    ]
    report = {**result.report, "findings": findings}
    return dataclasses.replace(result, report=report)


def figure(result: audits.AuditResult, name: str) -> Mapping[str, float]:
    frame = result.to_frame()
    rows = frame[(frame["attack"] == "lattice") & (frame["adversary"] == "server")]
    found: Mapping[str, float] = rows[rows["figure"] == name].iloc[0].to_dict()
    return found


def refused(audited: Any, **asked: Any) -> str:
    with pytest.raises(AssertionError) as fell:
        assert_no_leak(audited, **{**LATTICE, **asked})
    assert not isinstance(fell.value, ConfigError)
    return str(fell.value)


def test_a_leak_is_named_with_all_that_repeats_it(result: audits.AuditResult) -> None:
    told = refused(result, max_auc=0.6)
    auc = figure(result, "auc")
    assert told.startswith("server/lattice, seed 3:\n  auc <= 0.6 does not hold: auc is ")
    assert (
        f"auc is {auc['value']:.4f} (95 % interval {auc['low']:.4f} to {auc['high']:.4f})" in told
    )
    assert told.endswith("repeat it with seed = 3: adversary 'server', attack 'lattice'")


def test_the_limit_of_the_interval_judges(result: audits.AuditResult) -> None:
    told = figure(result, "precision_gain")
    value, low, high = (told[name] for name in ("value", "low", "high"))
    assert low < value < high
    assert_no_leak(result, **LATTICE, max_precision_gain=high)
    between = refused(result, max_precision_gain=(value + high) / 2)  # above the point estimate
    assert "precision_gain <= " in between
    assert "is undecided: precision_gain is" in between
    assert "does not hold" in refused(result, max_precision_gain=(low + 0.001) / 2)


def test_a_figure_without_an_interval_is_judged_by_its_value(result: audits.AuditResult) -> None:
    told = figure(result, "exact_clients")
    assert_no_leak(result, **LATTICE, max_exact_clients=told["value"])
    assert "does not hold" in refused(result, max_exact_clients=told["value"] - 1)


def test_every_bound_is_judged(result: audits.AuditResult) -> None:
    told = refused(result, max_auc=0.6, max_exact_clients=0, max_precision_gain=0.999)
    assert "auc <= 0.6" in told
    assert "exact_clients <= 0" in told
    assert "precision_gain" not in told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "not-applicable", "reason": "nothing is in view"}, "nothing is in view"),
        ({"auc": None, "auc_low": None, "auc_high": None}, "not measurable on this data"),
        ({"units": {"clients": 19, "pairs": 1, "positives": 1}}, "only 19 clients"),
        ({"lacks": ["upload"]}, "payloads that it reads were not all recorded (upload)"),
        ({"not_installed": "python-flint is not installed"}, "python-flint is not installed"),
        (
            {"positive_control": {"passed": False, "metric": "auc", "value": 0.5, "floor": 0.9}},
            "positive control reached auc 0.5, needs 0.9",
        ),
        (
            {"null_control": {"passed": False, "metric": "auc", "value": 0.7}},
            "null control is not at chance",
        ),
    ],
    ids=["reason", "figure", "clients", "lacks", "extra", "positive", "null"],
)
def test_what_was_not_measured_never_passes(
    changes: dict[str, Any], words: str, result: audits.AuditResult
) -> None:
    quiet = {"auc": 0.5, "auc_low": 0.45, "auc_high": 0.55}
    assert_no_leak(changed(result, **quiet), **LATTICE, max_auc=0.6)
    told = refused(changed(result, **{**quiet, **changes}), max_auc=0.6)
    assert "undecided" in told
    assert words in told
    assert "seed 3" in told


def test_a_figure_of_another_attack_was_not_measured(result: audits.AuditResult) -> None:
    told = refused(result, max_linked_share=0.1)
    assert "linked_share <= 0.1 is undecided: the figure is not measurable on this data" in told


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ({}, "max_FIGURE: give at least one bound"),
        ({"max_acu": 0.5}, "max_acu = 'acu': unknown figure"),
        ({"max_rmse": 0.5}, "max_rmse = 'rmse': unknown figure"),
        ({"maximum": 0.5}, "maximum = 0.5: unknown argument"),
        ({"min_auc": 0.5}, "would require a leak"),
        ({"max_auc": 1.0}, "can never fall"),
        ({"max_auc": "low"}, "gates.max = 'low'"),
    ],
)
def test_a_bound_that_is_none_is_refused(
    bounds: dict[str, Any], problem: str, result: audits.AuditResult
) -> None:
    with pytest.raises(ConfigError) as wrong:
        assert_no_leak(result, **LATTICE, **bounds)
    assert problem in str(wrong.value)
    if "unknown figure" in problem:
        assert wrong.value.choices == tuple(MEASURES)


def test_a_figure_that_is_worse_the_lower_it_is_has_a_least(result: audits.AuditResult) -> None:
    low = next(key for key, each in MEASURES.items() if each.scale.lower_is_worse)
    told = refused(result, **{f"min_{low}": 0.01})
    assert f"{low} >= 0.01" in told


def test_attacks_and_adversaries_that_are_not_there_are_refused(
    result: audits.AuditResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="attack = 'oracle': is not of this audit"):
        assert_no_leak(result, attack="oracle", adversary="server", max_auc=0.6)
    with pytest.raises(ConfigError, match="adversary = 'client:1': is not of this audit"):
        assert_no_leak(result, attack="lattice", adversary="client:1", max_auc=0.6)
    monkeypatch.setattr(api, "simulate", lambda *_, **__: pytest.fail("trained before it looked"))
    for asked in ({"attack": "oracle"}, {"adversary": "mallory"}):
        with pytest.raises(ConfigError, match=next(iter(asked.values()))):
            assert_no_leak(TINY, **{**LATTICE, **asked}, max_auc=0.6)
    with pytest.raises(TypeError, match="a configuration is an AuditConfig"):
        assert_no_leak(3, **LATTICE, max_auc=0.6)  # type: ignore[arg-type]


def test_a_recording_of_a_loop_of_ones_own_is_judged() -> None:
    """As its audit is; and what is no configuration is not printed whole."""
    users, vectors = start(30, 25, rank=3, seed=1)
    recording = matrix_factorization(
        ratings_of(30, 25, seed=2), users, vectors, rounds=1, rate=0.1, decay=0.9, pull=0.01
    )
    asked: dict[str, Any] = {"attack": "direct", "adversary": "server"}
    told = refused(recording, **asked, max_precision_gain=0.05)
    assert told == refused(
        audits.audit(recording, adversaries="server"), **asked, max_precision_gain=0.05
    )
    assert "precision_gain <= 0.05 does not hold" in told
    server = Adversary(name="ours", corrupt=frozenset({"server"}))
    assert_no_leak(recording, attack="direct", adversary=server, max_precision_gain=0.99)
    with pytest.raises(ConfigError, match=r"data_dir.* applies to a configuration"):
        assert_no_leak(recording, **asked, data_dir=".", max_precision_gain=0.99)
    with pytest.raises(TypeError) as wrong:
        assert_no_leak(list(range(10_000)), **asked, max_auc=0.9)  # type: ignore[arg-type]
    assert len(str(wrong.value)) < 400


def test_a_configuration_a_run_and_its_folder_are_judged_alike(
    result: audits.AuditResult, tmp_path: Path
) -> None:
    run = audits.simulate(TINY, out=tmp_path / "run")
    told = refused(result, max_auc=0.6)
    for audited in (TINY, run, run.folder, str(run.folder), run.folder / "config.json"):
        assert refused(audited, max_auc=0.6) == told
    for passing in (TINY, run, result):
        assert_no_leak(passing, attack="direct", adversary="server", max_support_auc=0.6)


def test_an_adversary_of_its_own_is_asked(result: audits.AuditResult) -> None:
    own = Adversary(name="mine", corrupt=frozenset(("server",)))
    assert refused(result.folder, adversary=own, max_auc=0.6).startswith("mine/lattice, seed 3")


@pytest.mark.parametrize(
    "more",
    [
        {"corrupt": frozenset({"server", "client:0"})},
        {"corrupt": frozenset({"client:0"})},
        {"taps": frozenset({"network"})},
        {"knows": frozenset({"seed"})},
    ],
    ids=["more parties", "other parties", "taps", "knows"],
)
def test_an_adversary_of_the_same_name_is_not_the_one_of_a_result(
    more: dict[str, Any], result: audits.AuditResult
) -> None:
    """Its parties, taps and knowledge must be those that were judged."""
    same = Adversary(name="server", corrupt=frozenset({"server"}))
    asked: dict[str, Any] = {"attack": "direct", "max_support_auc": 0.6}
    assert_no_leak(result, adversary=same, **asked)
    with pytest.raises(ConfigError, match="is another adversary than the one of this name"):
        assert_no_leak(result, adversary=dataclasses.replace(same, **more), **asked)


def test_an_adversary_of_a_recording_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap is passed on; knowledge of a seed, of which a recording has none, is refused."""
    users, vectors = start(30, 25, rank=3, seed=1)
    recording = matrix_factorization(
        ratings_of(30, 25, seed=2), users, vectors, rounds=1, rate=0.1, decay=0.9, pull=0.01
    )
    looked: list[Any] = []
    true_audit = api.audit

    def audit(*given: Any, **told: Any) -> Any:
        looked.append(told["gates"]["adversaries"])
        return true_audit(*given, **told)

    monkeypatch.setattr(api, "audit", audit)
    tap = Adversary(name="ours", corrupt=frozenset({"server"}), taps=frozenset({"network"}))
    assert_no_leak(recording, attack="direct", adversary=tap, max_precision_gain=0.99)
    assert looked == [[{"name": "ours", "corrupt": ["server"], "taps": ["network"], "knows": []}]]
    knows = dataclasses.replace(tap, knows=frozenset({"seed"}))
    with pytest.raises(ConfigError, match=r"adversary\.knows"):
        assert_no_leak(recording, attack="direct", adversary=knows, max_precision_gain=0.99)


def test_the_other_assertions_are_those_of_the_properties() -> None:
    for name in ("assert_lossless", "assert_split_personalization"):
        assert getattr(audits.testing, name) is getattr(secure_fedrec.properties, name)
    with pytest.raises(AttributeError, match="assert_nothing"):
        _ = audits.testing.assert_nothing


def test_importing_the_assertion_imports_nothing_that_takes_long() -> None:
    program = "import audits.testing, sys; print(*{each.split('.')[0] for each in sys.modules})"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not set(ended.stdout.split()) & {"numpy", "numba", "torch", "pytest", "attacks"}
