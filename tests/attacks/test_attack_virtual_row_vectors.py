"""Virtual rows that denoisers collect: private vectors, certain and right, or nothing."""

from typing import Any

import numpy as np
import pytest

from attacks import Finding
from attacks.families.linkage import vector_along
from attacks.families.sums.decoded import SURE_BITS
from attacks.scoring.measures import severity_of
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import Adversary
from tests.attacks.configured import found, recorded_as

DENOISERS = Adversary(name="denoisers", corrupt=frozenset({"denoisers"}))
ONE = Adversary(name="one", corrupt=frozenset({"denoiser:1"}), taps=frozenset({"network"}))
LEVELS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
UNIT = 2.0**-32
HELPED = ({"layer": "virtual-ratings"}, {"layer": "denoisers", "count": 4})
RANDOM = ({"layer": "randomized-response"}, {"layer": "denoisers", "count": 4})


def pmf(*layers: dict[str, Any], who: Adversary = DENOISERS, **algorithm: Any) -> Finding:
    settings = {"name": "pmf", "rank": 4, "rounds": 3, **algorithm}
    items = 300 if algorithm.get("biases") else 60
    recorded = recorded_as(settings, *layers, items=items, mean_ratings=12.0)
    return found("virtual-row-vectors", recorded, who)


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize(
    ("layers", "who", "algorithm", "exposed"),
    [
        (HELPED, DENOISERS, {}, 36),
        (HELPED, ONE, {}, 9),
        ((*HELPED, {"layer": "routing"}), DENOISERS, {}, 36),
        (HELPED, DENOISERS, {"biases": True}, 36),
        (RANDOM, DENOISERS, {"biases": True}, 30),
        (HELPED, DENOISERS, {"rank": 1, "normalise_ratings": False}, 10),
        (HELPED, DENOISERS, {"rank": 1}, 10),
        (HELPED, ONE, {"rank": 1}, 1),
    ],
    ids=[
        "all",
        "one of four",
        "routing",
        "biases",
        "randomized response",
        "one value",
        "its side open",
        "one, open",
    ],
)
def test_single_messages_give_private_vectors(
    layers: tuple[dict[str, Any], ...], who: Adversary, algorithm: dict[str, Any], exposed: int
) -> None:
    finding = pmf(*layers, who=who, **algorithm)
    assert finding.figures["clients_exposed"] is not None
    assert finding.figures["clients_exposed"] >= exposed
    assert finding.figures["disclosures_wrong"] == 0
    assert severity_of(finding.figures) == "critical"


def made(
    rng: np.random.Generator, rank: int, rows: int, ratings: FloatArray, unit: float = UNIT
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A vector, rows along it as they are sent, and the public rows."""
    vector, public = rng.normal(size=rank), 0.3 * rng.normal(size=(rows, rank))
    sent = (ratings - public @ vector)[:, None] * vector
    return vector, np.round(sent / unit) * unit, public


def test_mean_ratings_give_the_length_and_the_side() -> None:
    rng = np.random.default_rng(1)
    for rank in range(1, 9):
        vector, rows, public = made(rng, rank, 6, np.full(6, rng.uniform(1, 5)))
        told = vector_along(rows, public, rank, LEVELS, UNIT, SURE_BITS)
        assert told is not None and told[1] == "nothing"
        assert np.allclose(told[0], vector, rtol=1e-5, atol=1e-7)


def test_a_scale_around_zero_leaves_the_side_open() -> None:
    rng = np.random.default_rng(3)
    around = np.linspace(-1.0, 1.0, 9)
    for rank in range(1, 9):
        vector, rows, public = made(rng, rank, 6, np.full(6, rng.uniform(-1, 1)))
        told = vector_along(rows, public, rank, around, UNIT, SURE_BITS)
        assert told is not None and told[1] == "side"
        assert np.allclose(min(told[0], -told[0], key=lambda v: abs(v - vector).max()), vector)


def test_other_ratings_give_the_direction() -> None:
    rng = np.random.default_rng(2)
    for rank in range(2, 9):
        vector, rows, public = made(rng, rank, 6, rng.uniform(1, 5, 6))
        told = vector_along(rows, public, rank, LEVELS, UNIT, SURE_BITS)
        assert told is not None and told[1] == "length"
        assert abs(told[0] @ vector) == pytest.approx(np.linalg.norm(vector))


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_certain_of_rows_that_tell_nothing(seed: int) -> None:
    """Two rows, predicted ratings, rows of two clients, one value with drawn ratings, noise."""
    rng = np.random.default_rng(seed)
    rank, count = int(rng.integers(2, 7)), int(rng.integers(3, 9))
    _, rows, public = made(rng, rank, count, np.full(count, 3.0))
    other = made(rng, rank, count, np.full(count, 3.0))[1]
    mixed = np.where(np.arange(count)[:, None] % 2 == 0, rows, other)
    noise = rng.normal(size=rows.shape)
    for sent in (0.0 * rows, mixed, rows + 1e-3 * noise, noise):
        assert vector_along(sent, public, rank, LEVELS, UNIT, SURE_BITS) is None
    assert vector_along(rows[:2], public[:2], rank, LEVELS, UNIT, SURE_BITS) is None
    _, one, scale = made(rng, 1, count, rng.uniform(1, 5, count))
    assert vector_along(one, scale, 1, LEVELS, UNIT, SURE_BITS) is None
    coarse = 0.25
    _, few, public = made(rng, 2, 3, np.full(3, 3.0), coarse)
    assert vector_along(few, public, 2, LEVELS, coarse, SURE_BITS) is None


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize("seed", range(20))
def test_federations_of_odd_shapes_are_never_wrong(seed: int) -> None:
    """Where something is certain it is right; without virtual rows nothing is to be had."""
    rng = np.random.default_rng(seed)
    settings = {
        "name": "pmf",
        "rank": int(rng.integers(1, 9)),
        "rounds": 3,
        "biases": bool(rng.integers(2)),
    }
    clients = int(rng.integers(12, 40))
    shape: dict[str, Any] = {
        "clients": clients,
        "items": int(rng.integers(20, 90)),
        "mean_ratings": 6.0,
    }
    filled = {"layer": "virtual-ratings", "rho": float(rng.choice([0.2, 1.0, 3.0]))}
    helped = {"layer": "denoisers", "count": int(rng.integers(1, 5))}
    ring = {"fraction_bits": int(rng.choice([6, 10, 16, 32]))}
    recorded = recorded_as(settings, filled, helped, seed=seed, ring=ring, **shape)
    finding = found("virtual-row-vectors", recorded, DENOISERS)
    assert finding.figures["disclosures_wrong"] == 0
    silent = recorded_as(settings, helped, seed=seed, **shape)
    nothing = found("virtual-row-vectors", silent, DENOISERS)
    assert severity_of(nothing.figures) == "info" or not nothing.measured
