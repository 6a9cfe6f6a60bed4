"""Bad files, folders and words through the real command: one line, and nothing touched."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.files import file_digest
from secure_fedrec.data import registry
from tests.audits.folders import snapshot

Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"title = ", "is not valid TOML"),
        (b"[data\nname = 1", "is not valid TOML"),
        (b"seed = 1\nseed = 2\n", "is not valid TOML"),
        (b"title = '\xff'", "is not valid TOML"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
@pytest.mark.parametrize("name", ["audit", "train", "check"])
def test_a_file_that_is_no_configuration_is_named(
    refusal: Refusal, tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    config = tmp_path / "broken.toml"
    if content is not None:
        config.write_bytes(content)
    line = refusal(name, config)
    assert line.startswith(f"{config}: {problem}")


@pytest.mark.parametrize("name", ["audit", "train", "check"])
def test_a_folder_is_no_configuration(refusal: Refusal, tmp_path: Path, name: str) -> None:
    line = refusal(name, tmp_path)
    assert line.startswith(f"{tmp_path}: is a folder, not a file; secure-fedrec attack judges")


def test_a_line_end_in_a_key_makes_no_second_line(refusal: Refusal, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('"two\\nlines" = 1\n')
    assert refusal("audit", config, "--out", tmp_path / "run").startswith("two lines = 1: unknown")


def test_too_little_memory_is_one_line(
    refusal: Refusal, write_config: Write, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attacking: 99,999,999,999 clients ended within an internal error."""

    def allocate(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr("audits.run.build.load_dataset", allocate)
    assert refusal("check", write_config(small)) == (
        "there is too little memory for this (Unable to allocate 745. GiB)"
    )


def test_a_missing_data_set_says_where_it_was_sought_and_how_to_get_it(
    refusal: Refusal, write_config: Write, small: dict[str, Any], tmp_path: Path, out: Path
) -> None:
    small["data"] = {"name": "ml-100k"}
    folder = tmp_path / "nowhere"
    words = ("audit", write_config(small), "--out", out, "--data-dir", folder)
    line = refusal(*words)
    assert line.startswith(f"{folder}: holds neither a folder 'ml-100k'")
    assert "secure-fedrec data get ml-100k" in line
    assert not out.exists()


def test_a_file_that_is_not_the_published_one_is_refused(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    ml_100k: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    altered = vars(registry)["DATASETS"]
    monkeypatch.undo()
    assert vars(registry)["DATASETS"] is not altered
    small["data"] = {"name": "ml-100k"}
    words = ("audit", write_config(small), "--out", out, "--data-dir", ml_100k.parent)
    line = refusal(*words)
    assert line.startswith(f"{ml_100k / 'u.data'}: is damaged or truncated: SHA-256 expected ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("rating", "problem"),
    [
        ("6", "line 3: rating 6 is off its scale (1 to 5 in steps of 1)"),
        ("3.5", "line 3: rating 3.5 is off its scale"),
        ("nan", "line 3: rating 'nan' is not a number"),
        ("-1", "line 3: rating '-1' is not a number"),
        ("", "line 3: rating '' is not a number"),
    ],
)
def test_a_rating_that_is_none_is_named_with_its_line(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    ml_100k: Path,
    out: Path,
    rating: str,
    problem: str,
) -> None:
    path = ml_100k / "u.data"
    lines = path.read_text().splitlines()
    user, item, _, time = lines[2].split("\t")
    lines[2] = "\t".join((user, item, rating, time))
    path.write_text("\n".join(lines) + "\n")
    small["data"] = {"name": "ml-100k"}
    words = ("audit", write_config(small), "--out", out, "--data-dir", ml_100k.parent)
    line = refusal(*words)
    assert line.startswith(f"{path}, {problem}")
    assert not out.exists()


def test_a_file_cut_in_mid_line_is_named(
    refusal: Refusal, write_config: Write, small: dict[str, Any], ml_100k: Path, out: Path
) -> None:
    path = ml_100k / "u.data"
    path.write_bytes(path.read_bytes()[:-5])
    small["data"] = {"name": "ml-100k"}
    words = ("audit", write_config(small), "--out", out, "--data-dir", ml_100k)
    line = refusal(*words)
    assert line.startswith(f"{path}, line 360: the last line has no end: the file is cut short")


@pytest.mark.parametrize("name", ["audit", "train"])
def test_a_folder_in_use_is_not_written_to(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    recorded: Path,
    tmp_path: Path,
    name: str,
) -> None:
    config = write_config(small)
    before = snapshot(recorded)
    line = refusal(name, config, "--out", recorded)
    assert line.startswith(f"--out = '{recorded}': already holds a run; continue it with --resume")
    assert snapshot(recorded) == before

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    line = refusal(name, config, "--out", foreign)
    assert line.startswith(f"--out = '{foreign}': is not empty")
    assert snapshot(foreign) == {"thesis.tex": b"years of work"}

    assert "is not a folder" in refusal(name, config, "--out", config)
    assert "cannot be made" in refusal(name, config, "--out", config / "below")


@pytest.mark.parametrize("name", ["audit", "train"])
def test_resuming_needs_a_run(
    refusal: Refusal, write_config: Write, small: dict[str, Any], out: Path, name: str
) -> None:
    config = write_config(small)
    line = refusal(name, config, "--out", out, "--resume")
    assert line == f"--out = '{out}': does not hold a run to resume"
    assert not out.exists()
    if name == "train":
        assert refusal(name, config, "--resume").startswith("--resume = True: needs the run folder")


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize(
    "setting", ["algorithm.learning_rate=0.7", "seed=4", "protection.rho=2", "data.fold=1"]
)
def test_a_run_is_not_resumed_with_another_configuration(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    recorded: Path,
    out: Path,
    setting: str,
    checkpoint: bool,
) -> None:
    shutil.copytree(recorded, out)
    if not checkpoint:  # as after a kill before the first one
        (out / "checkpoint.npz").unlink()
    before = snapshot(out)
    words = ("audit", write_config(small), "--out", out, "--resume", "--set", setting)
    line = refusal(*words)
    assert "belongs to a run with another configuration" in line
    assert snapshot(out) == before


def test_a_truncated_checkpoint_is_refused_and_nothing_is_lost(
    refusal: Refusal, write_config: Write, small: dict[str, Any], recorded: Path, out: Path
) -> None:
    shutil.copytree(recorded, out)
    checkpoint = out / "checkpoint.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[: checkpoint.stat().st_size // 2])
    before = snapshot(out)
    line = refusal("audit", write_config(small), "--out", out, "--resume")
    assert line == f"{checkpoint} is damaged"
    assert snapshot(out) == before


def test_a_damaged_configuration_of_a_run_is_refused(
    refusal: Refusal, write_config: Write, small: dict[str, Any], recorded: Path, out: Path
) -> None:
    shutil.copytree(recorded, out)
    (out / "checkpoint.npz").unlink()
    (out / "config.json").write_text('{"seed": ')
    line = refusal("audit", write_config(small), "--out", out, "--resume")
    assert line == f"{out / 'config.json'} is damaged"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("init", "fedavg"), "preset = 'fedavg': unknown preset (choices: ease-ml100k, "),
        (("init",), "preset: is missing (choices: "),
        (
            ("explain", "oracle"),
            "name = 'oracle': is not an attack, figure, layer or key (choices: direct, ",
        ),
        (
            ("explain", "protectoin.rho"),
            "name = 'protectoin.rho': is not an attack, figure, layer or key "
            "(choices: protection.rho)",
        ),
        (("data", "get", "netflix"), "data.name = 'netflix': unknown data set (choices: ml-100k"),
        (("data", "get"), "NAME: is missing (choices: ml-100k"),
        (("data", "get", "synthetic"), "data.name = 'synthetic': has nothing to download"),
        (("data", "describe", "netflix"), "data.name = 'netflix': unknown data set (choices: ml"),
        (("data", "describe"), "NAME: is missing (choices: ml-100k"),
        (("check", "--rounds", "0"), "--rounds = 0: must be at least 1"),
        (("attack", "nowhere"), "nowhere holds no readable transcript.json"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(
    refusal: Refusal, words: tuple[str, ...], line: str
) -> None:
    assert refusal(*words).startswith(line)


def test_init_overwrites_nothing(refusal: Refusal, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    target.write_text("seed = 1\n")
    assert "already exists" in refusal("init", "plain", "--out", target)
    assert target.read_text() == "seed = 1\n"
    assert "cannot be written" in refusal("init", "plain", "--out", tmp_path / "no" / "mine.toml")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("frobnicate",),
        ("train",),
        ("attack",),
        ("audit", "--set", "protection.rho"),
        ("audit", "--set", "=1"),
        ("audit", "--colour"),
        ("check", "--rounds", "ten"),
        ("data",),
        ("data", "burn"),
    ],
)
def test_usage_errors_exit_with_2(
    command: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("usage: secure-fedrec")


@pytest.mark.parametrize("value", [float("nan"), 7.0])
def test_a_truth_outside_its_scale_is_refused(
    refusal: Refusal, recorded: Path, out: Path, value: float
) -> None:
    shutil.copytree(recorded, out)
    with np.load(out / "truth" / "ratings.npz") as content:
        columns = dict(content)
    columns["ratings"][0] = value
    np.savez(out / "truth" / "ratings.npz", allow_pickle=False, **columns)
    seal = json.loads((out / "recording.json").read_text())  # as if it had been recorded so
    seal["files"]["truth/ratings.npz"] = file_digest(out / "truth" / "ratings.npz")
    (out / "recording.json").write_text(json.dumps(seal))
    assert f"rating {value:g} is off its scale" in refusal("attack", out / "transcript", "--quiet")


@pytest.mark.parametrize("name", ["audit", "train"])
def test_a_training_that_leaves_the_ring_names_the_settings(
    command: Callable[..., tuple[int, str, str]],
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    name: str,
) -> None:
    small["algorithm"]["learning_rate"] = 1e6
    code, _, err = command(name, write_config(small), "--out", out, "--quiet")
    announcement, line = err.splitlines()
    assert code == 2
    assert announcement.startswith("synthetic: 40 clients")
    assert re.match(r"secure-fedrec: round [1-9]\d*: a value of ", line)
    assert "ring.clip = 4096" in line
    assert "algorithm.learning_rate" in line


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["protection.rho=-1"], "protection.rho = -1"),
        (["algorithm.learning_rate=1e6"], "algorithm.learning_rate"),
    ],
)
def test_a_shell_sees_the_same(
    write_config: Write, small: dict[str, Any], out: Path, settings: list[str], problem: str
) -> None:
    words = [sys.executable, "-m", "audits.cli", "audit", str(write_config(small)), "--quiet"]
    words += ["--out", str(out), *(word for each in settings for word in ("--set", each))]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert problem in ended.stderr.splitlines()[-1]
