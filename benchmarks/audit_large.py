"""``audit_ml_1m`` and ``audit_10m``: whole audits of the sizes that the work on scale is judged by.

Both keep their runs in ``--folder``: what was cut off goes on there after the last round that was
kept, its times are added up, and what is finished is not run again.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.federations import SHAPES, Options
from benchmarks.measure import progress
from benchmarks.processes import Taken, metered
from secure_fedrec.core.cores import usable_cores
from secure_fedrec.core.files import replace_file

ROOT: Final = Path(__file__).resolve().parents[1]
TARGETS: Final = {
    "ml_1m": {"seconds_ml_1m": "< 300", "peak_gb_ml_1m": "< 4"},
    "10m": {"minutes_10m": "< 60", "peak_gb_10m": "< 12"},
}
LIMIT_GB: Final = 12.0
_PRESET: Final = ROOT / "audits" / "configs" / "fedrecpp-ml100k.toml"
_VERDICTS: Final = frozenset({0, 1, 3})
_LEDGER: Final = "taken.json"


def ml_1m(options: Options) -> dict[str, Any]:
    """All attacks on a recording of ml-1m, 100 rounds, by one process for each core.

    Returns:
        ``seconds_ml_1m``, ``cpu_seconds_ml_1m``, ``peak_gb_ml_1m``: of the attacks alone. With
        ``quick``, of a recording of two rounds of ml-100k's size.
    """
    with _folder(options) as folder:
        run = folder / "ml-1m"
        words = ["train", str(_PRESET), *_sets(_ml_1m(options)), *_data(options)]
        once(words, run / "training", run / "run")
        taken = once(["attack", str(run / "run" / "transcript"), "--json"], run / "attacks")
    return {
        "seconds_ml_1m": taken.seconds,
        "cpu_seconds_ml_1m": taken.cpu_seconds,
        "peak_gb_ml_1m": taken.peak_gb,
        "targets": TARGETS["ml_1m"],
    }


def ten_million(options: Options) -> dict[str, Any]:
    """A whole audit of 70,000 clients, 10,000 items and ten million generated ratings.

    The quickstart's federation and adversaries, 20 rounds of rank 10, one virtual item a rated one,
    a twin, all attacks that apply, and the report.

    Returns:
        ``minutes_10m``, ``cpu_minutes_10m``, ``peak_gb_10m``. With ``quick``, of 300 clients.
    """
    with _folder(options) as folder:
        run = folder / "10m"
        taken = once(["audit", *_sets(large(options.quick))], run / "audit", run / "run")
    return {
        "minutes_10m": taken.seconds / 60,
        "cpu_minutes_10m": taken.cpu_seconds / 60,
        "peak_gb_10m": taken.peak_gb,
        "targets": TARGETS["10m"],
    }


def large(quick: bool) -> dict[str, Any]:
    """What differs from the quickstart."""
    clients, items, ratings = (300, 400, 30.0) if quick else (70_000, 10_000, 1e7 / 70_000)
    return {
        "data.clients": clients,
        "data.items": items,
        "data.mean_ratings": ratings,
        "algorithm.rounds": 20,
        "recording.max_transcript_gb": 10,
        "protection.count": clients // 4,
        "run.max_memory_gb": LIMIT_GB,
    }


def _ml_1m(options: Options) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "run.check_lossless": False,
        "run.workers": usable_cores(),
        "data.utility_folds": 1,
        "recording.max_transcript_gb": 10,
    }
    name = "ml-100k" if options.quick else "ml-1m"
    if options.quick:
        changes["algorithm.rounds"] = 2
    if options.data_folder is not None and (options.data_folder / name).exists():
        return changes | {"data.name": name}
    shape = SHAPES[name]
    keys = ("clients", "items", "mean_ratings", "activity_sigma")
    del changes["data.utility_folds"]
    return changes | {
        "data.name": "synthetic",
        **{f"data.{key}": getattr(shape, key) for key in keys},
    }


def _sets(changes: dict[str, Any]) -> list[str]:
    return [
        word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")
    ]


def _data(options: Options) -> list[str]:
    return [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]


@contextmanager
def _folder(options: Options) -> Iterator[Path]:
    if options.folder is not None:
        yield options.folder
        return
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as scratch:
        yield Path(scratch)


# --- one command ----------------------------------------------------------------------------------


def once(words: Sequence[str], kept: Path, out: Path | None = None) -> Taken:
    """Run a command of ``secure-fedrec``, or go on with it, unless it was finished before.

    Args:
        words: of the command.
        kept: folder for what it printed (``stdout``) and for what every try took.
        out: its run folder; None for a command that has none and begins anew.

    Returns:
        Times of all tries added up, also of those that were cut off, and the most memory of any.

    Raises:
        ChildProcessError: it failed, and said why on stderr.
    """
    kept.mkdir(parents=True, exist_ok=True)
    ledger = kept / _LEDGER
    tries = json.loads(ledger.read_text(encoding="ascii")) if ledger.exists() else []
    if not (tries and tries[-1]["code"] in _VERDICTS):
        command = [sys.executable, "-m", "audits.cli", *words]
        if out is not None:
            command += ["--out", str(out), *(["--resume"] if out.exists() else [])]
        progress(" ".join(command[2:]))
        for taken in metered(command, kept / "stdout", cwd=ROOT):
            replace_file(ledger, json.dumps([*tries, asdict(taken)], indent=1).encode())
        tries.append(asdict(taken))
        if taken.code not in _VERDICTS:
            raise ChildProcessError(f"{words[0]} ended with exit code {taken.code}")
    parts = {key: [each[key] for each in tries] for key in ("seconds", "cpu_seconds", "peak_gb")}
    return Taken(
        seconds=sum(parts["seconds"]),
        cpu_seconds=sum(parts["cpu_seconds"]),
        peak_gb=max(parts["peak_gb"]),
        code=tries[-1]["code"],
    )
