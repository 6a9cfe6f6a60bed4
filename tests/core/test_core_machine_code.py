"""Compiled loops: late, and from a cache wherever there is a folder of one's own."""

import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import types

from secure_fedrec.algorithms.item_tables.fed3cr_consensus import complementarity
from secure_fedrec.core import machine_code
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

    def told(change: Callable[[str], str]) -> str:
        for name, text in (("low", LOW), ("shared", SHARED), ("held", HELD)):
            (tmp_path / f"{name}.py").write_text(change(text))
        paths = os.pathsep.join((str(tmp_path), *sys.path))
        ended = subprocess.run(  # noqa: S603
            [sys.executable, tmp_path / "high.py"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": "", "PYTHONPATH": paths},
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    (tmp_path / "high.py").write_text(HIGH)
    assert told(str) == "1318 0"
    assert told(lambda text: text.replace(before, after)) == finds


def test_every_part_of_a_loop_s_code_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in other files of this package, imports inside of functions included."""
    loop: Any = complementarity
    before, read = machine_code.follows_from(loop.like), list[str]()

    def other(path: Path) -> bytes:
        read.append(path.name)
        return b"other"

    assert before == machine_code.follows_from(loop.like) != None  # noqa: E711 - and is told
    monkeypatch.setattr(machine_code, "_source", other)
    assert machine_code.follows_from(loop.like) != before
    assert read == ["lane_sums.py"]


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


class Loud(IntEnum):
    """Its members all look alike."""

    def __repr__(self) -> str:
        return "loud"


def remade(value: str) -> object:
    names = {"np": np, "math": math, "IntEnum": IntEnum, "namedtuple": namedtuple, "Loud": Loud}
    return eval(value, names)  # noqa: S307 - texts of this file


@pytest.mark.parametrize(
    "values",
    [
        (
            "float('nan')",
            "-float('nan')",
            "0.0",
            "-0.0",
            "0",
            "False",
            "None",
            "''",
            "0j",
            "np.float64(0)",
            "np.float32(0)",
        ),
        ("IntEnum('M', {'A': 1})", "IntEnum('M', {'A': 2})", "IntEnum('M', {'B': 1})"),
        ("IntEnum('M', {'A': 1}).A", "IntEnum('M', {'A': 2}).A", "1"),
        ("Loud('M', {'A': 1}).A", "Loud('M', {'A': 2}).A", "Loud('M', {'B': 1}).B"),
        ("IntEnum('M', {'A': 1, 'B': 2, 'C': 1})", "IntEnum('M', {'A': 1, 'B': 2, 'C': 2})"),
        ("np.float64", "np.float32", "np.dtype('f8')", "np.dtype('f4')", "float"),
        ("np.dtype([('a', 'i8')])", "np.dtype([('b', 'i8')])"),
        ("(np.array([0.1]),)", "(np.array([0.1 + 1e-12]),)", "np.array([0.1])"),
        ("(np.arange(5000),)", "(np.where(np.arange(5000) == 2500, 0, np.arange(5000)),)"),
        ("np.arange(4).reshape(2, 2)", "np.arange(4).reshape(1, 4)", "np.arange(4)"),
        ("np.ones((2, 2), order='C')", "np.ones((2, 2), order='F')"),
        ("np.timedelta64(1, 's')", "np.timedelta64(1, 'm')"),
        ("slice(0, 2)", "slice(0, 3)", "range(0, 2)", "range(0, 3)"),
        ("frozenset(('a', 'b'))", "frozenset(('a', 'c'))", "('a', 'b')"),
        ("math.sin", "math.cos", "np.sin", "np.cos", "np.sum", "np.max", "math", "np"),
        ("namedtuple('P', 'a b')", "namedtuple('P', 'b a')", "namedtuple('Q', 'a b')"),
        ("namedtuple('P', 'a b')(1, 2)", "namedtuple('P', 'b a')(1, 2)", "(1, 2)"),
    ],
)
def test_other_values_are_told_apart_and_equal_ones_are_not(values: tuple[str, ...]) -> None:
    """Found by attacking: of half of these a loop went on with the old one."""
    told = [{repr(machine_code._told(remade(each), [])) for _ in range(2)} for each in values]
    assert all(len(each) == 1 for each in told)
    assert len(set.union(*told)) == len(values)


@pytest.mark.parametrize("kept", ["object()", "__import__('secure_fedrec')", "{}", "(object(),)"])
def test_loops_whose_code_follows_from_something_unknown_are_not_kept(kept: str) -> None:
    names = {"held": eval(kept)}  # noqa: S307 - texts of this file
    exec("def loop(number):\n    return held", names)  # noqa: S102 - likewise
    loop: Any = names["loop"]
    assert machine_code.follows_from(loop) is None
    assert not hasattr(machine_code.compile_cached(loop)._cache, "_cache_file")


def test_fields_of_tuples_are_told_wherever_a_type_holds_them() -> None:
    """Found by attacking: those of tuples in lists were not."""
    kinds: list[set[object]] = []
    made: Any = types
    for fields in ("a b", "b a"):
        pair = made.NamedTuple((made.int64,) * 2, namedtuple("P", fields))
        holders = (pair, made.List(pair), made.ListType(pair), made.Set(pair))
        more = (made.Optional(pair), made.UniTuple(pair, 2), made.DictType(made.int64, pair))
        kinds.append({repr(machine_code._fields([each])) for each in (*holders, *more)})
    assert not set.intersection(*kinds)


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


def test_all_loops_are_kept() -> None:
    """One that named anything else would be compiled anew in every process."""
    program = """
import importlib, pkgutil
import attacks, audits, secure_fedrec
from secure_fedrec.core.machine_code import Late, follows_from
found = {}
for package in (secure_fedrec, attacks, audits):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            held = vars(importlib.import_module(each.name)).values()
        except ImportError:  # of an extra
            continue
        found |= {id(value): value for value in held if isinstance(value, Late)}
print(len(found), sum(follows_from(each.like) is None for each in found.values()))
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    count, unknown = map(int, ended.stdout.split())
    assert count >= 130
    assert unknown == 0


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
    assert ended.stderr.count("/nowhere") == 1


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
    assert "loops are compiled anew in every process" in told[0]


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
    assert told.count("loops are compiled anew in every process") == refused
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


def test_a_clock_stands_still_while_loops_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    run = """
from time import process_time
from secure_fedrec.core.machine_code import clock_without_compiling
from loop import four_times, twice
twice(1.5)  # brings the compiler
with clock_without_compiling() as clock:
    began, all_began = clock(), process_time()
    four_times(3)
    print(clock() - began, process_time() - all_began)
"""
    (told, spent), _ = ran(run, tmp_path / "cache", tmp_path)
    assert 0 <= float(told) < 0.5 * float(spent)
