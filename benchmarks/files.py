"""Reading 25 million ratings from a file: seconds and peak memory.

The file has the shape of MovieLens 25M (162,541 users, 59,047 items, half stars, times), once with
numbers for ids and once with text. It is made up in a temporary folder and read in a process of its
own: ``python -m benchmarks.files FILE``.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.federations import Options
from benchmarks.measure import own_peak_gb, progress, run_module
from secure_fedrec.data import RatingsFile, read_ratings

_ROWS, _USERS, _ITEMS = 25_000_000, 162_541, 59_051
_QUICK_ROWS = 500_000
_ROWS_AT_ONCE = 1_000_000
_IDS = {"number_ids": "{},{},{},{}\n", "text_ids": "user-{},item-{},{},{}\n"}


def run(options: Options) -> dict[str, Any]:
    """Make the file, read it, and say what that took."""
    rows = _QUICK_ROWS if options.quick else _ROWS
    result: dict[str, Any] = {"rows": rows}
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as folder:
        for name, line in _IDS.items():
            path = Path(folder, f"{name}.csv")
            progress(f"writing {rows:,} ratings with {name.replace('_', ' ')}")
            write(path, rows, line)
            progress("reading them")
            result[name] = {
                "file_gb": path.stat().st_size / 1e9,
                **json.loads(run_module("benchmarks.files", [str(path)])),
            }
            path.unlink()
    return {**result, "targets": {name: {"seconds": "< 45", "peak_gb": "< 3"} for name in _IDS}}


def write(path: Path, rows: int, line: str) -> None:
    """Ratings of users in turn, no pair twice; the same on every machine."""
    with path.open("w", encoding="ascii") as file:
        file.write("userId,movieId,rating,timestamp\n")
        for start in range(0, rows, _ROWS_AT_ONCE):
            row = np.arange(start, min(start + _ROWS_AT_ONCE, rows))
            users, turn = row * _USERS // rows, row - (row * _USERS // rows) * rows // _USERS
            # The number of items is a prime: multiples of a turn never meet again.
            columns = (
                (users + 1).tolist(),
                ((users * 7919 + turn * 104_729) % _ITEMS + 1).tolist(),
                (((row * 2_654_435_761 >> 7) % 10 + 1) / 2).tolist(),
                (1_000_000_000 + row * 48_271 % 500_000_000).tolist(),
            )
            file.writelines(map(line.format, *columns))


def main(path: Path) -> None:
    """Read a file in this process, which has done nothing else; prints seconds and the peak."""
    start = perf_counter()
    file = RatingsFile(
        path=path.name, user="userId", item="movieId", rating="rating", time="timestamp"
    )
    table = read_ratings(file, path.parent).table
    seconds = perf_counter() - start
    found = {
        "ratings": len(table),
        "clients": table.n_clients,
        "seconds": seconds,
        "cpu_seconds": sum(os.times()[:2]),
        "peak_gb": own_peak_gb(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
