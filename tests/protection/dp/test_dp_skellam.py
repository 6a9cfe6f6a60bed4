"""Distributed Skellam noise: exact sums, exact variance whoever survives, and no silent wrap."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    ProtocolError,
    SumBudgetError,
    WireError,
)
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    Part,
    SkellamClient,
    SkellamConfig,
    SkellamNoise,
    SkellamServer,
    clip_to_norm,
    noise_table,
    skellam,
)

SEED = b"r" * 32
LAYOUT = Contribution(
    parts=(
        Part(name="rows", size=20, scale=1.0),
        Part(name="counts", size=5, scale=0.2),
        Part(name="weight", size=1, scale=0.1),
    )
)


def config_with(**changes: object) -> SkellamConfig:
    fields: dict[str, object] = {
        "encoding": BoundedEncoding(contribution=LAYOUT, clip=1.0, fraction_bits=10),
        "noise_multiplier": 1.0,
        "ring_bits": 24,
        "cohort": 12,
        "min_survivors": 8,
        "corrupt": 2,
        **changes,
    }
    return SkellamConfig(**fields)  # type: ignore[arg-type]


def contribution(seed: int, scale: float = 1.0) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    return {
        "rows": rng.normal(size=20) * scale,
        "counts": (rng.random(5) < 0.5).astype(np.float64),
        "weight": np.array([1.0]),
    }


def ring_sum(config: SkellamConfig, words: list[RingArray]) -> RingArray:
    total = np.zeros(LAYOUT.size, dtype=config.codec.dtype)
    for each in words:
        total += each
    return total & total.dtype.type(2**config.ring_bits - 1)


def noise_pmf(variance: float) -> FloatArray:
    """Probabilities of one client's noise as drawn, from -K to K."""
    table = noise_table("skellam", variance)
    steps = [table.threshold(m) for m in range(table.largest + 1)]
    sizes = [float(Fraction(b - a, 2**127)) for a, b in zip([0, *steps], steps, strict=False)]
    half = np.array(sizes[1:]) / 2
    return np.concatenate([half[::-1], sizes[:1], half])


@pytest.mark.claim("dp-samplers-exact")
@pytest.mark.parametrize("survivors", [8, 9, 12])
def test_noise_of_the_survivors_is_skellam_of_the_stated_variance(survivors: int) -> None:
    config = config_with(
        encoding=BoundedEncoding(contribution=LAYOUT, clip=1.0, fraction_bits=3),
        noise_multiplier=0.5,
    )
    one = noise_pmf(config.local_variance)
    honest = survivors - config.corrupt
    total = one
    for _ in range(honest - 1):
        total = np.convolve(total, one)
    reach = len(total) // 2
    variance = honest * config.local_variance
    expected = stats.skellam.pmf(np.arange(-reach, reach + 1), variance / 2, variance / 2)
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-14)
    assert variance >= config.variance
    if survivors == config.min_survivors:
        assert variance == pytest.approx(config.variance, rel=1e-15)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10**6), st.floats(1e-3, 1e12))
def test_local_share_is_enough_and_hardly_more(honest: int, variance: float) -> None:
    share = Fraction(skellam.local_share(variance, honest)) * honest
    assert Fraction(variance) <= share <= Fraction(variance) * (1 + Fraction(1, 2**51))


def test_sum_without_noise_is_the_sum_of_the_clipped_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(skellam, "draw_noise", lambda table, count: np.zeros(count, np.int64))
    config = config_with()
    clients = [contribution(seed, scale=seed / 4) for seed in range(10)]
    words = [SkellamClient(config, SEED).protect(values) for values in clients]
    got = SkellamServer(config, SEED).decode(ring_sum(config, words), survivors=10)
    expected = sum(clip_to_norm(LAYOUT.join(values), 1.0) for values in clients)
    # Each of ten roundings is within a unit per rotated coordinate; rotation keeps lengths.
    error = np.linalg.norm(LAYOUT.join(got) - expected)
    assert 0 < error <= 10 * math.sqrt(LAYOUT.size) / config.encoding.scale


def test_estimates_are_unbiased_and_as_noisy_as_stated(fixed_key: Callable[[int], None]) -> None:
    fixed_key(31)
    config = config_with(noise_multiplier=0.3)
    values = [contribution(seed, 0.1) for seed in range(9)]
    expected = sum(clip_to_norm(LAYOUT.join(each), 1.0) for each in values)
    errors = []
    for _ in range(300):
        words = [SkellamClient(config, SEED).protect(each) for each in values]
        got = SkellamServer(config, SEED).decode(ring_sum(config, words), survivors=9)
        errors.append(LAYOUT.join(got) - expected)
    spread = np.stack(errors) * config.encoding.scale
    variance = 9 * config.local_variance
    # Rounding adds at most a quarter of a unit squared per client.
    assert variance * 0.93 < spread.var() < (variance + 9 / 4) * 1.07
    limit = 5 * math.sqrt(spread.var() / len(errors))
    assert np.abs(spread.mean(axis=0)).max() < limit


def test_counts_and_weight_are_inside_the_clipped_and_noised_vector() -> None:
    config = config_with()
    (event,) = config.events(rounds=3)
    assert "rows, counts, weight" in event.covers
    large = {**contribution(1), "counts": np.full(5, 1e9), "weight": np.array([1e9])}
    integers = config.encoding.encode(large)
    assert int((integers**2).sum()) <= config.encoding.bound.l2_square


def test_event_states_sensitivity_variance_and_conditions() -> None:
    config = config_with()
    (event,) = config.events(rounds=7)
    bound = config.encoding.bound
    assert event.mechanism == SkellamNoise(
        l2_square=bound.l2_square, l1=bound.l1, variance=config.variance
    )
    assert event.mechanism.l1 <= min(
        math.sqrt(LAYOUT.size * bound.l2_square) * (1 + 1e-15), bound.l2_square
    )
    assert event.adjacency == "zero-out"
    assert (event.rounds, event.participation) == (7, "shows")
    assert event.distance == 12 * LAYOUT.size * config.table.distance
    assert event.wrap == config.wrap_probability
    assert any("8 clients" in clause for clause in event.assumes)
    assert any("2 of them collude" in clause for clause in event.assumes)


@pytest.mark.parametrize("variance", [3.0, 200.0])
@pytest.mark.parametrize("gap", [10.0, 40.0])
def test_wrap_bound_is_above_the_exact_probability(variance: float, gap: float) -> None:
    config = config_with(
        encoding=BoundedEncoding(
            contribution=Contribution(parts=(Part(name="rows", size=1),)), clip=1.0, fraction_bits=0
        ),
        noise_multiplier=math.sqrt(variance / 4) / 2,
        ring_bits=16,
        cohort=4,
        min_survivors=4,
        corrupt=0,
    )
    total = 4 * config.local_variance
    exact = 2 * stats.skellam.sf(gap - 1, total / 2, total / 2)
    assert exact <= config._noise_tail(gap)


@pytest.mark.claim("dp-no-wrap")
def test_a_ring_that_could_wrap_is_refused_and_a_wider_one_is_not() -> None:
    with pytest.raises(SumBudgetError, match=r"raise ring\.bits"):
        config_with(ring_bits=14)
    accepted = [bits for bits in range(10, 30) if _accepted(bits)]
    assert accepted == list(range(accepted[0], 30))
    assert config_with(ring_bits=accepted[0]).wrap_probability <= 2.0**-40


def _accepted(bits: int) -> bool:
    try:
        return config_with(ring_bits=bits).ring_bits == bits
    except SumBudgetError:
        return False


def test_rotation_lets_a_smaller_ring_hold_a_long_vector() -> None:
    layout = Contribution(parts=(Part(name="rows", size=4096),))
    encoding = BoundedEncoding(contribution=layout, clip=1.0, fraction_bits=12)
    config = config_with(
        encoding=encoding, noise_multiplier=0.1, cohort=100, min_survivors=80, ring_bits=18
    )
    # In the worst case one coordinate takes all: 100 clients x 4096 units need 20 bits.
    assert config.cohort * encoding.bound.peak > 2**17
    assert config.wrap_probability <= 2.0**-40


def test_the_second_use_of_a_round_is_refused() -> None:
    client = SkellamClient(config_with(), SEED)
    with pytest.raises(EncodingError):
        client.protect({**contribution(1), "weight": np.array([math.nan])})
    client.protect(contribution(1))  # a refused input left the state as it was
    with pytest.raises(ProtocolError, match="already"):
        client.protect(contribution(1))


@pytest.mark.parametrize("survivors", [0, 7, 13])
def test_sums_outside_the_floor_and_the_cohort_are_not_opened(survivors: int) -> None:
    config = config_with()
    words = np.zeros(LAYOUT.size, dtype=config.codec.dtype)
    with pytest.raises(ProtocolError, match="from 8 to 12"):
        SkellamServer(config, SEED).decode(words, survivors=survivors)


@pytest.mark.parametrize(
    "words",
    [
        np.zeros(LAYOUT.size - 1, dtype=np.uint32),
        np.zeros(LAYOUT.size, dtype=np.uint64),
        np.full(LAYOUT.size, 2**24, dtype=np.uint32),
    ],
)
def test_words_that_are_not_of_the_ring_are_refused(words: RingArray) -> None:
    with pytest.raises(WireError):
        SkellamServer(config_with(), SEED).decode(words, survivors=9)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": 1e300}, "noise_multiplier"),
        ({"noise_multiplier": 1e-300}, "noise_multiplier"),
        ({"ring_bits": 7}, "ring.bits"),
        ({"corrupt": -1}, "corrupt"),
        ({"corrupt": 8}, "min_survivors"),
        ({"min_survivors": 13}, "min_survivors"),
        ({"noise_multiplier": 1e4, "ring_bits": 64}, "fraction_bits"),
        (
            {"encoding": BoundedEncoding(contribution=LAYOUT, clip=1.0, fraction_bits=4, order=1)},
            "order",
        ),
    ],
)
def test_wrong_settings_are_refused_by_name(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        config_with(**changes)
