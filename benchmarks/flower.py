"""Rounds of five algorithms on Flower beside Flower's own FedAvg, on the same nodes, in turn.

Each is deployed as it comes: a SuperLink with TLS, a SuperNode with a site's process per client, on
MovieLens 100K where it is found. FedAvg sends as many values as the public state has, float32 there
and back, to clients that train in no time: what a round of ours takes for its training
counts against it. Sites are resident processes for both, so FedAvg pays for no new process per
message either, as it would under Flower's own way of running apps. What is Flower's own is that its
grid looks for answers every three seconds, ours ten times a second. The first round of each, which
has keys to agree on, is not counted. Where all rounds have run, the public state is compared with
the embedded engine's, bit for bit.
"""

import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from tqdm import tqdm

from audits.config.audit import AuditConfig, parse_config
from audits.deploy.command import Hosts, hosts
from audits.deploy.homes import Layout, provision
from audits.run.build import Federation, build_federation, load_dataset
from audits.system import Task
from benchmarks.federations import SHAPES, Options
from secure_fedrec.algorithms import PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import LocalEngine, table_digest
from secure_fedrec.wire import Meter, Wire

_NODES = 4
_PAIRS = 4
TARGETS = {"overhead_vs_fedavg": 1.3}

_MASKS = {"layer": "masking", "adversary": "active", "min_survivors": 3}
_SHARED = (
    {"layer": "virtual-ratings", "rho": 1.0, "sticky": True},
    {"layer": "shared-upload", "count": 2, "floor": 3},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One algorithm, protected; ``organisations``: its clients have users of their own."""

    algorithm: Mapping[str, Any]
    protection: tuple[Mapping[str, Any], ...] = (_MASKS,)
    organisations: bool = False

    def config(self, options: Options, rounds: int) -> AuditConfig:
        """Its configuration, on real data where they are."""
        return parse_config(
            {
                "seed": 1,
                "data": self._data(options),
                "algorithm": {**self.algorithm, "rounds": rounds},
                "protection": list(self.protection),
            }
        )

    def _data(self, options: Options) -> dict[str, Any]:
        shape, folder = SHAPES["ml-100k"], options.data_folder
        real = not options.quick and folder is not None and (folder / "ml-100k").exists()
        if self.organisations:
            if real:
                return {"name": "ml-100k-zip"}
            return {"name": "synthetic", "clients": 10, "users": 90, "items": shape.items}
        if real:
            return {"name": "ml-100k", "sample_clients": _NODES}
        items = 200 if options.quick else shape.items
        return {"name": "synthetic", "clients": _NODES, "items": items}


_CASES = {
    "pmf": _Case(algorithm={"name": "pmf"}),
    "fedrec++": _Case(algorithm={"name": "pmf"}, protection=_SHARED),
    "furl": _Case(algorithm={"name": "furl"}),
    "hpfl": _Case(
        algorithm={"name": "hpfl", "gum": {"scale": 5.0, "start": "identity"}}, organisations=True
    ),
    "pfedrec": _Case(algorithm={"name": "pfedrec"}),
}
"""Masked but for FedRec++, whose uploads are shared among denoisers."""


def run(options: Options) -> dict[str, Any]:
    """Seconds per exchange of both, and their ratio, by algorithm; the whole has the worst."""
    cases = {"pmf": _CASES["pmf"]} if options.quick else _CASES
    pairs = 1 if options.quick else _PAIRS
    rows: dict[str, Any] = {}
    with tqdm(total=len(cases) * (pairs + 1), desc="on Flower", unit="round", disable=None) as bar:
        for name, case in cases.items():
            rows[name] = _measured(case.config(options, pairs + 1), options, pairs, bar)
    return {
        "pairs": pairs,
        "algorithms": rows,
        "overhead_vs_fedavg": max(row["overhead_vs_fedavg"] for row in rows.values()),
        "targets": TARGETS,
    }


def _measured(
    config: AuditConfig, options: Options, pairs: int, bar: "tqdm[Any]"
) -> dict[str, Any]:
    dataset = load_dataset(config, options.data_dir)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    rounds = _Rounds()
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        provision(federation, layout)
        began = time.perf_counter()
        with hosts(layout, site="benchmarks.flower_site") as up:
            up.coordinator.channel.greet(60.0)
            started = time.perf_counter() - began
            rounds.one(up, more=True)
            bar.update()
            words = _values(up.coordinator.public)
            for left in reversed(range(pairs)):
                rounds.fedavg.append(_fedavg(up.transport.grid, len(up.sites), words))
                rounds.one(up, more=left > 0)
                bar.update()
            up.coordinator.finish()
            nodes, public = len(up.sites), up.coordinator.public
    _require_equal(public, _embedded(federation, rounds.clients))
    fedavg, ours = median(rounds.fedavg), median(rounds.seconds[1:])
    return {
        "data": config.data.name,
        "nodes": nodes,
        "values": words,
        "start_up_seconds": round(started, 2),
        "exchanges_per_round": rounds.exchanges,
        "seconds_per_round": round(ours, 3),
        "seconds_per_exchange": round(ours / rounds.exchanges, 3),
        "fedavg_seconds_per_exchange": round(fedavg, 3),
        "overhead_vs_fedavg": round(ours / rounds.exchanges / fedavg, 3),
    }


@dataclass(slots=True)
class _Rounds:
    """What was seen of the rounds: ours, with the clients in their sums, and FedAvg's."""

    seconds: list[float] = field(default_factory=list)
    clients: list[IntArray] = field(default_factory=list)
    exchanges: int = 0
    fedavg: list[float] = field(default_factory=list)

    def one(self, up: Hosts, *, more: bool) -> None:
        """Run a round of ours."""
        began = time.perf_counter()
        report = up.coordinator.run_round(more=more)
        self.seconds.append(time.perf_counter() - began)
        self.clients.append(report.clients)
        self.exchanges = report.exchanges


def _fedavg(grid: Grid, nodes: int, words: int) -> float:
    """Seconds of one round, which is one exchange."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    start = ArrayRecord([np.zeros(words, dtype=np.float32)])
    began = time.perf_counter()
    strategy.start(grid, start, num_rounds=1, timeout=120.0)
    return time.perf_counter() - began


def _values(public: PublicState) -> int:
    return public.table.size + sum(values.size for values in public.extras.values())


def _embedded(federation: Federation[Task], clients: list[IntArray]) -> PublicState:
    """The public state of the embedded engine after rounds with these clients in the sums."""
    algorithm, problem, _ = federation.task.fresh()
    engine = LocalEngine(
        algorithm=algorithm,
        stack=build_federation(federation.config, federation.task).stack,
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=federation.streams,
        wire=Wire(meter=Meter(problem.vault.n_clients)),
        participants=lambda round_: clients[round_ - 1],
    )
    for _ in clients:
        engine.run_round()
    return engine.public


def _require_equal(deployed: PublicState, embedded: PublicState) -> None:
    """Check that they are equal, bit for bit.

    Raises:
        AssertionError: they are not.
    """
    if table_digest(deployed) != table_digest(embedded):
        raise AssertionError("rounds on Flower and in one process end in different bits")
