"""An outsider tells from the energy of a noised sum whether one more client brought noise to it.

Cohorts are secret Poisson samples. The outsider knows who else took part, and asks of one client
whether its update or zeros went in. Energy shows that the client took part, and then its noise
protects it as much as in a round of which everybody knows the cohort.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from secure_fedrec.accounting import claim, gaussian_events, skellam_events
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import BagShape, LocalDPConfig, NoisyVectors
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    DirectNoiseConfig,
    Event,
    Part,
    Sampling,
    SkellamClient,
    SkellamConfig,
    draw_noise,
    noise_table,
)

pytestmark = pytest.mark.claim("no-amplification")

RATE, DELTA, OTHERS, SIZE = 0.1, 1e-5, 20, 2**16
SECRET = Sampling(rate=RATE, secret_from=("release",))
THRESHOLD = 1 + 0.6 / OTHERS
"""Energy over the others' from which a sum says that the client took part."""

REACH = 4.1
"""Distance along the update, over its norm, from which a sum says that the update went in."""

DOUBT = 1e-6
"""Probability at most with which one measured probability is out of its bound."""

ENCODING = BoundedEncoding(
    contribution=Contribution(parts=(Part(name="update", size=SIZE),)), clip=1.0, fraction_bits=12
)
CONFIG = SkellamConfig(
    encoding=ENCODING,
    noise_multiplier=1.0,
    ring_bits=32,
    cohort=10 * OTHERS,
    min_survivors=OTHERS,
    corrupt=0,
)


def noise_of(clients: int, count: int) -> np.ndarray:
    """Noise of so many clients in so many coordinates; one draw each, the family is closed."""
    return draw_noise(noise_table("skellam", clients * CONFIG.local_variance), count)


def energy(noise: np.ndarray) -> float:
    return float(np.mean(np.square(noise, dtype=np.float64)) / (OTHERS * CONFIG.local_variance))


def at_most(hits: int, trials: int) -> float:
    """Clopper-Pearson."""
    return float(stats.beta.ppf(1 - DOUBT, hits + 1, trials - hits))


@dataclass(frozen=True)
class Attack:
    """Probabilities of "took part, and with the update"; the client flips its coin of RATE.

    Args:
        missed: that energy misses the client, at most.
        imagined: that energy sees it in a round without it, at most.
        hit: that the sum reaches far enough with the update in it, at least.
        false_hit: that it does with zeros, at most.
    """

    missed: float
    imagined: float
    hit: float
    false_hit: float

    @property
    def epsilon(self) -> float:
        """Epsilon at DELTA, at least: P[update] <= e^epsilon P[zeros] + DELTA."""
        # Energy is taken over the coordinates across the update, independent of the one along it.
        found = RATE * (1 - self.missed) * self.hit
        wrongly = (RATE + (1 - RATE) * self.imagined) * self.false_hit
        return math.log((found - DELTA) / wrongly)


@pytest.fixture(scope="module")
def measured() -> Attack:
    trials = 1200
    imagined = sum(energy(noise_of(OTHERS, SIZE)) >= THRESHOLD for _ in range(trials))
    missed = sum(energy(noise_of(OTHERS + 1, SIZE)) < THRESHOLD for _ in range(trials))
    # The client's update lies along one coordinate of the rotated vector.
    norm, draws = math.sqrt(ENCODING.bound.l2_square), 2**20
    hits = false_hits = 0
    for _ in range(40):
        along = noise_of(OTHERS + 1, draws)
        hits += int(np.count_nonzero(along + norm >= REACH * norm))
        false_hits += int(np.count_nonzero(along >= REACH * norm))
    assert false_hits > 1000
    return Attack(
        missed=at_most(missed, trials),
        imagined=at_most(imagined, trials),
        hit=1 - at_most(40 * draws - hits, 40 * draws),
        false_hit=at_most(false_hits, 40 * draws),
    )


def test_energy_of_the_clients_own_uploads_is_what_is_measured() -> None:
    nothing = {"update": np.zeros(SIZE)}
    for clients, shows in ((OTHERS, False), (OTHERS + 1, True)):
        for seed in range(3):
            total = np.zeros(SIZE, dtype=np.int64)
            for _ in range(clients):
                words = SkellamClient(CONFIG, bytes([seed] * 32)).protect(nothing)
                total += CONFIG.codec.to_integers(words)
            assert (energy(total) >= THRESHOLD) is shows


def test_what_may_be_claimed_is_not_below_what_energy_shows(measured: Attack) -> None:
    (event,) = CONFIG.events(rounds=1)
    falsely = replace(event, sampling=SECRET, participation="hidden")
    amplified = claim([falsely], adversary="release", delta=DELTA).epsilon
    assert amplified == pytest.approx(2.327, abs=1e-3)
    assert amplified + 0.9 < measured.epsilon
    with pytest.raises(
        ConfigError, match=r"dp\.sampling\.rate = 0\.1: .*shows which clients take part"
    ):
        claim([replace(event, sampling=SECRET)], adversary="release", delta=DELTA)
    for reader in ("release", "server"):
        assert claim([event], adversary=reader, delta=DELTA).epsilon >= measured.epsilon


def test_the_exact_law_of_the_noise_allows_no_less(measured: Attack) -> None:
    share, norm = CONFIG.local_variance / 2, math.sqrt(ENCODING.bound.l2_square)
    noise = stats.skellam((OTHERS + 1) * share, (OTHERS + 1) * share)
    exact = max(
        math.log((RATE * noise.sf((reach - 1) * norm) - DELTA) / (RATE * noise.sf(reach * norm)))
        for reach in np.linspace(4, 4.6, 25)
    )
    assert measured.epsilon < exact
    assert exact == pytest.approx(3.69, abs=0.02)
    assert claim(CONFIG.events(rounds=1), adversary="release", delta=DELTA).epsilon >= exact


def local_noise() -> Sequence[Event]:
    return DirectNoiseConfig(
        encoding=replace(ENCODING, contribution=Contribution(parts=(Part(name="rows", size=9),))),
        noise="rounded-gaussian",
        noise_multiplier=1.0,
        place="local",
        ring_bits=32,
        cohort=30,
    ).events(rounds=1)


def noise_in_bags() -> Sequence[Event]:
    shapes = {"users": BagShape(width=4, most=9)}
    layer = NoisyVectors(LocalDPConfig(fraction_bits=5), bags=shapes, codec=FixedPoint())
    return layer.client_events(rounds=1)


@pytest.mark.parametrize(
    "events",
    [
        lambda: CONFIG.events(rounds=1),
        lambda: skellam_events(1.0, ENCODING, rounds=1),
        lambda: gaussian_events(1.0, rounds=1),
        local_noise,
        noise_in_bags,
    ],
    ids=["skellam", "planned skellam", "planned gaussian", "local", "bags"],
)
def test_no_noise_that_clients_bring_is_amplified(
    events: Callable[[], Sequence[Event]],
) -> None:
    sampled = [replace(event, sampling=SECRET) for event in events()]
    with pytest.raises(ConfigError, match=r"dp\.(sampling\.rate|adjacency)"):
        claim(sampled, adversary="release", delta=DELTA)
    assert claim(events(), adversary="release", delta=DELTA).epsilon > 0
