"""Figures in persons: one client in a hundred counts, and nobody whom luck could have hit."""

from itertools import combinations

import numpy as np
import pytest

from attacks.scoring.gains import Level, Persons, common_sets, luck_of_sets
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.truth import Scored
from attacks.scoring.vectors import VectorClaim
from attacks.view.named import in_the_clear
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import BlockStore, Truth
from tests.attacks.made import scored_by, table_of_marks

NOBODY: frozenset[int] = frozenset()
FEDERATIONS = 200


def figure(scored: object, name: str) -> float:
    assert isinstance(scored, Scored)
    value = scored.at(Level(seed=0, judged=20))[name]
    assert value is not None
    return value


def judged(
    scores: FloatArray,
    labels: BoolArray,
    predicted: BoolArray | None = None,
    sure: BoolArray | None = None,
) -> object:
    claim = RatedSetClaim(
        clients=np.arange(len(labels)),
        scores=scores,
        visible=np.ones_like(labels),
        predicted=predicted,
        sure=sure,
    )
    return scored_by(claim, train=table_of_marks(labels))


# --- luck -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_the_luck_of_a_set_is_bounded_by_little_more_than_it_is(size: int) -> None:
    """Against all sets of the size in a small catalogue."""
    items, clients = 9, 20
    counts = np.random.default_rng(size).integers(0, clients, items).astype(np.float64)
    weights = (counts + 0.5) / (clients - counts + 0.5)
    sets = list(combinations(range(items), size))
    chances = np.array([np.prod(weights[list(each)]) for each in sets])
    chances /= chances.sum()
    columns = np.array(sets, dtype=np.int32).reshape(-1)
    every = ItemSets.of_sizes(np.full(len(sets), size), columns, items)
    bounds = np.exp(luck_of_sets(every, counts, clients))
    assert (bounds >= np.minimum(chances, 1.0) - 1e-12).all()
    assert (bounds <= np.minimum(1.5 * chances, 1.0) + 1e-12).all()


def test_a_set_that_others_have_as_well_is_luck() -> None:
    grid = np.zeros((5, 40), dtype=bool)
    grid[:3, :12], grid[3, 5:17], grid[4, 20:32] = True, True, True
    assert np.exp(common_sets(ItemSets.of_grid(grid))) == pytest.approx([0.5, 0.5, 0.5, 0, 0])


def test_hits_that_chance_explains_are_not_counted() -> None:
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(2000):
        odds = np.full(50, 1 / 50)
        wrong += Persons(rng.random(50) < odds, np.log(odds), guesses=True).counted(0.001) > 0
    assert wrong <= 8  # 2 are expected at most
    all_named = Persons(np.ones(50, dtype=bool), np.log(np.full(50, 1 / 50)), guesses=True)
    assert all_named.counted(0.001) >= 42


# --- nothing --------------------------------------------------------------------------------------


@pytest.mark.claim("clear-uploads-counted")
def test_noise_exposes_nobody() -> None:
    """Catalogues and sets of odd shapes, scores of noise, of popularity and of both."""
    rng, found = np.random.default_rng(5), 0
    for seed in range(FEDERATIONS):
        clients, items = int(rng.integers(5, 80)), int(rng.integers(6, 60))
        taste = rng.dirichlet(np.full(items, rng.choice([0.1, 1.0, 10.0])))
        active = rng.uniform(0.02, 0.5) * np.exp(rng.normal(size=clients))
        labels = rng.random((clients, items)) < np.minimum(0.97, active[:, None] * taste * items)
        noise = rng.random((clients, items))
        scores = (noise, np.tile(noise[0], (clients, 1)), labels.mean(axis=0) + noise / 5)[seed % 3]
        guess = scores > np.quantile(scores, 1 - labels.mean())
        scored = judged(scores, labels, guess)
        if isinstance(scored, Scored):
            found += figure(scored, "exact_clients") > 0
    assert found == 0


@pytest.mark.claim("clear-uploads-counted")
def test_noise_names_nobody() -> None:
    rng, found = np.random.default_rng(6), 0
    for seed in range(FEDERATIONS):
        clients, width = int(rng.integers(2, 90)), int(rng.integers(1, 9))
        true = rng.normal(size=(clients, width)) + rng.choice([0.0, 3.0]) * rng.normal(size=width)
        noise = rng.normal(size=(clients, width))
        said = (noise, true.mean(axis=0) + noise * true.std())[seed % 2]
        found += figure(named(said, true), "reidentified_clients") > 0
    assert found == 0


def named(said: FloatArray, true: FloatArray) -> object:
    store = BlockStore(None)
    store.append(1, "private-user_vectors", {"values": true})
    store.seal(1)
    claim = VectorClaim(round=1, clients=np.arange(len(true)), vectors=said)
    return scored_by(claim, Truth(store), NOBODY, 0)


# --- one in a hundred -----------------------------------------------------------------------------


def hundred() -> tuple[BoolArray, FloatArray]:
    """Sets of a hundred clients, and what noise says of them."""
    rng = np.random.default_rng(2)
    labels = rng.random((100, 60)) < np.linspace(0.5, 0.1, 60)
    return labels, rng.random(labels.shape)


@pytest.mark.claim("clear-uploads-counted")
@pytest.mark.parametrize("told", [1, 3, 10])
def test_few_whole_sets_among_noise_are_told(told: int) -> None:
    """Their rule is their own: that of all would be popularity, and none of them exact."""
    labels, scores = hundred()
    scores[:told] = labels[:told]
    scored = judged(scores, labels)
    assert figure(scored, "exact_clients") == told
    assert figure(scored, "exact_set_gain") == pytest.approx(told / 100)


def test_what_an_attack_knows_counts_where_luck_would_not() -> None:
    labels = np.zeros((40, 30), dtype=bool)
    labels[np.arange(40), np.arange(40) % 3] = True  # each set is that of a dozen others
    sure = np.arange(40) < 5
    guess = labels & sure[:, None]
    assert figure(judged(guess.astype(np.float64), labels, guess), "exact_clients") == 0
    scored = judged(guess.astype(np.float64), labels, guess, sure=sure)
    assert figure(scored, "exact_clients") == 5
    wrong = judged(guess.astype(np.float64), labels, np.roll(guess, 1, axis=1), sure=sure)
    assert isinstance(wrong, Scored)
    assert wrong.details["sure_sets_wrong"] == 5


@pytest.mark.parametrize("told", [1, 3, 10])
def test_few_vectors_among_noise_name_their_clients(told: int) -> None:
    rng = np.random.default_rng(3)
    true, said = rng.normal(size=(100, 8)), np.zeros((100, 8))
    said[:told] = 2 * true[:told] + 1e-4 * rng.normal(size=(told, 8))
    assert figure(named(said, true), "reidentified_clients") == told


# --- messages that can be read --------------------------------------------------------------------


@pytest.mark.parametrize(
    "codec", [FixedPoint(), FixedPoint(bits=32, fraction_bits=12, clip=64.0)], ids=["64", "32"]
)
def test_words_in_the_clear_are_told_from_words_under_a_pad(codec: FixedPoint) -> None:
    rng = np.random.default_rng(4)
    rows, width, clients = 20, 4, 300
    values = codec.encode(rng.uniform(-codec.clip, codec.clip, (clients * rows, width)))
    pads = rng.integers(0, 2**64, values.shape, dtype=np.uint64).astype(codec.dtype)
    hidden = np.arange(clients) % 3 > 0
    words = np.where(np.repeat(hidden, rows)[:, None], codec.reduce(values + pads), values)
    block = RowBlock(
        indptr=np.arange(clients + 1) * rows,
        rows=np.tile(np.arange(rows, dtype=np.int32), clients),
        values=words,
    )
    assert np.array_equal(in_the_clear(block, codec), ~hidden)


@pytest.mark.claim("clear-uploads-counted")
def test_too_few_words_are_not_said_to_be_in_the_clear() -> None:
    codec = FixedPoint(bits=16, fraction_bits=4, clip=512.0)
    block = RowBlock(
        indptr=np.array([0, 1, 41]),
        rows=np.concatenate([np.zeros(1), np.arange(40)]).astype(np.int32),
        values=np.zeros((41, 1), dtype=codec.dtype),
    )
    assert in_the_clear(block, codec).tolist() == [False, True]
