"""Biases under Skellam noise: what leaves a client keeps to the norm that its price rests on."""

from collections.abc import Mapping

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray, RingArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import LocalEngine, vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, Sizes, build_stack
from secure_fedrec.protection.dp import embedded as noised
from secure_fedrec.protection.dp import skellam
from secure_fedrec.protection.dp.embedded import NoisedSum
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Meter, Wire

N_CLIENTS, N_ITEMS = 60, 40
TABLE = generate(SyntheticConfig(clients=N_CLIENTS, items=N_ITEMS, mean_ratings=12.0, seed=2))


class Aggregates(PMF):
    """Keeps what the server is given."""

    def __init__(self, config: PMFConfig) -> None:
        super().__init__(config)
        self.seen: list[Aggregate] = []

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        self.seen.append(aggregate)
        return super().server_step(public, aggregate)


def engine_of(multiplier: float, rounds: int) -> tuple[LocalEngine, Aggregates, NoisedSum]:
    algorithm = Aggregates(PMFConfig.printed(rank=0, biases=True, rounds=rounds))
    streams = Streams.from_seed(4)
    layers = {
        "clip": LAYERS["clip"](norm=2.0, count_scale=0.4),
        "skellam": LAYERS["skellam"](noise_multiplier=multiplier, fraction_bits=10),
        "masking": LAYERS["masking"](execution="simulated", min_survivors=N_CLIENTS, corrupt=0.0),
    }
    stack = build_stack(
        layers,
        sizes=Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=1, cohort=N_CLIENTS),
        codec=FixedPoint(),
        streams=streams,
    )
    assert isinstance(stack.collector, NoisedSum)
    engine = LocalEngine(
        algorithm=algorithm,
        stack=stack,
        vault=vault_of(TABLE),
        n_rows=N_ITEMS,
        streams=streams,
        wire=Wire(meter=Meter(N_CLIENTS)),
    )
    return engine, algorithm, stack.collector


def test_residuals_and_counts_together_keep_to_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[RingArray] = []
    given: list[Mapping[str, FloatArray]] = []

    class Watched(skellam.SkellamClient):
        __slots__ = ()

        def protect(self, values: Mapping[str, FloatArray]) -> RingArray:
            given.append(values)
            words.append(super().protect(values))
            return words[-1]

    def silent(table: object, count: int) -> IntArray:
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(skellam, "draw_noise", silent)
    monkeypatch.setattr(noised, "SkellamClient", Watched)
    engine, _, collector = engine_of(multiplier=1.0, rounds=2)
    for _ in range(2):
        engine.run_round()
    config = collector.skellam
    norms = [int((config.codec.to_integers(own) ** 2).sum()) for own in words]
    assert len(norms) == 2 * N_CLIENTS
    assert max(norms) <= config.encoding.bound.l2_square
    # Clipped they are: nearly all sit at the norm, and without the clip they would be above it.
    joined = [config.encoding.contribution.join(values) for values in given]
    above = sum(float(np.linalg.norm(vector)) > config.encoding.clip for vector in joined)
    assert above > N_CLIENTS
    # Nothing but rows and counts is summed.
    assert {name for values in given for name in values} == {"rows", "counts"}


def test_the_server_is_told_the_noise_that_there_is() -> None:
    engine, algorithm, collector = engine_of(multiplier=8.0, rounds=30)
    for _ in range(30):
        engine.run_round()
    stated = {aggregate.noise for aggregate in algorithm.seen}
    assert len(stated) == 1
    values = np.array([aggregate.values[:, 0] for aggregate in algorithm.seen])
    # 1,200 values of deviation 16; the sums of clipped residuals move by less than 2.
    assert np.std(values - values.mean(axis=0), ddof=1) == pytest.approx(stated.pop(), rel=0.1)
    assert collector.skellam.deviation(N_CLIENTS) == pytest.approx(16.0, rel=0.05)
