"""``import audits``: what its functions take, return, write and leave behind."""

import contextlib
import copy
import gc
import html
import json
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import audits
from attacks.scoring.measures import MEASURES
from audits import api, given
from audits.config.audit import AuditConfig, parse_config
from audits.given import configured
from audits.planning import Deployment
from audits.presets import PRESETS, preset_file
from audits.report.schema import report_schema
from audits.results import COLUMNS, findings_frame
from secure_fedrec.errors import ConfigError, DataError, TranscriptError
from secure_fedrec.planning import costs
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.workload import calibrate
from secure_fedrec.protection.masking import MaskingConfig
from secure_fedrec.wire import Adversary
from tests.audits.conftest import SMALL
from tests.audits.folders import snapshot

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

TINY: dict[str, Any] = copy.deepcopy(SMALL) | {
    "algorithm": {"name": "pmf", "rank": 4, "rounds": 2},
    "recording": {"payload_rounds": [1]},
    "attacks": ["direct", "lattice", "score-vector"],
}


@pytest.fixture
def tiny() -> dict[str, Any]:
    return copy.deepcopy(TINY)


@pytest.fixture(scope="module")
def result() -> audits.AuditResult:
    """An audit in a temporary folder; not to be changed."""
    return audits.audit(TINY)


def test_a_dict_a_path_and_settings_are_one_audit(
    result: audits.AuditResult, tiny: dict[str, Any], write_config: Write, tmp_path: Path
) -> None:
    path = write_config(tiny)
    forms: tuple[Any, ...] = (path, str(path), parse_config(tiny))
    for number, config in enumerate(forms):
        found = audits.audit(config, out=tmp_path / str(number))
        assert found.report["findings"] == result.report["findings"]
        assert found.report["verdict"] == result.report["verdict"]
        named = "source" in found.report
        assert named == isinstance(config, Path | str)


def test_the_command_and_python_write_one_report(
    result: audits.AuditResult,
    tiny: dict[str, Any],
    write_config: Write,
    command: Command,
    tmp_path: Path,
) -> None:
    code, _, _ = command("audit", write_config(tiny), "--out", tmp_path / "run", "--quiet")
    assert code == result.verdict.exit_code
    written = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    mine = json.loads(result.files["json"].read_text(encoding="utf-8"))
    of_a_run = ("command", "started", "seconds")
    for report in (written, mine):
        for key in of_a_run:
            del report["manifest"][key]
        del report["cost"]
    assert written.pop("source")["path"] == "config.toml"
    assert written == mine


def test_a_result_says_what_its_report_says(result: audits.AuditResult) -> None:
    assert result.report == json.loads(result.files["json"].read_text(encoding="utf-8"))
    assert result.verdict.outcome == result.report["verdict"]["outcome"] == "fail"
    assert result.holds is False
    assert result.seed == TINY["seed"]
    assert set(result.files) == {"json", "html"}
    said = str(result)
    assert "gate fail         server/lattice: auc <= 0.6" in said
    assert said.endswith("verdict: fail (exit code 1)")
    assert repr(result) == f"<AuditResult: fail, seed 3, {result.folder}>"


@pytest.mark.parametrize(
    ("outcome", "holds"),
    [("pass", True), ("fail", False), ("inconclusive", False), ("leaks as documented", False)],
)
def test_only_a_pass_holds(outcome: str, holds: bool, result: audits.AuditResult) -> None:
    from audits.gates.verdict import Verdict

    verdict = Verdict.told({"outcome": outcome, "reasons": []})
    other = audits.AuditResult(
        report=result.report, verdict=verdict, files=result.files, folder=result.folder
    )
    assert other.holds is holds


def test_a_frame_has_a_row_for_each_figure_of_a_finding(result: audits.AuditResult) -> None:
    frame = result.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert [str(frame[name].dtype) for name in ("value", "low", "high")] == ["float64"] * 3
    assert set(frame["figure"].dropna()) <= set(MEASURES)
    for finding in result.report["findings"]:
        mine = frame[
            (frame["adversary"] == finding["adversary"]) & (frame["attack"] == finding["attack"])
        ]
        assert set(mine["status"]) == {finding["status"]}
        assert set(mine["severity"]) == {finding["severity"]}
        assert list(mine["reason"]) == [finding["reason"]] * len(mine)
        figures = {**finding["details"], **finding}
        told = {key: figures[key] for key in MEASURES if figures.get(key) is not None}
        if not told:
            assert list(mine["figure"]) == [None]
            assert math.isnan(mine["value"].item())
            continue
        assert dict(zip(mine["figure"], mine["value"], strict=True)) == told
        for key, low, high in zip(mine["figure"], mine["low"], mine["high"], strict=True):
            ends = [figures.get(end) for end in MEASURES[key].ends]
            assert [None if math.isnan(each) else each for each in (low, high)] == ends
    assert len(frame[frame["status"] == "not-applicable"]) > 0


def test_a_frame_of_no_findings_has_its_columns() -> None:
    frame = findings_frame([])
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 0


def test_a_notebook_gets_verdict_and_attacks_and_nothing_from_elsewhere(
    result: audits.AuditResult,
) -> None:
    shown = result._repr_html_()
    (page,) = re.findall(r'^<iframe [^>]* sandbox [^>]*srcdoc="([^"]*)"></iframe>$', shown)
    page = html.unescape(page)
    assert page.startswith("<!doctype html>")
    assert '<section id="verdict"' in page
    assert '<section id="attacks"' in page
    for name in ("gates", "utility", "cost", "reproduce"):
        assert f'id="{name}"' not in page
        assert f'href="#{name}"' not in page
    for finding in result.report["findings"]:
        if finding["status"] == "measured":
            assert finding["attack"] in page
    assert "default-src 'none'" in page
    assert re.findall(r"<(?:script|link|img|iframe|object|embed|base|form)\b", page) == []
    assert all(target.startswith("#") for target in re.findall(r'\bhref="([^"]*)"', page))


def test_a_temporary_folder_lives_as_long_as_the_result(tiny: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = audits.simulate(tiny)
        folder = run.folder
        assert (folder / "transcript").is_dir()
        assert folder.parent.stat().st_mode & 0o077 == 0
        del run
        gc.collect()
    assert not folder.parent.exists()


def test_a_temporary_folder_of_a_refused_run_is_removed(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tiny["data"]["clients"] = 40
    tiny["recording"]["max_transcript_gb"] = 1e-9
    with pytest.raises(ConfigError, match="max_transcript_gb"):
        audits.audit(tiny)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_goes_with_the_interpreter(tiny: dict[str, Any], tmp_path: Path) -> None:
    program = f"import audits; run = audits.simulate({tiny!r}); print(run.folder)"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert Path(ended.stdout.strip()).is_relative_to(tmp_path)
    assert ended.stderr == ""  # nothing is said that was not asked for
    assert [each for each in tmp_path.iterdir() if each.name.startswith("secure-fedrec")] == []


def test_a_fork_does_not_remove_the_folder_of_its_parent(tiny: dict[str, Any]) -> None:
    run = audits.simulate(tiny)
    folder = run.folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the fork leaves
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            del run
            gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert (folder / "transcript").is_dir()


def test_saving_copies_the_run_and_writes_formats(
    result: audits.AuditResult, command: Command, tmp_path: Path
) -> None:
    target = tmp_path / "kept" / "run"
    files = result.save(target, formats=("md", "junit"))
    assert {"json", "md", "junit"} <= set(files)
    assert all(path.parent == target and path.exists() for path in files.values())
    assert target.stat().st_mode & 0o077 == 0
    before = snapshot(result.folder)
    assert {name: snapshot(target)[name] for name in before} == before
    code, out, _ = command("attack", target / "transcript", "--json", "--quiet")
    assert code == 0
    assert json.loads(out) == result.report["findings"]
    assert "sarif" in result.save(target / ".." / "other", formats="sarif")


def test_saving_into_the_run_folder_adds_formats(tiny: dict[str, Any], tmp_path: Path) -> None:
    found = audits.audit(tiny, out=tmp_path / "run", formats=())
    assert set(found.files) == {"json"}
    before = snapshot(tmp_path / "run")
    assert set(found.save(tmp_path / "run", formats="md")) == {"json", "md"}
    after = snapshot(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"report.md"}


def test_saving_writes_over_nothing(result: audits.AuditResult, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for target in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(ConfigError, match="is not an empty folder"):
            result.save(target)
    with pytest.raises(ConfigError, match=r"formats = 'pdf': unknown format \(choices: json, "):
        result.save(tmp_path / "new", formats="pdf")
    assert snapshot(tmp_path) == {"mine.txt": b"mine"}


@pytest.mark.parametrize("wrong", [3, None, b"config.toml", ["quickstart"], object()])
def test_anything_else_is_refused_with_what_is_allowed(wrong: Any) -> None:
    for function in (audits.audit, audits.simulate):
        with pytest.raises(TypeError, match=r"AuditConfig, a dict .* path .* preset") as refused:
            function(wrong)
        assert type(wrong).__name__ in str(refused.value)
    with pytest.raises(TypeError, match="AuditResult, a SimulatedRun, or the path"):
        audits.attack(wrong)


def test_a_preset_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in PRESETS:
        if not name.startswith(("furl", "hpfl")):
            found = configured(name, {})
            assert found.config == configured(preset_file(name), {}).config
            assert found.source is None
    with pytest.raises(ConfigError, match=r"'quickstrat': is neither a file nor a preset") as wrong:
        audits.audit("quickstrat")
    assert wrong.value.choices == PRESETS
    (tmp_path / "plain").mkdir()  # a folder is not a configuration
    assert configured("plain", {}).config.title == configured(preset_file("plain"), {}).config.title


def test_a_file_of_the_name_of_a_preset_wins_and_a_warning_says_so(
    tiny: dict[str, Any], write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_config(tiny).rename(tmp_path / "quickstart")
    with pytest.warns(UserWarning, match="'quickstart' names a file here and a preset"):
        assert configured("quickstart", {}).config == parse_config(tiny)
    assert configured(Path("quickstart"), {}).config == parse_config(tiny)  # says which


def test_a_missing_path_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.toml"):
        audits.audit(tmp_path / "absent.toml")


@pytest.mark.parametrize("kind", ["dict", "path", "settings"])
def test_overrides_change_any_form_and_not_what_was_given(
    kind: str, tiny: dict[str, Any], write_config: Write
) -> None:
    forms: dict[str, Any] = {
        "dict": tiny,
        "path": write_config(tiny),
        "settings": parse_config(tiny),
    }
    overrides = {"protection.rho": 2, "seed": 9, "algorithm.rounds": 5}
    found = configured(forms[kind], overrides).config
    assert (found.seed, found.algorithm.rounds) == (9, 5)
    assert found.protection["virtual-ratings"].rho == 2
    assert tiny == TINY
    with pytest.raises(ConfigError, match="rnak"):
        configured(forms[kind], {"algorithm.rnak": 2})


def test_a_wrong_dict_is_refused_by_its_key(tiny: dict[str, Any]) -> None:
    tiny["algorithm"]["rounds"] = -1
    with pytest.raises(ConfigError, match=r"algorithm\.rounds = -1"):
        audits.simulate(tiny)


def test_a_simulated_run_is_attacked_as_its_audit_was(
    result: audits.AuditResult, tiny: dict[str, Any]
) -> None:
    run = audits.simulate(tiny)
    assert run.seed == TINY["seed"]
    assert len(run.history) == TINY["algorithm"]["rounds"]
    assert set(run.history[-1]) == {"mae", "rmse"}
    assert not (run.folder / "report.json").exists()
    found = audits.attack(run)
    assert list(found.findings) == result.report["findings"]
    assert found.undecided == ()
    assert found.seed == TINY["seed"]
    assert found.to_frame().equals(result.to_frame())
    assert str(found).startswith("server/direct: From ")
    assert "<table" in found._repr_html_()
    for recording in (run.folder, str(run.folder / "transcript"), result):
        assert list(audits.attack(recording).findings) == list(found.findings)


def test_attacks_and_adversaries_are_chosen_by_name(result: audits.AuditResult) -> None:
    (one,) = audits.attack(result, attacks="lattice", adversaries="server").findings
    assert one in result.report["findings"]
    two = audits.attack(result, attacks=["lattice"], adversaries=["server+denoisers", "denoiser:0"])
    assert [each["adversary"] for each in two.findings] == ["server+denoisers", "denoiser:0"]
    own = Adversary(name="mine", corrupt=frozenset(("server",)), taps=frozenset(("network",)))
    (mine,) = audits.attack(result, attacks=["direct"], adversaries=[own]).findings
    assert mine["adversary"] == "mine"
    unknown: tuple[dict[str, Any], ...] = (
        {"attacks": "oracle"},
        {"adversaries": "mallory"},
        {"adversaries": "client:99"},
    )
    for asked in unknown:
        with pytest.raises(ConfigError, match=next(iter(asked.values()))):
            audits.attack(result, **asked)


def test_a_name_of_the_configuration_means_that_adversary(tiny: dict[str, Any]) -> None:
    tiny["adversaries"] = [{"name": "server", "corrupt": ["server", "denoisers"]}]
    tiny["gates"], tiny["attacks"] = [], ["collusion-linkage"]
    run = audits.simulate(tiny)
    (found,) = audits.attack(run, adversaries="server").findings
    assert found["status"] == "measured"  # the server alone links nothing
    (alone,) = audits.attack(run, adversaries=[api.parties("server")]).findings
    assert alone["status"] == "not-applicable"


def test_an_attack_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError):
        audits.attack(tmp_path)


def test_a_recording_of_another_kind_registers_itself(result: audits.AuditResult) -> None:
    """With one dispatch, which ``attack`` asks and nothing else."""

    class Elsewhere:
        pass

    @given.opened.register
    def held(_: Elsewhere) -> Any:
        return given.opened(result)

    elsewhere: Any = Elsewhere()
    assert list(audits.attack(elsewhere).findings) == result.report["findings"]


def test_resuming_needs_a_folder_and_goes_on_in_it(tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="resume = True: needs the run folder"):
        audits.audit(tiny, resume=True)
    run = audits.simulate(tiny, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run"):
        audits.audit(tiny, out=run.folder)
    found = audits.audit(tiny, out=str(run.folder), resume=True)
    assert found.folder == run.folder
    assert (run.folder / "report.json").exists()


def test_a_named_folder_stays(tiny: dict[str, Any], tmp_path: Path) -> None:
    audits.simulate(tiny, out=tmp_path / "run")
    gc.collect()
    assert (tmp_path / "run" / "checkpoint.npz").exists()


def test_a_policy_is_asked_for_by_name(result: audits.AuditResult, tiny: dict[str, Any]) -> None:
    known = audits.audit(tiny, baseline=result, fail_on="high")
    told = known.report["policy"]
    assert told["fail_on"] == ["high"]
    assert "known" in {each["state"] for each in told["objections"]}
    assert audits.audit(tiny, baseline=result.folder).report["policy"]["fail_on"] == []
    with pytest.raises(ConfigError, match=r"fail_on = 'hihg': unknown level"):
        audits.audit(tiny, fail_on=["hihg"])


def test_nothing_is_said_but_to_whoever_is_told(
    tiny: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    audits.simulate(tiny, tell=lines.append)
    assert lines[0].startswith("synthetic: 40 clients, 60 items")
    audits.simulate(tiny)
    assert capfd.readouterr() == ("", "")


def test_a_report_says_how_python_made_it(result: audits.AuditResult) -> None:
    assert result.report["manifest"]["command"] == "python -c 'import audits; audits.audit(...)'"
    assert report_schema()


def test_a_plan_is_that_of_the_command(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: Calibration = calibrate(
        MaskingConfig.for_cohort(8, bits=32, length=16, layout_hash=bytes(32))
    )
    monkeypatch.setattr(costs, "calibrate", lambda config: measured)
    _, out, _ = command("plan", "--clients", "40", "--dim", "500", "--json")
    wanted = json.loads(out)["plans"]
    settings: Any = {"clients": 40, "dim": 500}
    deployment = Deployment(**settings)
    for found in (audits.plan(**settings), audits.plan(settings), audits.plan(deployment)):
        assert json.loads(json.dumps([each.as_json() for each in found])) == wanted


def test_a_plan_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match=r"clints = 3: unknown key \(choices: clients, "):
        audits.plan(clints=3)
    with pytest.raises(ConfigError, match="--clients = 2"):
        audits.plan(clients=2)
    with pytest.raises(TypeError, match="a plan is for a Deployment, a dict, or settings by name"):
        audits.plan(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="settings in addition"):
        audits.plan({"clients": 40}, dim=500)


def test_importing_audits_imports_nothing_that_takes_long() -> None:
    program = "import audits, sys; print(*{each.split('.')[0] for each in sys.modules})"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    held = set(ended.stdout.split())
    assert not held & {"numpy", "pandas", "numba", "torch", "jinja2", "secure_fedrec", "attacks"}
    assert isinstance(AuditConfig(), AuditConfig)
    with pytest.raises(AttributeError, match="has no attribute 'adit'"):
        _ = audits.adit
