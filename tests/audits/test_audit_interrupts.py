"""Ctrl-C, or an end from outside, at any moment: one line, an exit code, a run that goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audits.interrupted import ENDINGS, ended, hear_all

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
ENTRY = "import sys; from audits.cli import main; sys.exit(main())"  # what pip's script does


def begin(*words: str | Path, options: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *options, "-c", ENTRY, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_all,  # noqa: PLW1509
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_forecast_that_is_ended_leaves_nothing(
    ending: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--dry-run`` runs a few rounds in a folder among the temporary files, and takes it away."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ("audit", "--dry-run", "--set", "data.clients=2000", "--quiet")
    with begin(*words, "--set", "data.items=2000") as process:
        while process.poll() is None and not list(tmp_path.glob("*/transcript")):
            time.sleep(0.01)
        process.send_signal(ending)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + ending, "")
    assert stderr.splitlines()[-1] == "secure-fedrec: interrupted"
    compiled = f"secure-fedrec-{os.getuid()}"
    assert [each.name for each in tmp_path.iterdir() if each.name != compiled] == []


def test_who_is_deaf_to_an_ending_stays_so() -> None:
    """As under ``nohup``."""
    program = """
import signal, sys
from audits import cli, command_line
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sys.argv = ["secure-fedrec", "explain"]
command_line.run = lambda _: signal.raise_signal(signal.SIGHUP) or 7
sys.exit(cli.main())
"""
    process = ended("-c", program)
    assert (process.returncode, process.stderr) == (7, "")


@pytest.mark.parametrize("module", ["argparse", "numpy._core", "scipy", "numba"])
def test_while_modules_are_imported(module: str) -> None:
    """The interpreter says what it has imported; the interrupt comes in the middle of the rest."""
    with begin("audit", "--out", "/nowhere", options=("-X", "importtime")) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("import time:") and line.rsplit("|", 1)[-1].strip() == module:
                break
        else:
            pytest.fail(f"{module} was not imported")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    said = [line for line in stderr.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, stdout, said) == (130, "", ["secure-fedrec: interrupted"])


@pytest.mark.parametrize("ending", ENDINGS)
def test_while_rounds_are_trained(
    ending: int, write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    small["algorithm"]["rounds"] = 60
    config, quiet, out = write_config(small), tmp_path / "quiet", tmp_path / "out"
    code, expected, _ = command("train", config, "--out", quiet, "--quiet")
    assert code == 0
    printed: list[str] = []
    for resumed in ((), ("--resume",)):
        with begin("train", config, "--out", out, "--quiet", *resumed) as process:
            assert process.stdout is not None
            printed += [process.stdout.readline() for _ in range(9)]
            process.send_signal(ending)
            rest, err = process.communicate(timeout=60)
        printed += rest.splitlines(keepends=True)
        complaint = [line for line in err.splitlines() if "projected" not in line]
        assert process.returncode == 128 + ending
        assert complaint == ["secure-fedrec: interrupted; continue with --resume"]
    code, rest, _ = command("train", config, "--out", out, "--quiet", "--resume")
    assert code == 0
    rounds = {json.loads(line)["round"]: line for line in [*printed, *rest.splitlines(True)]}
    assert [rounds[n] for n in sorted(rounds)] == expected.splitlines(keepends=True)
    for path in (path for path in quiet.rglob("*") if path.is_file()):
        assert (out / path.relative_to(quiet)).read_bytes() == path.read_bytes()


class Interrupting:
    """An audit hook that interrupts at one of the writes below a folder."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.at = 0
        self.met = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in ("open", "os.rename", "os.mkdir", "os.remove"):
            return
        if str(arguments[0]).startswith(str(self.folder)):
            self.met += 1
            if self.met == self.at:
                signal.raise_signal(signal.SIGINT)


HOOK = Interrupting()
sys.addaudithook(HOOK)  # for good: it does nothing without a folder


def test_in_the_middle_of_writing(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    small["algorithm"]["rounds"] = 3
    small["run"]["checkpoint_every"] = 1
    config, quiet = write_config(small), tmp_path / "quiet"
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background
    HOOK.folder, HOOK.at, HOOK.met = quiet, 0, 0
    try:
        assert command("train", config, "--out", quiet, "--quiet")[0] == 0
        points = HOOK.met
        assert points > 60
        for point in range(1, points + 1, 7):
            out = tmp_path / f"run{point}"
            HOOK.folder, HOOK.at, HOOK.met = out, point, 0
            code, _, err = command("train", config, "--out", out, "--quiet")
            HOOK.folder = None
            begun = (out / "config.json").exists()
            hint = "; continue with --resume" if begun else ""
            assert (code, err.splitlines()[-1]) == (130, f"secure-fedrec: interrupted{hint}")
            again = ("--resume",) if begun else ()
            assert command("train", config, "--out", out, "--quiet", *again)[0] == 0, point
            for path in (path for path in quiet.rglob("*") if path.is_file()):
                assert (out / path.relative_to(quiet)).read_bytes() == path.read_bytes()
    finally:
        HOOK.folder = None
        signal.signal(signal.SIGINT, handler)


def test_who_calls_the_command_keeps_the_garbage_collector_as_it_is() -> None:
    """A process that is the command's alone looks through nothing that it has imported."""
    program = """
import gc, sys
from audits import cli, command_line
command_line.run = lambda _: print(gc.isenabled(), gc.get_freeze_count() > 1000)
cli.main(["explain"])
sys.argv = ["secure-fedrec", "explain"]
sys.exit(cli.main())
"""
    process = ended("-c", program)
    assert process.stdout.splitlines() == ["True False", "True True"]


def test_the_code_of_an_interrupt_is_documented(command: Command) -> None:
    assert "130 interrupted" in " ".join(command("--help")[1].split())


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_command_that_is_over_ends_with_its_own_exit_code(ending: int) -> None:
    """The interpreter, which takes a third of a second to end, puts signals back as they were."""
    program = f"""
import atexit, os, sys
from audits.cli import main
atexit.register(os.kill, os.getpid(), {int(ending)})  # runs after all that the command registers
sys.exit(main())
"""
    process = ended("-c", program, "explain", "no such thing", "--quiet")
    assert process.returncode == 2
    assert "interrupted" not in process.stderr
