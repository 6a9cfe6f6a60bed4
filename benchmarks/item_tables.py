"""``item_tables``: rounds of the item-table family, beside a plain PyTorch loop.

Judged: ``speedup_vs_loop``, a round of PFedRec against ``item_tables_loop``, and
``speedup_vs_loop_fed3cr``, local training of Fed3CR against ``fed3cr_loop``; all on one thread.
Both sides train the same clients on the same examples in the same order, and after a round their
parameters must agree, or nothing is judged. PFedRec and its loop both draw negatives, by the same
sampler, and rank the held-out items; ours besides sends every change through the ring and the wire,
and keeps what undoes the round. A loop that is slower than its limit is no peer: then there is no
ratio.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import torch

from benchmarks import fed3cr_loop
from benchmarks.federations import Options, ratings_of
from benchmarks.item_tables_loop import Draw, PFedRecLoop, ScoreModel
from benchmarks.measure import interleave, own_peak_gb, progress, ratio
from secure_fedrec.algorithms.item_tables import (
    FedMF,
    FedMFConfig,
    FedNCF,
    FedNCFConfig,
    FedRAP,
    FedRAPConfig,
    PFedRec,
    PFedRecConfig,
    ranked,
)
from secure_fedrec.algorithms.item_tables.fed3cr import Fed3CR, Fed3CRConfig
from secure_fedrec.algorithms.item_tables.method import OWN, ItemTableMethod
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.algorithms.item_tables.training import LocalExamples, shuffle
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import LocalEngine, Problem, sizes_of
from secure_fedrec.evaluation.protocols import RankingCase, ranking_case
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

__all__ = ["Round", "run"]

TARGETS: Final = {
    "speedup_vs_loop": ">= 20",
    "speedup_vs_loop_fed3cr": ">= 4",
    "seconds_per_round": "<= limits.seconds_per_round",
    "fedrap.seconds_per_round": "<= limits.fedrap_seconds_per_round",
    "largest_difference": "<= 1e-3",
    "fed3cr_ml1m.seconds": "<= 120",
    "fed3cr_ml1m.peak_gb": "< 12",
    "fed3cr_ml1m.masking_overhead": "< 0.5",
}
LIMITS: Final[dict[str, float]] = {
    "loop_seconds": 4.0,
    "seconds_per_round": 0.15,
    "fedrap_seconds_per_round": 2.0,
}
"""Seconds of a round of all of ml-100k; a part of its clients is given that part of them."""

_SEED, _QUICK_CLIENTS, _COMPARED, _COHORT = 1, 200, 40, 128
# The table moves by tens in a round, in single precision.
_AGREEMENT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A federation after its first round.

    Args:
        algorithm: what is trained.
        engine: runs it.
        clients: int64[P], who takes part.
    """

    algorithm: ItemTables
    engine: LocalEngine
    clients: IntArray

    @classmethod
    def of(
        cls,
        method: ItemTableMethod,
        case: RankingCase,
        clients: IntArray,
        *,
        layers: Mapping[str, Any] | None = None,
        threads: int | None = 1,
    ) -> "Round":
        """Train round 1 of a method on some clients of a case, protected by some layers."""
        algorithm, streams = ranked(method, case, threads=threads), Streams.from_seed(_SEED)
        train = case.train
        vault = Vault(indptr=train.indptr(), items=train.items, ratings=train.ratings)
        data = Problem(vault=vault, n_rows=case.n_items)
        sizes = sizes_of(algorithm, data, cohort=len(clients))
        engine = LocalEngine(
            algorithm=algorithm,
            stack=build_stack(layers or {}, sizes=sizes, codec=FixedPoint(), streams=streams),
            vault=vault,
            n_rows=case.n_items,
            streams=streams,
            wire=Wire(meter=Meter(case.n_clients)),
            participants=lambda _: clients,
        )
        engine.run_round()
        return cls(algorithm=algorithm, engine=engine, clients=clients)

    def draw(self) -> Draw:
        """What a client trains on, in the order of its first epoch, drawn for it alone."""
        streams, size = Streams.from_seed(_SEED), self.algorithm.method.config.local.batch_size

        def draw(round_: int, client: int) -> tuple[torch.Tensor, torch.Tensor]:
            one = np.array([client])
            drawn, keys = self.algorithm.draws(one, self.engine.vault, streams, round_)
            items, labels = drawn.items.astype(np.int64), drawn.labels.astype(np.float32)
            if len(items) > size:
                shuffle(LocalExamples(drawn.indptr, items, labels, keys), 0, 0)
            return torch.from_numpy(items), torch.from_numpy(labels)

        return draw


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    torch.set_num_threads(1)
    source, table = ratings_of("ml-100k", options)
    case = ranking_case(table, protocol="published", seed=_SEED)
    clients, repeats = np.arange(case.n_clients), 5
    if options.quick:
        chosen = np.random.default_rng(_SEED).choice(case.n_clients, _QUICK_CLIENTS, replace=False)
        clients, repeats = np.sort(chosen), 3
    part = len(clients) / case.n_clients
    limits = {name: seconds * part for name, seconds in LIMITS.items()}
    found = _against_loop(case, clients, repeats, limits["loop_seconds"])
    others: dict[str, ItemTableMethod] = {
        "fedrap": FedRAP(FedRAPConfig(), case.n_items),
        "fedmf": FedMF(FedMFConfig(), case.n_items),
        "fedncf": FedNCF(FedNCFConfig(), case.n_items),
    }
    alone = {}
    for name, method in others.items():
        progress(f"a round of {name}")
        engine = Round.of(method, case, clients).engine
        timings = interleave({name: engine.run_round}, repeats=1 if options.quick else 3, warm_up=0)
        alone[name] = {"seconds_per_round": float(np.median(timings[name]))}
    rival = _fed3cr(case, clients, fed3cr_loop.LIMIT * part)
    return {
        "benchmark": "item_tables",
        "data": source,
        "clients": len(clients),
        **found,
        **alone,
        "speedup_vs_loop_fed3cr": rival.pop("speedup_vs_loop_fed3cr"),
        "fed3cr": rival,
        "masking": _masking(Fed3CR(Fed3CRConfig(), case.n_items), case, 1 if options.quick else 3),
        "masking_pfedrec": _masking(PFedRec(PFedRecConfig(), case.n_items), case, 3),
        "fed3cr_ml1m": None if options.quick else _large(options),
        "peak_gb": own_peak_gb(),
        "limits": limits,
        "targets": TARGETS,
    }


def _against_loop(
    case: RankingCase, clients: IntArray, repeats: int, limit: float
) -> dict[str, Any]:
    """PFedRec and its loop."""
    config = PFedRecConfig()
    ours = Round.of(PFedRec(config, case.n_items), case, clients)
    start = ours.algorithm.initial_public(case.n_items, Streams.from_seed(_SEED))
    own = ours.algorithm.method.own(np.arange(1), Streams.from_seed(_SEED))[0]
    loop = PFedRecLoop(ScoreModel(start.table, own), config, case, ours.draw())
    progress("one round of each: must agree")
    loop.round(1, clients)
    difference = _difference(ours, loop)
    if not difference <= _AGREEMENT:
        raise AssertionError(f"the rounds differ by {difference}")
    progress("rounds of pfedrec: ours, torch loop")
    timings = interleave(
        {"ours": ours.engine.run_round, "loop": lambda: loop.round(2, clients)}, repeats=repeats
    )
    seconds = float(np.median(timings["loop"]))
    return {
        "speedup_vs_loop": ratio(timings, "loop", "ours") if seconds <= limit else None,
        "seconds_per_round": float(np.median(timings["ours"])),
        "loop_seconds": seconds,
        "largest_difference": difference,
    }


def _fed3cr(case: RankingCase, clients: IntArray, limit: float) -> dict[str, Any]:
    """Fed3CR and its loop, in the second round, on about ``_COMPARED`` of the clients."""
    progress("rounds of fed3cr: ours, torch loop")
    ours = Round.of(Fed3CR(Fed3CRConfig(), case.n_items), case, clients)
    some = clients[:: max(1, len(clients) // _COMPARED)]
    arguments = (ours.engine.public, ours.engine.vault, Streams.from_seed(_SEED))
    found: dict[str, Any] = fed3cr_loop.compare(ours.algorithm, some, *arguments)
    if not found["largest_difference"] <= fed3cr_loop.TOLERANCE:
        raise AssertionError(f"the rounds differ by {found['largest_difference']}")
    if found["loop_seconds"] > limit * len(some) / len(clients):
        found["speedup_vs_loop_fed3cr"] = None
    return {**found, "compared": len(some)}


def _masking(method: ItemTableMethod, case: RankingCase, repeats: int) -> dict[str, Any]:
    """What masking adds to the round of a cohort, on one thread: keys, masks and shares of all."""
    progress(f"a cohort of {method.name}: masked, not")
    clients = np.arange(min(_COHORT, case.n_clients))
    masking = {"masking": MaskingLayerConfig()}
    rounds = {
        side: Round.of(method, case, clients, layers=layers).engine
        for side, layers in (("plain", {}), ("masked", masking))
    }
    calls = {side: engine.run_round for side, engine in rounds.items()}
    timings = interleave(calls, repeats=repeats, warm_up=0)
    tables = [engine.public.table for engine in rounds.values()]
    if not np.array_equal(tables[0], tables[1]):
        raise AssertionError(f"{method.name}: masking changed the sums")
    found = {f"{side}_seconds": float(np.median(each)) for side, each in timings.items()}
    overhead = ratio(timings, "masked", "plain") - 1
    return {"cohort": len(clients), **found, "masking_overhead": overhead}


def _large(options: Options) -> dict[str, Any]:
    """A round of Fed3CR with everybody in ml-1m, and what masking adds to one of its cohorts."""
    source, table = ratings_of("ml-1m", options)
    case = ranking_case(table, protocol="clean", seed=_SEED)
    method = Fed3CR(Fed3CRConfig(), case.n_items)
    masking = _masking(method, case, 3)
    progress("a round of fed3cr on ml-1m")
    begun, busy = perf_counter(), process_time()
    Round.of(method, case, np.arange(case.n_clients), threads=None)
    return {
        "data": source,
        "clients": case.n_clients,
        "seconds": perf_counter() - begun,
        "cpu_seconds": process_time() - busy,
        "peak_gb": own_peak_gb(),
        **masking,
    }


def _difference(ours: Round, loop: PFedRecLoop) -> float:
    """Largest difference of the item tables and of the score functions."""
    theirs = loop.model.embedding.weight.detach().numpy()
    found = [np.abs(ours.engine.public.table - theirs).max()]
    for client, own in zip(
        ours.clients.tolist(), ours.engine.vault.read(OWN, ours.clients), strict=True
    ):
        weight, bias = loop.scores[client]["weight"], loop.scores[client]["bias"]
        found.append(np.abs(own - torch.cat([weight[0], bias]).numpy()).max())
    return float(max(found))
