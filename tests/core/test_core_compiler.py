"""The compiler of loops: late, timed, and left before an interrupt is heard."""

import os
import subprocess
import sys
from pathlib import Path

LOOPS = """
import signal, threading
from time import process_time
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.compiler import after_compiling, clock_without_compiling

@compiled_loop
def twice(number):
    return 2 * number

@compiled_loop
def four_times(number):
    return twice(twice(number))

def interrupt():
    assert not global_compiler_lock.is_locked()
    raise KeyboardInterrupt

def handle(*_):
    print("later" if after_compiling(interrupt) else "now")

class Interrupted(event.Listener):
    def on_start(self, _):
        signal.raise_signal(signal.SIGINT)
    def on_end(self, _):
        print("compiled:", len(twice.made.overloads) + len(four_times.made.overloads))

signal.signal(signal.SIGINT, handle)
"""


def ran(program: str, cache: Path) -> list[str]:
    """What it prints, with nothing compiled before."""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LOOPS + program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_a_clock_stands_still_while_loops_are_compiled(tmp_path: Path) -> None:
    told, spent = ran(
        """
twice(1.5)  # brings the compiler
with clock_without_compiling() as clock:
    began, all_began = clock(), process_time()
    four_times(3)
    print(clock() - began, process_time() - all_began)
""",
        tmp_path,
    )
    assert 0 <= float(told) < 0.5 * float(spent)


def test_interrupts_are_heard_once_when_the_compiler_is_left(tmp_path: Path) -> None:
    """Found by interrupting: what it had freed already it freed again, which ended the process.

    Of two loops one is compiled for the other, so that two interrupts come, and one is heard.
    """
    told = ran(
        """
signal.raise_signal(signal.SIGINT)
event.register("numba:compile", Interrupted())
for attempt in range(2):
    try:
        print(four_times(3 + attempt / 2))
    except KeyboardInterrupt:
        print("interrupted")
    if not attempt:
        event._registered.clear()
""",
        tmp_path,
    )
    compiled = ["compiled:", "1", "compiled:", "2"]
    assert told == ["now", "later", "later", *compiled, "interrupted", "14.0"]


def test_of_another_thread_the_compiler_is_not_left(tmp_path: Path) -> None:
    """Where another thread has it, the main one is interrupted at once."""
    told = ran(
        """
class Compiling(event.Listener):
    def on_start(self, _):
        begun.set()
        assert interrupted.wait(60)
    def on_end(self, _):
        pass
begun, interrupted = threading.Event(), threading.Event()
event.register("numba:compile", Compiling())
thread = threading.Thread(target=twice, args=(2,))
thread.start()
assert begun.wait(60)
signal.raise_signal(signal.SIGINT)
interrupted.set()
thread.join()
print(twice(2))
""",
        tmp_path,
    )
    assert told == ["now", "4"]
