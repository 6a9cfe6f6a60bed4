"""The other commands: attack, check, data, init, explain."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks import SUITE
from audits.config.audit import parse_config
from audits.presets import PRESETS
from audits.run.truth import read_secrets, write_secrets
from audits.system import Secrets
from secure_fedrec.data import DATASETS, EXAMPLE_SETS
from secure_fedrec.properties import lossless_words
from secure_fedrec.protection import STACKS

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]

FOLDER = os.environ.get("SECURE_FEDREC_DATA")  # before a fixture hides it


def test_a_warning_is_one_line() -> None:
    """Of a cache that cannot be written, say: its user is told that, and no place in the code."""
    program = """
import sys, warnings
from audits import cli
sys.argv = ["secure-fedrec", "explain"]
cli.main()
warnings.warn("a folder\\n cannot be written", RuntimeWarning)
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stderr == "secure-fedrec: a folder cannot be written\n"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["aud"], ["audit"]),
        (["init", "quicks"], ["quickstart"]),
        (["attack", "--attack", "sum-d"], ["sum-decoding"]),
        (["reproduce", "fu"], ["furl"]),
        (["compare", "--tol"], ["--tolerance"]),
    ],
)
def test_a_shell_completes_commands_options_and_names(
    command: Command, tmp_path: Path, typed: list[str], completed: list[str]
) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(command("completion", "bash")[1])
    program = (
        'source "$0"; COMP_WORDS=(secure-fedrec "$@"); COMP_CWORD=$#; '
        '_shtab_secure_fedrec; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ended = subprocess.run(  # noqa: S603
        ["/bin/bash", "-c", program, script, *typed], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == completed


def test_a_warning_does_not_stand_behind_a_progress_bar() -> None:
    program = """
import sys, warnings
from tqdm import tqdm
from audits import cli
sys.argv = ["secure-fedrec", "explain"]
cli.main()
for step in tqdm(range(3), "training", mininterval=0):
    warnings.warn(f"step {step}", RuntimeWarning)
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, check=True
    )
    shown = [line.split("\r")[-1] for line in ended.stderr.decode().split("\n")]
    assert [line for line in shown if "secure" in line] == [
        f"secure-fedrec: step {step}" for step in range(3)
    ]
    assert ended.stderr.count(b"training:") > 3


def findings_of(report: Path) -> list[dict[str, Any]]:
    """The findings of an audit."""
    findings: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["findings"]
    return findings


def test_attacking_a_recorded_run_finds_what_its_audit_found(
    command: Command, recorded: Path
) -> None:
    code, out, err = command("attack", recorded / "transcript", "--json", "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(out) == findings_of(recorded / "report.json")


def test_attacks_and_adversaries_can_be_chosen(command: Command, recorded: Path) -> None:
    words = ("attack", recorded / "transcript", "--quiet", "--json")
    _, out, _ = command(*words, "--attack", "lattice", "--attack", "direct")
    pairs = [(finding["adversary"], finding["attack"]) for finding in json.loads(out)]
    assert pairs == [
        ("server", "lattice"),
        ("server", "direct"),
        ("server+denoisers", "lattice"),
        ("server+denoisers", "direct"),
    ]
    _, out, _ = command(*words, "--adversary", "server+denoisers", "--attack", "collusion-linkage")
    (finding,) = json.loads(out)
    assert finding == next(
        known
        for known in findings_of(recorded / "report.json")
        if (known["adversary"], known["attack"]) == ("server+denoisers", "collusion-linkage")
    )
    _, out, _ = command("attack", recorded / "transcript", "--quiet", "--attack", "lattice")
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "server/lattice",
        "server+denoisers/lattice",
    ]


def test_an_attack_that_does_not_apply_is_inconclusive(command: Command, recorded: Path) -> None:
    words = ("attack", recorded / "transcript", "--quiet", "--attack", "collusion-linkage")
    code, out, _ = command(*words, "--adversary", "server")
    assert code == 3
    assert "does not apply" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--attack", "oracle"), "--attack = 'oracle': unknown attack (choices: direct, "),
        (("--adversary", "mallory"), "adversaries.corrupt = 'mallory': unknown party (choices: "),
        (("--adversary", ""), "adversaries.name = '': must not be empty"),
    ],
)
def test_unknown_attacks_and_parties_are_refused(
    refusal: Refusal, recorded: Path, words: tuple[str, ...], problem: str
) -> None:
    assert refusal("attack", recorded / "transcript", *words).startswith(problem)


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        ("config.json", "{} lacks config.json: claims cannot be scored without it"),
        ("truth/ratings.npz", "{}/truth/ratings.npz is missing from the recording"),
    ],
)
def test_claims_are_not_scored_without_the_truth(
    refusal: Refusal, recorded: Path, tmp_path: Path, lost: str, problem: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    (run / lost).unlink()
    line = refusal("attack", run / "transcript")
    assert line.startswith(problem.format(run))


def test_every_secret_that_a_system_writes_is_read_back(tmp_path: Path) -> None:
    written: Secrets = {"ratings": {"items": np.ones(3)}, "secrets": {"amounts.mine": np.ones(2)}}
    (tmp_path / "truth").mkdir()
    write_secrets(written, tmp_path / "truth")
    found = read_secrets(tmp_path)
    assert {name: set(columns) for name, columns in found.items()} == {
        name: set(columns) for name, columns in written.items()
    }


@pytest.mark.parametrize("damage", ["manifest", "version", "block"])
def test_a_damaged_transcript_is_refused(
    refusal: Refusal, recorded: Path, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    manifest = run / "transcript" / "transcript.json"
    if damage == "manifest":
        manifest.write_text(manifest.read_text()[:-20])
        expected = "holds no readable transcript.json"
    elif damage == "version":
        content = json.loads(manifest.read_text()) | {"schema_version": "99"}
        manifest.write_text(json.dumps(content))
        expected = "has transcript version '99', need '1'"
    else:
        block = next((run / "transcript" / "rounds" / "000001").glob("upload-*.npz"))
        block.write_bytes(block.read_bytes()[:-100])
        expected = "of round 1 is damaged"
    assert expected in refusal("attack", run / "transcript", "--quiet")


def test_check_tells_lossless_from_lossy(
    command: Command, write_config: Write, small: dict[str, Any]
) -> None:
    words = ("--rounds", "4")
    code, out, _ = command("check", write_config(small), *words)
    first, second = out.splitlines()
    assert (code, first) == (0, "lossless: 4 rounds equal the plain twin, bit for bit")
    assert second.startswith(
        "  160 invited, 160 taken, 40 exempt; 1,696 rows, 0 of them not report"
    )
    del small["protection"][1]  # FedRec without denoisers
    code, out, _ = command("check", write_config(small), *words)
    assert code == 1
    assert out.startswith("not lossless: ")


def test_dropped_reports_are_told_wherever_losslessness_is(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    words = "lossless relative to what it reports"
    small["protection"][0] = {"layer": "randomized-response"}
    small |= {"attacks": ["direct"], "gates": [{"metric": "lossless", "equals": True}]}
    path = write_config(small)
    code, out, _ = command("check", path, "--rounds", "2")
    assert (code, out.startswith(f"{words}: 2 rounds")) == (0, True)
    code, out, err = command("audit", path, "--out", tmp_path / "out", "--quiet", "--json")
    assert code == 3, err  # what is learned from reports no gate judges
    report = json.loads(out)
    assert report["lossless"]["statement"].startswith(f"{words.capitalize()}: after each of 6 ")
    assert report["gates"][0]["reason"] == f"{words}: every table equals the plain twin's"
    code, out, _ = command("check", path, "--rounds", "2", "--set", "cohort.clients_per_round=25")
    assert (code, out.startswith(f"{words} and those who take part: 2 rounds")) == (0, True)


@pytest.mark.parametrize("layers", STACKS, ids=lambda layers: "+".join(layers) or "none")
def test_check_agrees_with_the_claim_of_every_stack(
    command: Command, write_config: Write, small: dict[str, Any], layers: tuple[str, ...]
) -> None:
    due: dict[str, dict[str, Any]] = {  # what has no default, or none that fits these layers
        "skellam": {"noise_multiplier": 0.01, "least_count": 40},
        "masking": {"min_survivors": 20},
        "virtual-ratings": {"sticky": "shared-upload" in layers},
    }
    small["protection"] = [{"layer": layer, **due.get(layer, {})} for layer in layers]
    code, out, _ = command("check", write_config(small), "--rounds", "3", "--json")
    outcome = json.loads(out)
    claim = STACKS[layers]
    words = lossless_words(reports_dropped=claim.drops_reports, sat_out=False)
    assert outcome["verdict"] == (words if claim.lossless else "not lossless: the stack")
    assert outcome["lossless"] == claim.lossless
    assert code == (0 if outcome["lossless"] else 1)
    assert (outcome["first_difference"] is None) == outcome["lossless"]
    assert (outcome["largest_difference"] == 0) == outcome["lossless"]


def test_data_list_knows_what_is_there(command: Command, ml_100k: Path) -> None:
    code, out, _ = command("data", "list", "--json", "--data-dir", ml_100k.parent)
    entries = {entry["name"]: entry for entry in json.loads(out)}
    assert code == 0
    assert list(entries) == [*DATASETS, *EXAMPLE_SETS]
    assert entries["ml-100k"]["status"] == "present"
    assert entries["ml-1m"]["status"] == "absent; secure-fedrec data get ml-1m"
    assert entries["synthetic"]["status"] == "generated"
    assert entries["20newsgroups"]["status"] == "absent"  # nothing to download
    code, out, _ = command("data", "list", "--data-dir", ml_100k.parent)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*DATASETS, *EXAMPLE_SETS]


def test_data_describe_states_the_facts(command: Command, ml_100k: Path) -> None:
    words = ("data", "describe", "ml-100k", "--data-dir", ml_100k.parent)
    code, out, _ = command(*words, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts | {"fingerprint": "", "licence": "", "items_without_ratings": 0} == {
        "name": "ml-100k",
        "clients": 30,
        "items": 40,
        "ratings": 360,
        "density": 0.3,
        "ratings_per_client_median": 12.0,
        "items_without_ratings": 0,
        "scale": "1 to 5 in steps of 1",
        "demographics": ["age_band", "gender", "occupation"],
        "timestamps": True,
        "fingerprint": "",
        "licence": "",
    }
    code, out, _ = command(*words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(facts)
    assert command("data", "describe", "synthetic")[0] == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20newsgroups", {"clients": 749, "classes": 20, "posts": 7849}),
        ("ml-100k-zip", {"clients": 10, "users": 925, "items": 1679, "attributes": 19}),
    ],
)
def test_data_describe_knows_texts_and_organisations(
    command: Command, name: str, expected: dict[str, int]
) -> None:
    if FOLDER is None:
        pytest.skip("SECURE_FEDREC_DATA is not set")
    code, out, err = command("data", "describe", name, "--data-dir", FOLDER, "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert expected.items() <= facts.items()
    assert facts["licence"]


def test_data_describe_names_what_there_is(refusal: Callable[..., str]) -> None:
    line = refusal("data", "describe", "netflix")
    assert line.startswith("data.name = 'netflix': unknown data set (choices: ml-100k, ml-1m")
    assert line.endswith("ml-100k-zip, assist2009-sample)")


def test_data_get_leaves_a_sound_copy_alone(command: Command, ml_100k: Path) -> None:
    words = ("data", "get", "ml-100k", "--data-dir", ml_100k.parent, "--quiet")
    assert command(*words) == (0, f"{ml_100k}\n", "")
    assert json.loads(command(*words, "--json")[1]) == {"folder": str(ml_100k)}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_written_and_read_back(
    command: Command, tmp_path: Path, preset: str
) -> None:
    code, out, err = command("init", preset)
    assert (code, err) == (0, "")
    config = parse_config(tomllib.loads(out))
    assert config.gates
    target = tmp_path / "mine.toml"
    assert command("init", preset, "--out", target) == (0, "", "")
    assert target.read_text(encoding="utf-8") == out


@pytest.mark.parametrize("name", SUITE)
def test_every_attack_explains_itself(command: Command, name: str) -> None:
    code, out, _ = command("explain", name)
    assert code == 0
    assert out.startswith(f"{name}\n")
    code, as_json, _ = command("explain", name, "--json")
    card = json.loads(as_json)
    assert code == 0
    assert card.pop("attack") == name
    assert list(card) == ["game", "adversary", "needs", "statistic", "reference", "limits"]
    assert all(text in out for text in card.values())


def test_explain_lists_the_suite(command: Command) -> None:
    code, out, _ = command("explain")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(SUITE)
    games = json.loads(command("explain", "--json")[1])
    assert games == {name: attack.card.game for name, attack in SUITE.items()}


def test_training_without_a_folder_keeps_nothing(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    path = write_config(small)
    code, out, _ = command("train", path, "--quiet")
    rounds = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["round"] for line in rounds] == [1, 2, 3, 4, 5, 6]
    for line in rounds:
        assert line["participants"] == 40
        assert 0 < line["mae"] <= line["rmse"]
        # A public table goes to each client, as much comes in as was sent.
        assert line["server_bytes_sent"] == 40 * 60 * 4 * 8
        assert line["server_messages_sent"] == 40
        assert line["client_bytes_received"] >= line["server_bytes_sent"]
        sent = line["client_bytes_sent"] + line["server_bytes_sent"]
        assert sent == line["client_bytes_received"] + line["server_bytes_received"]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
