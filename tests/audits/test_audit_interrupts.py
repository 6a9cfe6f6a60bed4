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

from audits import cli, command_line

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENTRY = "import sys; from audits.cli import main; sys.exit(main())"  # what pip's script does


def begin(*words: str | Path, options: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *options, "-c", ENTRY, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background is born deaf to interrupts, and so are its children.
        preexec_fn=hear_all,  # noqa: PLW1509
    )


def hear_all() -> None:
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_DFL)


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
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_compiler_is_left_first(ending: int) -> None:
    """Found by interrupting: what it had freed already it freed again (-6, of forty once)."""
    program = f"""
import sys
from numba.core import event
from audits import cli, command_line
from secure_fedrec.core.compiled import compiled_loop
import signal

class Ended(event.Listener):
    def on_start(self, _):
        signal.raise_signal({int(ending)})
    def on_end(self, _):
        print("compiled:", len(loop.made.overloads))

def run(_):
    event.register("numba:compile", Ended())
    loop(3)
    print("went on")

@compiled_loop
def loop(number):
    return 2 * number

sys.argv = ["secure-fedrec", "explain"]
command_line.run = run
sys.exit(cli.main())
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hear_all,
    )
    assert (ended.returncode, ended.stdout) == (128 + ending, "compiled: 1\n")
    assert ended.stderr == "secure-fedrec: interrupted\n"


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


@pytest.fixture
def as_a_process(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs ``main`` as the script does, with a command of the test's own."""

    def run(body: Callable[[], int], given: Any = signal.default_int_handler) -> int:
        monkeypatch.setattr(sys, "argv", ["secure-fedrec", "explain"])
        monkeypatch.setattr(command_line, "run", lambda _: body())
        handlers = {ending: signal.getsignal(ending) for ending in ENDINGS}
        hook = sys.unraisablehook
        signal.signal(signal.SIGINT, given)
        try:
            return cli.main()
        finally:
            for ending, handler in handlers.items():
                signal.signal(ending, handler)
            sys.unraisablehook = hook

    return run


def test_an_interrupt_that_a_library_turns_into_another_error(
    as_a_process: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            raise ImportError("half a module") from None
        return 0

    assert as_a_process(body) == 130
    assert capsys.readouterr().err == "secure-fedrec: interrupted\n"


BODIES = {
    "two that are pending": """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    sum(range(9))
""",
    "a second one while files are taken away": """
    os.mkdir(folder + "/more")
    os.rmdir = rmdir
    signal.raise_signal(signal.SIGINT)
""",
    "where nothing can be raised": """
    last = Last()
    del last
    time.sleep(60)
""",
    "where nothing can be raised, at the end": """
    last = Last()
    del last
""",
    "made another error": """
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        raise OSError(2, "half read") from None
""",
    "made an exit": """
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        raise SystemExit(5) from None
""",
    "swallowed": """
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
""",
    "swallowed, and another one": """
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
    signal.raise_signal(signal.SIGINT)
    print("went on")
""",
    "while the compiler is left, and more is compiled": """
    event.register("numba:compile", Ended())
    try:
        loop(3)
    finally:
        print(loop(1.5))
""",
}


@pytest.mark.parametrize("body", BODIES)
def test_interrupts_come_in_odd_moments_and_more_than_once(body: str, tmp_path: Path) -> None:
    """Found by attacking: each left scratch files, a traceback, another exit code or no word."""
    program = f"""
import os, signal, sys, tempfile, threading, time
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock as lock
from audits import cli, command_line
from secure_fedrec.core.compiled import compiled_loop

genuine = os.rmdir

def rmdir(*words, **named):
    os.rmdir = genuine
    signal.raise_signal(signal.SIGINT)
    genuine(*words, **named)

class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Ended(event.Listener):
    def on_start(self, _):
        event.unregister("numba:compile", self)
        lock._lock = Released(lock._lock)
        signal.raise_signal(signal.SIGINT)
    def on_end(self, _):
        pass

class Released:
    def __init__(self, held):
        self.held, self.acquire, self._is_owned = held, held.acquire, held._is_owned
    def release(self):
        self.held.release()
        if not self._is_owned():
            lock._lock = self.held
            signal.raise_signal(signal.SIGINT)

@compiled_loop
def loop(number):
    return 2 * number

def run(_):
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as folder:
        {BODIES[body].strip().replace(chr(10), chr(10) + " " * 4)}

sys.argv = ["secure-fedrec", "explain"]
command_line.run = lambda parsed: run(parsed) or 0
sys.exit(cli.main())
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=50,
        preexec_fn=hear_all,
    )
    assert (ended.returncode, ended.stderr) == (130, "secure-fedrec: interrupted\n")
    assert ended.stdout == ("3.0\n" if "compiler" in body else "")
    assert not list(tmp_path.glob("secure-fedrec-[!0-9]*"))


def test_an_interrupt_that_passes_through_a_string_of_code_ends_a_module_with_its_code(
    tmp_path: Path,
) -> None:
    """Found by attacking: CPython remembers it, and ended ``python -m`` by SIGINT after SIGTERM."""
    (tmp_path / "interrupted.py").write_text("""
import signal, sys
from audits import cli, command_line
command_line.run = lambda _: exec("signal.raise_signal(signal.SIGTERM); sum(range(9))")
sys.argv = ["secure-fedrec", "explain"]
sys.exit(cli.main())
""")
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{Path(cli.__file__).parents[1]}:{tmp_path}"},
    )
    assert (ended.returncode, ended.stderr) == (143, "secure-fedrec: interrupted\n")


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
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines() == ["True False", "True True"]


def test_a_process_that_ignores_interrupts_goes_on(
    as_a_process: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the background of a shell script."""

    def body() -> int:
        signal.raise_signal(signal.SIGINT)
        return 3

    assert as_a_process(body, signal.SIG_IGN) == 3
    assert capsys.readouterr().err == ""


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
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, "explain", "no such thing", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hear_all,
    )
    assert ended.returncode == 2
    assert "interrupted" not in ended.stderr
