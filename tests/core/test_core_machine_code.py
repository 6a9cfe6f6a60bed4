"""Machine code of loops: from a cache wherever there is a folder of one's own."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from secure_fedrec.core.machine_code import _own_folder

LOOP = """
from secure_fedrec.core.compiled import compiled_loop

@compiled_loop
def twice(number):
    return 2 * number

@compiled_loop
def four_times(number):
    return twice(twice(number))
"""
RUN = """
import sys
from loop import four_times, twice
assert "numba" not in sys.modules
assert (four_times(3), four_times.__name__) == (12, "four_times")
print(sum(four_times.made.stats.cache_hits.values()), four_times.made.stats.cache_path)
"""


def test_loops_are_compiled_once_where_nothing_but_temporary_files_can_be_written(
    tmp_path: Path,
) -> None:
    """Read-only for anybody, root included: a file lies where a folder would have to be."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "__pycache__").touch()
    (tmp_path / "temporary").mkdir()
    unwritable = {name: str(tmp_path / "loop.py" / name) for name in ("HOME", "XDG_CACHE_HOME")}
    paths = os.pathsep.join((str(tmp_path), *sys.path))
    surroundings = {"PYTHONPATH": paths, "TMPDIR": str(tmp_path / "temporary"), **unwritable}
    told = []
    for _ in range(2):
        ended = subprocess.run(  # noqa: S603
            [sys.executable, "-W", "error", "-c", RUN],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": "", **surroundings},
        )
        assert ended.returncode == 0, ended.stderr
        told.append(ended.stdout.split())
    own = tmp_path / "temporary" / f"secure-fedrec-{os.getuid()}"
    assert [hits for hits, _ in told] == ["0", "1"]
    assert all(Path(path).is_relative_to(own) for _, path in told)
    assert own.stat().st_mode & 0o777 == 0o700


SHARED = """
from typing import NamedTuple
FACTOR = 2

class Pair(NamedTuple):
    first: int
    second: int
"""
HELD = """
from typing import NamedTuple
import numpy as np
from shared import Pair
STEPS = np.arange(4).reshape(2, 2)

class Outer(NamedTuple):
    pair: Pair
"""
LOW = """
from secure_fedrec.core.compiled import compiled_loop

@compiled_loop
def less(number):
    return number - 1
"""
HIGH = """
from held import STEPS, Outer
from low import less
from shared import FACTOR, Pair
from secure_fedrec.core.compiled import compiled_loop

@compiled_loop
def both(outer, number):
    return FACTOR * less(number) + 100 * outer.pair.first + 1000 * STEPS[0, -1]

print(both(Outer(Pair(first=3, second=4)), 10), sum(both.made.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(
    ("before", "after", "finds"),
    [
        ("FACTOR = 2", "FACTOR = 20", "1480 0"),
        ("number - 1", "number - 2", "1316 0"),
        ("first: int\n    second", "second: int\n    first", "1318 0"),
        ("reshape(2, 2)", "reshape(1, 4)", "3318 0"),
        ("", "", "1318 1"),
    ],
    ids=["a constant", "a loop that is called", "fields of a tuple", "an array", "nothing"],
)
def test_old_code_is_not_run_where_something_elsewhere_has_changed(
    before: str, after: str, finds: str, tmp_path: Path
) -> None:
    """The compiler looks at the loop's own file alone."""
    own = {"NUMBA_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}  # Python asks for second and size

    def told(change: Callable[[str], str]) -> str:
        for name, text in (("low", LOW), ("shared", SHARED), ("held", HELD)):
            (tmp_path / f"{name}.py").write_text(change(text))
        paths = os.pathsep.join((str(tmp_path), *sys.path))
        ended = subprocess.run(  # noqa: S603
            [sys.executable, tmp_path / "high.py"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **own, "PYTHONPATH": paths},
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    (tmp_path / "high.py").write_text(HIGH)
    assert told(str) == "1318 0"
    assert told(lambda text: text.replace(before, after)) == finds


def test_code_of_what_was_imported_is_kept_as_that(tmp_path: Path) -> None:
    """Found by attacking: a file that changed before the first call got the code of the old one."""
    (tmp_path / "low.py").write_text(LOW)
    run = "import low\n{}print(low.less(10), sum(low.less.made.stats.cache_hits.values()))"
    update = f"import pathlib\npathlib.Path({str(tmp_path / 'low.py')!r}).write_text({{!r}})\n"
    later = LOW.replace("number - 1", "number - 20")
    told = [
        ran(run.format(text), tmp_path / "cache", tmp_path)[0]
        for text in (update.format(later), "", "")
    ]
    assert told == [["9", "0"], ["-10", "0"], ["-10", "1"]]


def test_code_of_two_stamps_or_signatures_never_shares_a_file(tmp_path: Path) -> None:
    """Found by attacking: one that was killed between two files gave others its new code as old."""
    later = LOW.replace("number - 1", "number - 20")
    run = "from low import less\nprint(less({}), less.made.stats.cache_path)"
    names: list[set[str]] = []
    for text, number in ((LOW, 1), (LOW, 1.5), (later, 1)):
        (tmp_path / "low.py").write_text(text)
        ran(run.format(number), tmp_path / "cache", tmp_path)
        names.append({each.name for each in (tmp_path / "cache").rglob("*.nb?")})
    assert [len(each) for each in names] == [2, 3, 2]  # an index, and a file for each signature
    assert names[0] < names[1]
    assert not names[1] & names[2]  # those of the old code are gone


def test_an_array_that_was_written_to_is_not_kept_as_it_was(tmp_path: Path) -> None:
    """Found by attacking: what was compiled later stood under the stamp of what was there first."""
    (tmp_path / "low.py").write_text(
        "import numpy as np\nfrom secure_fedrec.core.compiled import compiled_loop\n"
        "STEPS = np.ones(1)\n@compiled_loop\ndef less(number):\n    return number - STEPS[0]\n"
    )
    first = "import low\nlow.less(1)\nlow.STEPS[0] = 7\nprint(low.less(1.5))"
    told = [
        ran(run, tmp_path / "cache", tmp_path)[0]
        for run in (first, "from low import less\nprint(less(1.5))")
    ]
    assert told == [["-5.5"], ["0.5"]]


@pytest.mark.parametrize("state", ["shared", "link", "file"])
def test_code_of_others_is_never_loaded(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("secure_fedrec.core.machine_code._TOLD", bytearray(1))
    own = tmp_path / f"secure-fedrec-{os.getuid()}"
    if state == "shared":
        own.mkdir()
        own.chmod(0o770)
    elif state == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "elsewhere")
    else:
        own.touch()
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR") as told:
        assert _own_folder.__wrapped__() is None
    assert str(own) in str(told[0].message)


def test_of_processes_that_share_work_one_warns() -> None:
    program = """
import os
from secure_fedrec.core.machine_code import _warn_once
for _ in range(3):
    if not (worker := os.fork()):
        _warn_once("/nowhere")
        os._exit(0)
    os.waitpid(worker, 0)
_warn_once("/nowhere")
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stderr.count("RuntimeWarning: /nowhere") == 1


def ran(code: str, cache: Path, *sources: Path, full: bool = False) -> tuple[list[str], str]:
    """What a program prints, and tells on stderr; where ``full``, no file grows over a kilobyte."""

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    paths = os.pathsep.join((*map(str, sources), *sys.path))
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "always::RuntimeWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths},
        preexec_fn=no_room if full else None,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split(), ended.stderr


@pytest.mark.parametrize("before", [False, True])
def test_a_folder_that_is_full_costs_time_and_nothing_else(before: bool, tmp_path: Path) -> None:
    """What was compiled is used, and the folder is named; also beside an index that is empty."""
    (tmp_path / "loop.py").write_text(LOOP)
    cache = tmp_path / "cache"
    if before:
        ran(RUN, cache, tmp_path)
        for path in cache.rglob("*.nbi"):
            path.write_bytes(b"")
    (hits, *_), stderr = ran(RUN, cache, tmp_path, full=True)
    assert hits == "0"
    told = [line for line in stderr.splitlines() if "RuntimeWarning" in line]
    assert len(told) == 1
    assert f"{cache}" in told[0]
    assert "loops are compiled again in every process" in told[0]


@pytest.mark.parametrize("folders", [1, 2])
@pytest.mark.parametrize("state", ["empty", "cut", "folder", "unreadable"])
def test_a_cache_that_cannot_be_read_costs_time_and_nothing_else(
    state: str, folders: int, tmp_path: Path
) -> None:
    """What was left by a power cut is written anew; what is not ours to read is named, once."""
    numbers = range(folders)
    for number in numbers:  # the compiler has a folder in the cache for every one of sources
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / f"loop{number}.py").write_text(LOOP)
    run = "".join(
        f"from loop{number} import four_times\nassert four_times(3) == 12\n"
        "print(sum(four_times.made.stats.cache_hits.values()))\n"
        for number in numbers
    )
    if state == "unreadable":
        run = REFUSED + run
    sources, cache = [tmp_path / str(number) for number in numbers], tmp_path / "cache"
    ran(run.removeprefix(REFUSED), cache, *sources)
    for path in cache.rglob("*.nb?"):
        if state == "empty":
            path.write_bytes(b"")
        elif state == "cut":
            path.write_bytes(path.read_bytes()[:-20])
        elif state == "folder":
            path.unlink()
            path.mkdir()
    hits, told = ran(run, cache, *sources)
    assert hits == ["0"] * folders
    refused = state in ("folder", "unreadable")
    assert told.count("loops are compiled again in every process") == refused
    hits, _ = ran(run, cache, *sources)
    assert hits == ["0" if refused else "1"] * folders


REFUSED = """
import builtins
genuine = builtins.open
def refusing(file, *more, **named):
    if str(file).endswith((".nbi", ".nbc")):
        raise PermissionError(13, "Permission denied", str(file))
    return genuine(file, *more, **named)
builtins.open = refusing
"""
