"""Masked rounds on Flower beside Flower's own FedAvg, on the same nodes, one after the other.

Both send as many values: FedAvg an array of float32 there and back, a masked round the public table
there and the masked words back, in three exchanges; the first, which has its keys to agree on, in
five, is not counted. Sites are resident processes for both, so FedAvg
pays for no new process per message either, as it would under Flower's own way of running apps. What
is Flower's own is that its grid looks for answers every three seconds, ours ten times a second.
"""

import logging
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from audits.config.audit import parse_config
from audits.deploy.command import hosts
from audits.deploy.homes import Layout, provision
from audits.run.build import build_federation, load_dataset
from benchmarks.federations import Options

_NODES = 3
_QUICK, _FULL = (1, 200), (4, 20_000)
"""Pairs of rounds, and items."""
_RANK = 10
TARGETS = {"overhead_vs_fedavg": 1.3}


def run(options: Options) -> dict[str, Any]:
    """Seconds per exchange of both, and their ratio."""
    pairs, items = _QUICK if options.quick else _FULL
    config = parse_config(
        {
            "data": {"name": "synthetic", "clients": _NODES, "items": items},
            "algorithm": {"rank": _RANK, "rounds": pairs + 1},
            "protection": [{"layer": "masking", "adversary": "active"}],
        }
    )
    federation = build_federation(config, load_dataset(config, None).task(0))
    words = items * (_RANK + 1)
    fedavg, masked, exchanges = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        provision(federation, layout)
        began = time.perf_counter()
        with hosts(layout, site="benchmarks.flower_site") as up:
            up.coordinator.channel.greet(60.0)
            started = time.perf_counter() - began
            up.coordinator.run_round()
            for left in reversed(range(pairs)):
                fedavg.append(_fedavg(up.transport.grid, words))
                began = time.perf_counter()
                exchanges = up.coordinator.run_round(more=left > 0).exchanges
                masked.append((time.perf_counter() - began) / exchanges)
    return {
        "nodes": _NODES,
        "values": words,
        "pairs": pairs,
        "start_up_seconds": round(started, 2),
        "fedavg_seconds_per_exchange": round(median(fedavg), 3),
        "masked_seconds_per_exchange": round(median(masked), 3),
        "masked_exchanges_per_round": exchanges,
        "masked_seconds_per_round": round(median(masked) * exchanges, 3),
        "overhead_vs_fedavg": round(median(masked) / median(fedavg), 3),
        "targets": TARGETS,
    }


def _fedavg(grid: Grid, words: int) -> float:
    """Seconds of one round, which is one exchange."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=_NODES, min_available_nodes=_NODES)
    start = ArrayRecord([np.zeros(words, dtype=np.float32)])
    began = time.perf_counter()
    strategy.start(grid, start, num_rounds=1, timeout=120.0)
    return time.perf_counter() - began
