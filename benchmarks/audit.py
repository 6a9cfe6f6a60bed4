"""A whole audit, and its attacks alone, against the commit that the work on scale began with.

That commit (``audit_start.txt``) is checked out beside this one with ``git worktree``, and both run
the same commands in turn, each in a process of its own: what is compared is the CPU time, user and
system, of one worker with warm caches. Where there is no history to check out, or it lacks the
commit, the ratios are null.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import audit_large
from benchmarks.federations import SHAPES, Options
from benchmarks.measure import progress, ratio

ROOT = Path(__file__).resolve().parents[1]
START = Path(__file__).with_name("audit_start.txt").read_text(encoding="ascii").strip()

_PRESET = "fedrecpp-ml100k"
_ROUNDS = 20
_REPEATS = 3
_PAST, _PRESENT = "past", "present"


def run(options: Options) -> dict[str, Any]:
    """Measure, and say what was compared.

    Returns:
        ``quickstart_ratio``: the embedded quickstart, from command to report; ``attacks_ratio``:
        the attacks that both know on a recording of ml-100k (of its shape without the data set; of
        the quickstart if ``quick``). Both are CPU seconds over those of the starting commit, None
        without it. ``workers_speedup``: seconds of the same attacks with one worker over those with
        two. ``forecast_ratio``: CPU seconds that ``audit --dry-run`` says of the quickstart over
        those it takes. Without ``quick`` also what ``audit_ml_1m`` and ``audit_10m`` say.
    """
    repeats = 1 if options.quick else _REPEATS
    result: dict[str, Any] = {
        "start": START,
        "quickstart_ratio": None,
        "attacks_ratio": None,
        "workers_speedup": None,
        "forecast_ratio": None,
        "seconds": {},
        "targets": {
            "quickstart_ratio": "<= 0.5",
            "attacks_ratio": "<= 0.4",
            "workers_speedup": ">= 1.5",
            "forecast_ratio": "1 / 1.5 to 1.5",
        },
    }
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as scratch, past() as old:
        folder, trees = Path(scratch), {_PRESENT: ROOT} | ({} if old is None else {_PAST: old})
        progress("one run of each to warm the caches")
        for name, tree in trees.items():
            _quickstart(tree, folder / name)
        timed: dict[str, list[float]] = {name: [] for name in trees}
        for turn in range(repeats):
            progress(f"quickstart, {turn + 1} of {repeats}")
            for name, tree in trees.items():
                timed[name].append(_quickstart(tree, folder / name))
        result["seconds"]["quickstart"] = timed
        if old is not None:
            result["quickstart_ratio"] = ratio(timed, _PRESENT, _PAST)
        result["forecast_ratio"] = _forecast() / median(timed[_PRESENT])
        recordings = {name: folder / name for name in trees}
        if not options.quick:
            recordings = {name: folder / f"ml-100k-{name}" for name in trees}
            for name, tree in trees.items():
                progress("recording ml-100k")
                _audit(tree, _recording(options), recordings[name])
        attacked: dict[str, list[float]] = {name: [] for name in trees}
        common = _common(list(trees.values()))
        for turn in range(repeats):
            progress(f"attacks, {turn + 1} of {repeats}")
            for name, tree in trees.items():
                attacked[name].append(_attacks(tree, recordings[name], common)["cpu_seconds"])
        result["seconds"]["attacks"] = attacked
        crews = _crews(recordings[_PRESENT], common, repeats)
        result["seconds"]["workers"] = crews
        result["workers_speedup"] = ratio(crews, "one", "two")
        if old is not None:
            result["attacks_ratio"] = ratio(attacked, _PRESENT, _PAST)
    for large in () if options.quick else (audit_large.ml_1m, audit_large.ten_million):
        found = large(options)
        result["targets"] |= found.pop("targets")
        result |= found
    return result


@contextmanager
def past(commit: str = START, root: Path = ROOT) -> Iterator[Path | None]:
    """The starting commit in a folder of its own, taken away at the end; None without history.

    Args:
        commit: its hash.
        root: of the checkout whose history is asked.
    """
    git = shutil.which("git")
    known = git and (root / ".git").exists() and _git(git, root, "cat-file", "-e", commit)
    if not git or not known:
        progress(f"no history with {commit[:12]}: the ratios are null")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-past-") as scratch:
        tree = Path(scratch, "tree")
        if not _git(git, root, "worktree", "add", "--quiet", "--detach", str(tree), commit):
            progress(f"{commit[:12]} cannot be checked out: the ratios are null")
            yield None
            return
        try:
            yield tree
        finally:
            _git(git, root, "worktree", "remove", "--force", str(tree))


def _git(git: str, root: Path, *words: str) -> bool:
    done = subprocess.run(  # noqa: S603
        [git, "-C", str(root), *words], check=False, capture_output=True
    )
    return done.returncode == 0


def _quickstart(tree: Path, out: Path) -> float:
    return _audit(tree, ["audit"], out)


def _attacks(
    tree: Path, recording: Path, names: Sequence[str], workers: int = 1
) -> dict[str, float]:
    """Seconds of some attacks on a recording, and CPU seconds of the process that asks for them."""
    once = Path(__file__).with_name("attack_once.py")
    told: dict[str, float] = json.loads(
        _run(tree, [str(once), str(recording), str(workers), *names])[0]
    )
    return told


def _crews(recording: Path, names: Sequence[str], repeats: int) -> dict[str, list[float]]:
    """Seconds of the attacks with one worker and with two, in turn."""
    crews: dict[str, list[float]] = {"one": [], "two": []}
    for turn in range(repeats):
        progress(f"workers, {turn + 1} of {repeats}")
        for workers, crew in enumerate(crews.values(), start=1):
            crew.append(_attacks(ROOT, recording, names, workers)["seconds"])
    return crews


def _forecast() -> float:
    """CPU seconds that a quickstart is said to take."""
    progress("forecast of the quickstart")
    words = ["-m", "audits.cli", "audit", "--dry-run", "--quiet", "--json"]
    return float(sum(json.loads(_run(ROOT, words)[0])["seconds"].values()))


def _audit(tree: Path, words: Sequence[str], out: Path) -> float:
    """CPU seconds of a command that writes a fresh run folder."""
    shutil.rmtree(out, ignore_errors=True)
    return _run(tree, ["-m", "audits.cli", *words, "--out", str(out), "--quiet"])[1]


def _recording(options: Options) -> list[str]:
    config = ROOT / "audits" / "configs" / f"{_PRESET}.toml"
    changes: dict[str, Any] = {"algorithm.rounds": _ROUNDS}
    words = ["train", str(config)]
    if options.data_folder is None:
        shape = SHAPES["ml-100k"]
        changes |= {"data.name": "synthetic"}
        for key in ("clients", "items", "mean_ratings", "activity_sigma"):
            changes[f"data.{key}"] = getattr(shape, key)
    else:
        words += ["--data-dir", str(options.data_folder)]
    return words + [
        word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")
    ]


def _common(trees: Sequence[Path]) -> list[str]:
    """Names of the attacks that all of some versions have."""
    code = "import json; from attacks.suite import SUITE; print(json.dumps(list(SUITE)))"
    known = [json.loads(_run(tree, ["-c", code])[0]) for tree in trees]
    return [name for name in known[0] if all(name in names for names in known)]


def _run(tree: Path, words: Sequence[str]) -> tuple[str, float]:
    """Run Python on one version of the packages: what it printed, and its CPU seconds.

    Raises:
        ChildProcessError: it failed; its last words are in the message.
    """
    # An empty word: modules are compiled once, as everywhere.
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, *words], cwd=tree, stdout=out, stderr=err, env=surroundings
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode not in (0, 1, 3):  # a verdict of an audit is no failure
            raise ChildProcessError(err.read().decode(errors="replace")[-2000:])
        return out.read().decode(), used.ru_utime + used.ru_stime
