"""Noised sums: right on average, as wide as promised, and nothing exact beside them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import RatingTable
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.dp.config import ClipConfig, SkellamLayerConfig
from secure_fedrec.protection.dp.embedded import NoisedSum
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, Meter, Step, Wire

N_CLIENTS, N_ITEMS, RANK = 10, 24, 3
Run = Callable[..., RecordedRun]
Uploads = Callable[..., RowBlock]
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CODEC = FixedPoint()


def noised(multiplier: float, **noise: Any) -> dict[str, Any]:
    return {
        "clip": ClipConfig(norm=50.0, count_scale=1.0),
        "skellam": SkellamLayerConfig(noise_multiplier=multiplier, **noise),
        "masking": MaskingLayerConfig(min_survivors=N_CLIENTS, corrupt=0.0),
    }


def test_noised_sums_are_right_on_average_and_as_wide_as_promised(
    run_of: Run, uploads: Uploads
) -> None:
    run = run_of(noised(0.05))
    assert isinstance(run.engine.stack.collector, NoisedSum)
    plain = run_of({})
    errors = []
    for round_ in range(1, 4):
        run.engine.restore({**plain.engine.state()})  # the same contributions in every round
        for each in (run, plain):
            each.run_round()
        noisy = uploads(run.transcript.view(SERVER), round_, Step.AGGREGATE).values
        exact = uploads(plain.transcript.view(SERVER), round_, Step.AGGREGATE).values
        assert noisy is not None
        assert exact is not None
        codec = CODEC
        errors.append((codec.decode(noisy) - codec.decode(exact)).reshape(-1))
    found = np.concatenate(errors)
    skellam = run.engine.stack.collector.skellam
    wide = np.sqrt(N_CLIENTS * skellam.local_variance) / skellam.encoding.scale
    assert abs(found.mean()) < 5 * wide / np.sqrt(len(found))
    assert 0.8 < found.std() / wide < 1.25


def test_no_estimate_has_more_raters_than_there_are_clients(run_of: Run, uploads: Uploads) -> None:
    layers = noised(2.0, fraction_bits=6) | {"clip": ClipConfig(norm=50.0, count_scale=1e-20)}
    total = uploads(run_of(layers, done=1).transcript.view(SERVER), 1, Step.AGGREGATE)
    assert total.counts is not None
    assert total.counts.min() >= 1
    assert total.counts.max() <= N_CLIENTS


def test_counts_leave_inside_the_noise_and_never_fall_below_the_floor(
    table_of: Callable[..., RatingTable], run_of: Run, uploads: Uploads
) -> None:
    run = run_of(noised(2.0, least_count=4, fraction_bits=6), done=1)
    total = uploads(run.transcript.view(SERVER), 1, Step.AGGREGATE)
    assert total.counts is not None
    assert total.counts.min() >= 4
    raters = np.bincount(table_of().items, minlength=N_ITEMS)
    assert total.counts.tolist() != np.maximum(raters, 4).tolist()


def test_noise_refuses_what_would_undo_it(run_of: Run) -> None:
    with pytest.raises(ConfigError, match="exact counts"):
        run_of({**noised(1.0), "masking": MaskingLayerConfig(tail_floor=2)})
    with pytest.raises(ConfigError, match="either"):
        SkellamLayerConfig()
    with pytest.raises(ConfigError, match="either"):
        SkellamLayerConfig(noise_multiplier=1.0, epsilon=8.0)
    budget = {**noised(1.0), "skellam": SkellamLayerConfig(epsilon=8.0)}
    with pytest.raises(ConfigError, match="must be found from the budget first"):
        run_of(budget)


def test_the_noise_of_clients_that_the_masks_reckon_with_does_not_count(run_of: Run) -> None:
    def noised_at(share: float, **noise: Any) -> NoisedSum:
        masks = MaskingLayerConfig(min_survivors=N_CLIENTS, corrupt=share)
        layers = {**noised(1.0, fraction_bits=6, **noise), "masking": masks}
        collector = run_of(layers).engine.stack.collector
        assert isinstance(collector, NoisedSum)
        return collector

    assert noised_at(0.0).skellam.corrupt == 0
    assert noised_at(0.35).skellam.corrupt == 3
    alone, reckoned = noised_at(0.0).skellam, noised_at(0.35).skellam
    assert reckoned.local_variance * 7 == pytest.approx(alone.local_variance * 10)
    assert noised_at(0.35, corrupt=5).skellam.corrupt == 5
    with pytest.raises(ConfigError, match=r"protection\.corrupt = 2: the masks reckon with 3"):
        noised_at(0.35, corrupt=2)


def test_rotations_differ_between_rounds_and_runs() -> None:
    def seeds(seed: int) -> list[bytes]:
        stack = build_stack(
            noised(1.0),
            sizes=Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS),
            codec=CODEC,
            streams=Streams.from_seed(seed),
        )
        wire = Wire(meter=Meter(N_CLIENTS))
        everybody = np.arange(N_CLIENTS)
        sessions = [
            stack.collector.open(round_=round_, participants=everybody, wire=wire)
            for round_ in (1, 2)
        ]
        return [session._seed for session in sessions]  # type: ignore[attr-defined]

    assert len({*seeds(1), *seeds(2)}) == 4
    assert seeds(1) == seeds(1)
