"""Layer "local-dp" over bags: what is added, on which grid, and what it costs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.accounting import claim
from secure_fedrec.errors import ConfigError, EncodingError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BagShape, LocalDPConfig
from secure_fedrec.protection.bags import NoisyVectors
from secure_fedrec.protection.dp import Event, GaussianNoise, LaplaceNoise
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Adversary, Step

SHAPES = {"users": BagShape(width=4, most=9), "items": BagShape(width=2, most=4)}
NOISES = ("rounded-gaussian", "discrete-gaussian", "discrete-laplace")


def layer_of(
    codec: FixedPoint | None = None, bags: Mapping[str, BagShape] = SHAPES, **settings: Any
) -> NoisyVectors:
    ring = FixedPoint() if codec is None else codec
    config = LocalDPConfig(**{"fraction_bits": 5, **settings})  # short tables of noise
    return NoisyVectors(config, bags=bags, codec=ring)


def vector_event(name: str, *, rounds: int = 1, **settings: Any) -> Event:
    """What one vector of a bag releases: what a client does that gives no more than one."""
    lone = {name: replace(SHAPES[name], most=1)}
    (event,) = layer_of(bags=lone, **settings).client_events(rounds=rounds)
    return event


@pytest.mark.parametrize("noise", NOISES)
def test_noise_has_the_stated_size_and_no_bias(noise: Any) -> None:
    layer = layer_of(noise=noise, noise_multiplier=0.7, clip=2.0, fraction_bits=7)
    vector = np.array([0.5, -0.25, 0.0, 1.0])  # within the clip in both norms
    noised = FixedPoint().decode(layer.protect("users", np.tile(vector, (4000, 1)))) - vector
    deviation = 0.7 * 2 * 2.0  # replacing a vector by any other moves it by up to twice the clip
    if noise == "discrete-laplace":
        deviation *= math.sqrt(2)  # scale to standard deviation
    assert noised.std() == pytest.approx(deviation, rel=0.05)
    assert np.abs(noised.mean(axis=0)).max() < 5 * deviation / math.sqrt(4000)
    columns = np.corrcoef(noised.T)
    assert np.abs(columns - np.eye(4)).max() < 0.08


@pytest.mark.parametrize(("noise", "norm"), [("rounded-gaussian", 2), ("discrete-laplace", 1)])
def test_every_vector_is_clipped_by_itself(noise: Any, norm: int) -> None:
    layer = layer_of(noise=noise, noise_multiplier=0.05, clip=0.5)
    long, short = np.array([3.0, 0.0, -4.0, 0.0]), np.array([0.1, 0.0, 0.0, 0.0])
    words = layer.protect("users", np.tile(np.stack([long, short]), (2000, 1)))
    means = FixedPoint().decode(words).reshape(2000, 2, 4).mean(axis=0)
    assert np.linalg.norm(means[0], norm) == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(means[1], short, atol=0.02)


def test_two_calls_draw_different_noise() -> None:
    vector = np.zeros((1, 4))
    layer = layer_of(noise_multiplier=1.0)
    assert layer.protect("users", vector).tolist() != layer.protect("users", vector).tolist()


@pytest.mark.parametrize("bits", [64, 40, 32])
def test_noisy_words_lie_on_the_coarser_grid_of_the_ring(bits: int) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=16, clip=8.0)
    layer = layer_of(codec, fraction_bits=6, noise_multiplier=2.0)
    words = layer.protect("users", np.full((50, 4), 0.25))
    assert words.dtype == codec.dtype
    integers = codec.to_integers(words)
    assert np.all(integers % 2 ** (16 - 6) == 0)
    assert len(np.unique(integers)) > 10
    assert int(words.max()) < 2**codec.bits


@pytest.mark.parametrize(
    ("codec", "settings", "problem"),
    [
        (FixedPoint(fraction_bits=8), {"fraction_bits": 9}, "bits after the point"),
        (FixedPoint(bits=20, fraction_bits=14, clip=1.0), {"fraction_bits": 1}, "after the point"),
        (FixedPoint(bits=20, fraction_bits=12, clip=4.0), {"noise_multiplier": 15.0}, "sums reach"),
    ],
)
def test_a_ring_without_room_for_the_noise_is_refused(
    codec: FixedPoint, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        layer_of(codec, **settings)
    assert isinstance(refused.value, SumBudgetError) == (problem == "sums reach")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"clip": 0.0}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"noise": "gaussian"}, "noise"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"fraction_bits": 41}, "fraction_bits"),
        ({"adjacency": "add-or-remove"}, "adjacency"),
    ],
)
def test_settings_out_of_range_name_their_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LocalDPConfig(**settings)
    assert refused.value.key == f"bag_protection.{key}"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(EncodingError):
        layer_of().protect("items", np.array([[0.0, bad]]))


def test_gaussian_noise_is_priced_per_vector_and_per_client() -> None:
    vector = vector_event("users", rounds=5, noise_multiplier=6.0)
    users, items = layer_of(noise_multiplier=6.0).client_events(rounds=5)
    assert vector.mechanism == GaussianNoise(multiplier=6.0, form="rounded")
    assert users.mechanism == GaussianNoise(multiplier=6.0 / 3, form="rounded")  # sqrt(9)
    assert items.mechanism == GaussianNoise(multiplier=6.0 / 2, form="rounded")  # sqrt(4)
    assert {event.rounds for event in (vector, users, items)} == {5}
    assert users.distance == pytest.approx(9 * vector.distance, rel=1e-9, abs=0)
    # Thirteen vectors of one client, one by one, cost what its two events do.
    client = claim((users, items), adversary="server", delta=1e-5)
    one_by_one = [
        vector_event(name, rounds=5, noise_multiplier=6.0)
        for name in ("users",) * 9 + ("items",) * 4
    ]
    assert client.epsilon == pytest.approx(
        claim(one_by_one, adversary="server", delta=1e-5).epsilon, rel=1e-9
    )
    alone = claim((vector,), adversary="server", delta=1e-5)
    assert 2 * alone.epsilon < client.epsilon
    assert client.rounds == 5
    assert "all vectors of one client in the bag 'users', up to 9 a round" in str(client)
    assert "in the bag 'users', up to 1 a round" in str(alone)
    assert "how many vectors a client gives is not protected" in str(client)


def test_laplace_noise_adds_pure_epsilons() -> None:
    layer = layer_of(noise="discrete-laplace", noise_multiplier=8.0)
    users, items = layer.client_events(rounds=1)
    vector = vector_event("users", noise="discrete-laplace", noise_multiplier=8.0)
    assert vector.mechanism == LaplaceNoise(epsilon=1 / 8)
    assert users.mechanism == LaplaceNoise(epsilon=9 / 8)
    assert items.mechanism == LaplaceNoise(epsilon=4 / 8)
    found = claim((users, items), adversary="release", delta=1e-12)
    assert found.epsilon <= 13 / 8
    assert found.adjacency == "replace"


def test_the_sensitivity_is_that_of_the_adjacency() -> None:
    """Twice the clip where any vector may stand in for any other: the noise doubles."""
    both = {name: layer_of(adjacency=name, clip=1.0) for name in ("replace", "zero-out")}
    spreads = {
        name: FixedPoint().decode(layer.protect("users", np.zeros((3000, 4)))).std()
        for name, layer in both.items()
    }
    assert spreads["replace"] == pytest.approx(2 * spreads["zero-out"], rel=0.05)
    mechanisms = {name: vector_event("users", adjacency=name, clip=1.0).mechanism for name in both}
    assert mechanisms["replace"] == mechanisms["zero-out"]


@pytest.mark.parametrize("routed", [False, True])
def test_the_layer_noises_what_leaves_and_nothing_else(drafts: Any, routed: bool) -> None:
    layers = drafts.noise(clip=1.0, noise_multiplier=0.5)
    if routed:
        layers |= drafts.mixes("real")
    run = drafts.run(layers)
    run.run_round()
    assert run.transcript.public["protection"]["bags"]["layers"] == list(layers)
    view = run.transcript.view(Adversary(name="server", corrupt=frozenset({"server"})))
    codec = view.codec
    for name, shape in drafts.bags.items():
        block = view.messages(Step.BAG, 1, payload=True, bag=name).payload
        assert isinstance(block, SetBlock) and block.values is not None
        seen = codec.decode(block.values)
        bag = run.engine.public.extras[name]
        assert sorted(seen.tolist()) == bag.tolist()
        assert bag.shape == (sum(drafts.counts), shape.width)
        exact = {tuple(vector) for vector in drafts.vectors(name).tolist()}
        assert not exact & {tuple(vector) for vector in bag.tolist()}
    assert run.engine.public.table.tolist() == [[float(sum(drafts.counts))]]
