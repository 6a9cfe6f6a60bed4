"""Positive controls: every attack must reach its known level on a federation built to leak.

An attack that silently broke looks like privacy. So each audit also runs the suite on a small
planted federation (FedRec++ with many denoisers, where every attack of the suite applies; for
``subset-regression`` one with sticky virtual items, which defeat every attack on item numbers), and
a control that misses its floor makes the audit inconclusive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from attacks.games import GroundTruth, evaluate
from attacks.suite import SUITE
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, RecordingPolicy

__all__ = ["FLOORS", "ControlResult", "positive_controls"]

FLOORS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "direct": ("auc", 0.9),
        "intersection": ("auc", 0.99),
        "lattice": ("rating_accuracy", 0.99),
        "collusion-linkage": ("linked_share", 0.99),
        "tail-items": ("precision", 1.0),
        "denoiser-sums": ("unmasked_share", 0.9),
        "denoiser-exposure": ("precision", 1.0),
        "subset-regression": ("support_auc", 0.95),
    }
)
"""Per attack: the figure that must reach the floor on the planted federation."""

_ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """Outcome of a positive control.

    Args:
        metric: the figure looked at.
        value: what the attack reached; None if it did not run.
        floor: what it must reach.
    """

    metric: str
    value: float | None
    floor: float

    @property
    def passed(self) -> bool:
        """Whether the attack works."""
        return self.value is not None and self.value >= self.floor


@lru_cache(maxsize=1)
def positive_controls() -> Mapping[str, ControlResult]:
    """Run every attack on its planted federation; a few seconds, once per process."""
    many = _planted(denoisers=20, sticky=False, payload_rounds=(1,))
    sticky = _planted(denoisers=2, sticky=True, payload_rounds=tuple(range(1, _ROUNDS + 1)))
    adversary = Adversary(name="planted", corrupt=frozenset({"server", "denoisers"}))
    alone = Adversary(name="planted-server", corrupt=frozenset({"server"}))
    results: dict[str, ControlResult] = {}
    for name, attack in SUITE.items():
        metric, floor = FLOORS[name]
        who = adversary if name == "collusion-linkage" else alone
        run, truth = sticky if name == "subset-regression" else many
        finding = evaluate(attack, who, run.transcript, truth, seed=0)
        results[name] = ControlResult(metric=metric, value=finding.figures.get(metric), floor=floor)
    return MappingProxyType(results)


@lru_cache(maxsize=2)
def _planted(
    *, denoisers: int, sticky: bool, payload_rounds: tuple[int, ...]
) -> tuple[RecordedRun, GroundTruth]:
    data = SyntheticConfig(clients=60, items=150, mean_ratings=15.0, seed=20210202)
    train, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams = Streams.from_seed(7)
    algorithm = PMF(PMFConfig(rank=6, rounds=_ROUNDS))
    codec = FixedPoint()
    collector = Denoisers(
        DenoisersConfig(count=denoisers),
        n_clients=train.n_clients,
        n_items=train.n_items,
        width=algorithm.width,
        codec=codec,
        streams=streams,
    )
    cloak = VirtualRatings(
        VirtualRatingsConfig(rho=1.0, sticky=sticky), n_items=train.n_items, streams=streams
    )
    run = RecordedRun(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=train.n_clients),
        train=train,
        test=test,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
    )
    for _ in range(_ROUNDS):
        run.run_round()
    bound = tuple(collector.binding.denoisers.tolist())
    return run, GroundTruth(train=train, recorded=run.truth, denoiser_clients=bound)
