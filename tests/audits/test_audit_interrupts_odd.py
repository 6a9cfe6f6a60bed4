"""Interrupts in odd moments, and several at once: found by attacking, each a test for good."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audits import cli, command_line
from tests.audits.interrupted import ENDINGS, ended


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
    process = ended("-c", program)
    assert (process.returncode, process.stdout) == (128 + ending, "compiled: 1\n")
    assert process.stderr == "secure-fedrec: interrupted\n"


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


def test_a_process_that_ignores_interrupts_goes_on(
    as_a_process: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the background of a shell script."""

    def body() -> int:
        signal.raise_signal(signal.SIGINT)
        return 3

    assert as_a_process(body, signal.SIG_IGN) == 3
    assert capsys.readouterr().err == ""


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
    process = ended(
        "-c",
        program,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (process.returncode, process.stderr) == (130, "secure-fedrec: interrupted\n")
    assert process.stdout == ("3.0\n" if "compiler" in body else "")
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
    process = ended(
        "-m",
        "interrupted",
        env={**os.environ, "PYTHONPATH": f"{Path(cli.__file__).parents[1]}:{tmp_path}"},
    )
    assert (process.returncode, process.stderr) == (143, "secure-fedrec: interrupted\n")
