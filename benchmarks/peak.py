"""A full-shape run in a process of its own: ``python -m benchmarks.peak ROUNDS [DATA_DIR]``.

Prints one JSON object with the peak memory and the seconds per round. Half of the rounds use
average filling, half predictions; every round ends with the error on the held-out fifth.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.federations import Federation, Options, ratings_of
from benchmarks.measure import own_peak_gb
from secure_fedrec.data import k_fold


def main(rounds: int, data_dir: Path | None) -> None:
    """Train some rounds on the ml-1m shape at rho = 3."""
    _, table = ratings_of("ml-1m", Options(data_dir=data_dir))
    train, test = k_fold(table, fold=0, seed=1)
    federation = Federation(train, filling="hybrid", predict_after=max(0, rounds // 2 - 1))
    engine = federation.engine(test=test)
    start = perf_counter()
    for _ in range(rounds):
        engine.run_round()
    seconds = (perf_counter() - start) / rounds
    print(json.dumps({"peak_gb": own_peak_gb(), "seconds_per_round": seconds}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
