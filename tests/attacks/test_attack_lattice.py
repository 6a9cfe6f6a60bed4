"""The lattice decode against planted uploads whose every secret is known."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import Claims, GroundTruth, NotApplicable, evaluate
from attacks.families.ratings.lattice import Lattice
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.tables import ScoreTable
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import VirtualRatingsConfig
from secure_fedrec.wire import Adversary, BlockStore, Transcript, View
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import LatticeAt, mean_auc_interval, predicted_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
STARS = np.arange(1.0, 6.0)
HALF_STARS = np.arange(0.5, 5.25, 0.5)
N_ITEMS = 120
WIDE = FixedPoint()
NARROW = FixedPoint(bits=32, fraction_bits=24, clip=64.0)


@dataclass(frozen=True)
class Secret:
    """What a planted client hides: its vector, and a rating, true or made up, per item."""

    vector: FloatArray
    items: IntArray
    ratings: FloatArray
    real: BoolArray


def secret(
    rng: np.random.Generator,
    table: FloatArray,
    *,
    ratings: FloatArray,
    rho: int,
    filling: str,
    size: float,
    vector: FloatArray | None = None,
) -> Secret:
    """A client with given real ratings and rho virtual ones for each."""
    total = len(ratings) * (1 + rho)
    items = np.sort(rng.choice(len(table), total, replace=False)).astype(np.int64)
    real = rng.permutation(np.arange(total) < len(ratings))
    own: FloatArray = vector if vector is not None else rng.uniform(-size, size, (table.shape[1],))
    values = np.full(total, ratings.mean())
    if filling == "predicted":  # by a copy of the vector that took steps of its own
        values = table[items] @ (own + rng.normal(0, 0.3, len(own))) + rng.uniform(1, 5, total)
    values[real] = ratings
    return Secret(vector=own, items=items, ratings=values, real=real)


def view_of(
    secrets: Sequence[Secret],
    table: FloatArray,
    *,
    levels: FloatArray = STARS,
    codec: FixedPoint = WIDE,
    regularization: float = 0.05,
    noise: float = 0.0,
    seed: int = 0,
) -> View:
    """The server's view of one round in which these clients upload."""
    rng = np.random.default_rng(seed)
    rows = []
    for one in secrets:
        vectors = table[one.items]
        residuals = one.ratings - vectors @ one.vector
        exact = -residuals[:, None] * one.vector + regularization * vectors
        rows.append(exact + noise * rng.standard_normal(exact.shape))
    lengths = np.array([len(one.items) for one in secrets], dtype=np.int64)
    store = BlockStore(None)
    store.append(1, "model", {"table": table})
    upload: Columns = {
        "senders": np.arange(len(secrets), dtype=np.int64),
        "receivers": np.zeros(len(secrets), dtype=np.int64),
        "sizes": lengths,
        "lengths": lengths,
        "rows": np.concatenate([one.items for one in secrets]).astype(np.uint16),
        "values": codec.encode(np.concatenate(rows)),
    }
    store.append(1, "upload", upload)
    public = {
        "n_clients": len(secrets),
        "n_items": len(table),
        "rating_levels": levels.tolist(),
        "ring": {"bits": codec.bits, "fraction_bits": codec.fraction_bits, "clip": codec.clip},
        "algorithm": {
            "regularization": regularization,
            "biases": False,
            "traits": {"form": "factorized"},
        },
        "protection": {"layers": []},
    }
    return Transcript(store, public).view(SERVER)


def decode(view: View) -> Claims:
    claims = Lattice().run(view)
    assert isinstance(claims, Claims)
    return claims


def assert_recovered(claims: Claims, secrets: Sequence[Secret], *, precision: float) -> None:
    """Rated set, ratings and vector of every client, exactly."""
    for client, one in enumerate(secrets):
        expected = np.zeros(N_ITEMS, dtype=bool)
        expected[one.items[one.real]] = True
        np.testing.assert_array_equal(predicted_of(claims)[client], expected)
        mine = claims.of(RatingClaim)[0].clients == client
        np.testing.assert_array_equal(claims.of(RatingClaim)[0].items[mine], one.items)
        np.testing.assert_array_equal(
            claims.of(RatingClaim)[0].ratings[mine][one.real], one.ratings[one.real]
        )
        error = np.linalg.norm(claims.of(VectorClaim)[0].vectors[client] - one.vector)
        assert error <= precision * np.linalg.norm(one.vector)


def off_the_scale(rng: np.random.Generator, levels: FloatArray, count: int) -> FloatArray:
    """Ratings whose mean is not a rating itself, at least three of them different."""
    while True:
        drawn = rng.choice(levels, count)
        distance = np.abs(drawn.mean() - levels).min()
        if len(np.unique(drawn)) >= 3 and distance > 0.02 * (levels[1] - levels[0]):
            return drawn


# --- what it recovers -----------------------------------------------------------------------------


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    rho=st.sampled_from([0, 1, 3]),
    filling=st.sampled_from(["average", "predicted"]),
    levels=st.sampled_from([STARS, HALF_STARS]),
    size=st.sampled_from([0.005, 0.1, 1.5]),
    regularization=st.sampled_from([0.0, 0.001, 0.5]),
    count=st.integers(5, 30),
)
def test_noiseless_uploads_are_decoded_exactly(
    seed: int,
    rho: int,
    filling: str,
    levels: FloatArray,
    size: float,
    regularization: float,
    count: int,
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.uniform(-size, size, (N_ITEMS, 6))
    planted = [
        secret(
            rng,
            table,
            ratings=off_the_scale(rng, levels, count),
            rho=rho,
            filling=filling,
            size=size,
        )
        for _ in range(4)
    ]
    claims = decode(view_of(planted, table, levels=levels, regularization=regularization))
    assert_recovered(claims, planted, precision=1e-4)


@pytest.mark.parametrize("rho", [0, 1, 3])
@pytest.mark.parametrize("levels", [STARS, HALF_STARS], ids=["stars", "half-stars"])
def test_grown_vectors_are_decoded_in_a_32_bit_ring(rho: int, levels: FloatArray) -> None:
    rng = np.random.default_rng(rho)
    table = rng.uniform(-1, 1, (N_ITEMS, 8))
    planted = [
        secret(
            rng,
            table,
            ratings=off_the_scale(rng, levels, 20),
            rho=rho,
            filling="average",
            size=1.0,
        )
        for _ in range(20)
    ]
    claims = decode(view_of(planted, table, levels=levels, codec=NARROW))
    assert_recovered(claims, planted, precision=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_of_the_vector_is_found(sign: float) -> None:
    """The singular vector comes with either sign: U and -U must both be told from the rows."""
    rng = np.random.default_rng(5)
    table = rng.uniform(-1, 1, (N_ITEMS, 4))
    vector = sign * np.array([0.9, -0.2, 0.4, 0.7])
    ratings = np.array([1.0, 2.0, 2.0, 5.0, 4.0, 3.0])
    one = secret(rng, table, ratings=ratings, rho=1, filling="average", size=1.0, vector=vector)
    assert_recovered(decode(view_of([one], table)), [one], precision=1e-6)


@pytest.mark.parametrize("level", STARS)
@pytest.mark.parametrize("size", [0.005, 1.0])
def test_a_client_whose_ratings_are_all_equal_is_decoded(level: float, size: float) -> None:
    """Only the curvature in s tells "all fours" from "all twos"."""
    rng = np.random.default_rng(int(level))
    table = rng.uniform(-size, size, (N_ITEMS, 6))
    planted = [
        secret(rng, table, ratings=np.full(12, level), rho=0, filling="average", size=size)
        for _ in range(5)
    ]
    assert_recovered(decode(view_of(planted, table)), planted, precision=1e-3)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_client_with_few_ratings_is_decoded(count: int) -> None:
    rng = np.random.default_rng(count)
    table = rng.uniform(-1, 1, (N_ITEMS, 6))
    planted = [
        secret(
            rng,
            table,
            ratings=off_the_scale(rng, STARS, count),
            rho=1,
            filling="average",
            size=1.0,
        )
        for _ in range(30)
    ]
    assert_recovered(decode(view_of(planted, table)), planted, precision=1e-4)


def test_an_empty_upload_among_others_claims_nothing() -> None:
    rng = np.random.default_rng(3)
    table = rng.uniform(-1, 1, (N_ITEMS, 6))
    ratings = off_the_scale(rng, STARS, 8)
    full = secret(rng, table, ratings=ratings, rho=1, filling="average", size=1.0)
    nothing = Secret(
        vector=np.ones(6),
        items=np.empty(0, dtype=np.int64),
        ratings=np.empty(0),
        real=np.empty(0, dtype=bool),
    )
    claims = decode(view_of([nothing, full], table))
    assert not predicted_of(claims)[0].any()
    assert not rated_of(claims).visible[0].any()
    np.testing.assert_array_equal(np.flatnonzero(predicted_of(claims)[1]), full.items[full.real])


def test_scores_order_real_before_virtual_before_unseen() -> None:
    rng = np.random.default_rng(4)
    table = rng.uniform(-1, 1, (N_ITEMS, 6))
    ratings = off_the_scale(rng, STARS, 15)
    one = secret(rng, table, ratings=ratings, rho=3, filling="predicted", size=1.0)
    rated = rated_of(decode(view_of([one], table)))
    scores = rated.scores[0]
    np.testing.assert_array_equal(np.flatnonzero(rated.visible[0]), one.items)
    assert scores[one.items[one.real]].min() > scores[one.items[~one.real]].max()
    assert scores[one.items].min() > scores[~rated.visible[0]].max()


# --- where it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1, 3])
def test_a_mean_on_the_scale_hides_the_virtual_rows(rho: int) -> None:
    """The documented limit: such a client's average-filled rows are true ratings to the eye."""
    rng = np.random.default_rng(rho)
    table = rng.uniform(-1, 1, (N_ITEMS, 6))
    ratings = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 2.0, 4.0])
    one = secret(rng, table, ratings=ratings, rho=rho, filling="average", size=1.0)
    claims = decode(view_of([one], table))
    np.testing.assert_array_equal(predicted_of(claims), rated_of(claims).visible)
    np.testing.assert_array_equal(claims.of(RatingClaim)[0].ratings[one.real], ratings)
    np.testing.assert_array_equal(claims.of(RatingClaim)[0].ratings[~one.real], 3.0)


def test_noise_closes_the_lattice_step_by_step() -> None:
    """More noise never helps beyond the interval, none is perfect, and a lot leaves chance."""
    rng = np.random.default_rng(11)
    table = rng.uniform(-1, 1, (N_ITEMS, 6))
    planted = [
        secret(
            rng,
            table,
            ratings=off_the_scale(rng, STARS, 20),
            rho=1,
            filling="average",
            size=1.0,
        )
        for _ in range(60)
    ]
    found = []
    for noise in (0.0, 0.01, 0.1, 0.5, 5.0):
        rated = rated_of(decode(view_of(planted, table, noise=noise)))
        scores = [rated.scores[client][one.items] for client, one in enumerate(planted)]
        support = ScoreTable(
            indptr=np.cumsum([0, *map(len, scores)], dtype=np.int64),
            scores=np.concatenate(scores),
            labels=np.concatenate([one.real for one in planted]),
        )
        found.append(mean_auc_interval(support, seed=0))
    assert found[0].value == 1.0
    for less, more in itertools.pairwise(found):
        assert more.value <= less.high
    assert found[-1].high < found[1].low
    # Residuals of real ratings are larger than those of means: what is left is no lattice.
    assert abs(found[-1].value - 0.5) < 0.1


def test_langevin_noise_of_a_trained_federation_degrades_it(
    federate: Federate, server: Adversary
) -> None:
    aucs = []
    for temperature in (0.0, 1e-3, 1.0):
        config = PMFConfig.printed(rank=6, rounds=6, init_scale=0.3, temperature=temperature)
        cloak = VirtualRatingsConfig(rho=1.0, filling="predicted")
        run, truth = federate(algorithm=config, cloak=cloak)
        figures = evaluate(Lattice(), server, run.transcript, truth, seed=0).figures
        assert figures["support_auc"] is not None
        aucs.append(figures["support_auc"])
    assert aucs[0] > 0.99
    assert aucs[0] > aucs[1] + 0.1
    assert aucs[1] >= aucs[2] - 0.05
    assert abs(aucs[2] - 0.5) < 0.1


# --- a trained federation -------------------------------------------------------------------------


@pytest.mark.parametrize(("round_", "rho"), [(1, 0.0), (1, 1.0), (1, 3.0), (14, 1.0), (14, 3.0)])
def test_a_recorded_federation_is_read_from_one_round(
    federate: Federate, server: Adversary, round_: int, rho: float
) -> None:
    """Ratings of everybody, and the vector at the start of the round, averages or predictions."""
    run, truth = federate(
        algorithm=PMFConfig.printed(rank=6, rounds=14),
        cloak=VirtualRatingsConfig(rho=rho) if rho else None,
        rounds=14,
        payload_rounds=(1, 14),
    )
    finding = evaluate(LatticeAt(round_), server, run.transcript, truth, seed=0)
    assert finding.rounds == (round_,)
    figures = {name: value or 0.0 for name, value in finding.figures.items()}
    counts = truth.ratings.counts()
    tiny = float(np.mean(counts < 3))  # one or two ratings may fit another scale as well
    assert figures["rating_accuracy"] >= 0.99
    assert figures["recall"] >= 1 - tiny
    assert figures["user_vector_share"] >= 1 - tiny
    assert figures["user_vector_cosine"] == pytest.approx(1.0, abs=1e-6)
    totals = np.bincount(truth.ratings.clients, weights=truth.ratings.ratings)
    on_scale = float(np.mean(totals % counts == 0)) if round_ == 1 and rho else 0.0
    # Averages on the scale hide; of the predictions, a few land next to a star.
    assert 1 - on_scale - 0.05 <= figures["exact_set_share"] <= 1 - on_scale


@pytest.mark.parametrize(
    ("attack", "match"),
    [(LatticeAt(2), "no round was recorded"), (LatticeAt(9), "no round was recorded")],
)
def test_a_round_without_payloads_is_refused(
    federate: Federate, server: Adversary, attack: LatticeAt, match: str
) -> None:
    run, _ = federate(rounds=2)
    claims = attack.run(run.transcript.view(server))
    assert isinstance(claims, NotApplicable)
    assert match in claims.reason
