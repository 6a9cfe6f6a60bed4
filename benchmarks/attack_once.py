"""Attacks once, on a recorded run: ``python benchmarks/attack_once.py FOLDER WORKERS NAME...``.

It runs on the packages that the path names, of this commit or of an earlier one, and prints the CPU
seconds of this process, and the seconds, of the attacks alone as JSON.
"""

import json
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import scipy.sparse.csgraph
import scipy.special  # noqa: F401 - with what comes along

from audits.run.audit import attack_all
from audits.run.recorded import recorded_truth
from secure_fedrec.core.compiled import add_rows
from secure_fedrec.wire import Transcript


def main(folder: Path, names: list[str], workers: int) -> None:
    """Attack one recording; an earlier commit knows of no workers."""
    more = {"workers": workers} if workers > 1 else {}
    transcript = Transcript.open(folder / "transcript")
    config, truth = recorded_truth(folder, transcript)
    # A training before them would have loaded the compiler's parts and the libraries.
    add_rows(np.zeros((1, 1), np.uint64), np.zeros(1, np.int64), np.ones((1, 1), np.uint64))
    start, begun = process_time(), perf_counter()
    attack_all(transcript, truth, config.adversaries, names, seed=config.seed, bars=False, **more)
    spent = {"cpu_seconds": process_time() - start, "seconds": perf_counter() - begun}
    print(json.dumps(spent))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:], int(sys.argv[2]))
