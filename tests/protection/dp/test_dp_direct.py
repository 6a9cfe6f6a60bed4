"""Local and central noise: who adds it, what is stated, and sums that cannot leave the ring."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from secure_fedrec.accounting import claim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    ProtocolError,
    SumBudgetError,
    WireError,
)
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    CentralNoise,
    Contribution,
    DirectNoiseConfig,
    GaussianNoise,
    LaplaceNoise,
    LocalNoise,
    Part,
    Sampling,
)

LAYOUT = Contribution(parts=(Part(name="rows", size=7), Part(name="counts", size=2, scale=0.5)))


def config_with(**changes: object) -> DirectNoiseConfig:
    noise = changes.get("noise", "discrete-gaussian")
    order = 1 if noise == "discrete-laplace" else 2
    fields: dict[str, object] = {
        "encoding": BoundedEncoding(
            contribution=LAYOUT,
            clip=1.0,
            fraction_bits=5,
            order=order,  # type: ignore[arg-type]
        ),
        "noise": noise,
        "noise_multiplier": 1.5,
        "place": "local",
        "ring_bits": 24,
        "cohort": 30,
        **changes,
    }
    return DirectNoiseConfig(**fields)  # type: ignore[arg-type]


def values(seed: int) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    return {"rows": rng.normal(size=7) * 0.2, "counts": np.array([1.0, 0.0])}


@pytest.mark.parametrize("noise", ["discrete-gaussian", "rounded-gaussian", "discrete-laplace"])
def test_local_noise_is_on_every_upload_and_has_the_stated_size(
    noise: str, fixed_key: Callable[[int], None]
) -> None:
    fixed_key(3)
    config = config_with(noise=noise)
    client = LocalNoise(config)
    sent = np.stack([config.codec.to_integers(client.protect(values(1))) for _ in range(3000)])
    expected = LAYOUT.join(values(1)) * config.encoding.scale
    expected *= min(1.0, 1.0 / float(np.linalg.norm(expected / 32, config.encoding.order)))
    # Every coordinate is noised, also those of rows the client did not touch.
    variance = config.table.variance
    assert np.all(sent.var(axis=0) > 0.85 * variance)
    assert np.all(sent.var(axis=0) < 1.15 * (variance + 0.25))
    assert np.all(np.abs(sent.mean(axis=0) - expected) < 5 * np.sqrt(1.1 * variance / 3000))


def test_laplace_scale_is_sensitivity_over_epsilon() -> None:
    config = config_with(noise="discrete-laplace", noise_multiplier=2.0)
    (event,) = config.events(rounds=4)
    assert event.mechanism == LaplaceNoise(epsilon=0.5)
    assert config.table.parameter == 2.0 * config.encoding.bound.l1
    assert config.encoding.bound.l1 == config.encoding.bound.limit


def test_replacing_costs_twice_the_noise_of_zeroing() -> None:
    zero, replace = config_with(), config_with(adjacency="replace")
    assert replace.sensitivity == 2 * zero.sensitivity
    assert replace.table.parameter == 2 * zero.table.parameter
    assert replace.events(rounds=1)[0].adjacency == "replace"


def test_local_noise_protects_from_the_server_and_central_noise_does_not() -> None:
    (local,) = config_with().events(rounds=1)
    (central,) = config_with(place="central").events(rounds=1)
    assert local.noised_against == ("server", "release")
    assert central.noised_against == ("release",)
    assert any("trusted" in clause for clause in central.assumes)
    assert local.mechanism == GaussianNoise(multiplier=1.5, form="discrete")
    with pytest.raises(ConfigError, match="secret_from"):
        config_with().events(rounds=1, sampling=Sampling(rate=0.5, secret_from=("server",)))


def test_sampling_amplifies_a_trusted_servers_noise_and_none_that_clients_bring() -> None:
    secret = Sampling(rate=0.1, secret_from=("release",))
    local = config_with(noise="rounded-gaussian").events(rounds=1, sampling=secret)
    central = config_with(noise="rounded-gaussian", place="central")
    sampled = central.events(rounds=1, sampling=secret)
    with pytest.raises(ConfigError, match=r"dp\.sampling\.rate = 0\.1"):
        claim(local, adversary="release", delta=1e-5)
    assert claim(local, adversary="server", delta=1e-5).epsilon > 0
    found = claim(sampled, adversary="release", delta=1e-5)
    assert found.epsilon < claim(central.events(rounds=1), adversary="release", delta=1e-5).epsilon
    assert "no count of who took part" in str(found)


def test_a_round_of_nobody_is_released_with_a_trusted_servers_noise() -> None:
    config = config_with(place="central")
    nobody = np.zeros(LAYOUT.size, dtype=config.codec.dtype)
    released = LAYOUT.join(CentralNoise(config).release(nobody, clients=0))
    assert np.any(released != 0)
    local = config_with()
    with pytest.raises(ProtocolError, match="1 to"):
        LocalNoise(local).decode(np.zeros(LAYOUT.size, dtype=local.codec.dtype), clients=0)


def test_local_sums_decode_to_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "secure_fedrec.protection.dp.direct.draw_noise", lambda _, n: np.zeros(n, np.int64)
    )
    config = config_with()
    client = LocalNoise(config)
    total = np.zeros(LAYOUT.size, dtype=config.codec.dtype)
    for seed in range(20):
        total += client.protect(values(seed))
    total &= np.uint32(2**24 - 1)
    got = LAYOUT.join(client.decode(total, clients=20))
    expected = sum(LAYOUT.join(values(seed)) for seed in range(20))
    assert np.abs(got - expected).max() <= 20 / config.encoding.scale


def test_central_noise_is_added_to_the_sum_once(fixed_key: Callable[[int], None]) -> None:
    fixed_key(9)
    config = config_with(place="central", noise="rounded-gaussian")
    central = CentralNoise(config)
    total = sum(central.encode(values(seed)).astype(np.uint64) for seed in range(10))
    ring = (np.asarray(total) & np.uint64(2**24 - 1)).astype(np.uint32)
    clear = config.encoding.decode(config.codec.to_integers(ring))
    noised = np.stack(
        [LAYOUT.join(central.release(ring, clients=10)) for _ in range(2000)]
    ) - LAYOUT.join(clear)
    variance = (noised * config.encoding.scale).var()
    assert variance == pytest.approx(config.table.variance, rel=0.05)


@pytest.mark.parametrize("place", ["local", "central"])
def test_the_largest_sum_just_fits_or_is_refused(place: str) -> None:
    config = config_with(place=place)
    bits = config._largest_sum.bit_length() + 1
    assert config_with(place=place, ring_bits=bits)._largest_sum <= 2 ** (bits - 1) - 1
    with pytest.raises(SumBudgetError, match=f"at least {bits} bits"):
        config_with(place=place, ring_bits=bits - 1)


def test_wrong_words_counts_and_places_are_refused() -> None:
    config = config_with()
    words = np.zeros(LAYOUT.size, dtype=np.uint32)
    for clients in (0, 31):
        with pytest.raises(ProtocolError, match="30 clients"):
            LocalNoise(config).decode(words, clients=clients)
    with pytest.raises(WireError):
        LocalNoise(config).decode(words[1:], clients=3)
    with pytest.raises(WireError):
        LocalNoise(config).decode(words + np.uint32(2**24), clients=3)
    with pytest.raises(ConfigError, match="central"):
        CentralNoise(config)
    with pytest.raises(ConfigError, match="local"):
        LocalNoise(config_with(place="central"))
    with pytest.raises(EncodingError, match="NaN"):
        LocalNoise(config).protect({**values(1), "counts": np.array([0.0, math.nan])})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"noise": "gaussian"}, "noise"),
        ({"noise": "discrete-laplace", "encoding": config_with().encoding}, "order"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"place": "nowhere"}, "place"),
        ({"adjacency": "add"}, "adjacency"),
        ({"ring_bits": 65}, "ring.bits"),
        ({"cohort": 0}, "cohort"),
    ],
)
def test_wrong_settings_are_refused_by_name(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        config_with(**changes)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_sampling_rates_are_probabilities(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        Sampling(rate=rate, secret_from=("release",))


def test_a_sample_that_everybody_sees_amplifies_nothing() -> None:
    with pytest.raises(ConfigError, match="all parties see"):
        Sampling(rate=0.5)
    sampling = Sampling(rate=0.5, secret_from=("release",))
    assert (sampling.against("server"), sampling.against("release")) == (1.0, 0.5)
