"""Compiled loops: late, and from a cache wherever there is a folder of one's own."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
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


@pytest.mark.parametrize("state", ["shared", "link", "file"])
def test_code_of_others_is_never_loaded(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
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


def test_a_folder_that_is_full_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """No file may grow beyond a kilobyte: what was compiled is used, and the folder is named."""
    (tmp_path / "loop.py").write_text(LOOP)

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    paths = os.pathsep.join((str(tmp_path), *sys.path))
    cache = tmp_path / "cache"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "always::RuntimeWarning", "-c", RUN],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths},
        preexec_fn=no_room,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("0 ")
    told = [line for line in ended.stderr.splitlines() if "RuntimeWarning" in line]
    assert len(told) == 1
    assert f"{cache}" in told[0]
    assert "loops are compiled anew in every process" in told[0]
