"""Processes that this package starts end with whoever started them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from secure_fedrec.engines.flower.processes import Running

STARTER = """\
import sys
from pathlib import Path
from secure_fedrec.engines.flower.processes import Running
folder = Path(sys.argv[1])
script = "import subprocess; subprocess.run(['sleep', '99'])"
child = Running("child", [sys.executable, "-c", script], folder / "log", {})
print(child.pid, flush=True)
sys.stdin.read()
"""


def members(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of_group = (place / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state != "Z":
            found.append(int(place.name))
    return found


def wait_for(count: int, group: int) -> None:
    end = time.monotonic() + 30
    while len(members(group)) != count:
        assert time.monotonic() < end, members(group)
        time.sleep(0.02)


def test_a_kill_of_the_starter_ends_all_that_it_started(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        wait_for(3, group)  # the process, its child and the guard
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    wait_for(0, group)


def test_a_process_that_was_told_to_end_leaves_no_guard(tmp_path: Path) -> None:
    for end in (Running.stop, Running.kill):
        running = Running("sleeper", ["sleep", "99"], tmp_path / "log", {})
        wait_for(2, running.pid)
        end(running)
        assert running.ended
        wait_for(0, running.pid)
    ended = Running("ended", ["true"], tmp_path / "log", {})
    while not ended.ended:
        time.sleep(0.02)
    ended.stop()
    wait_for(0, ended.pid)
