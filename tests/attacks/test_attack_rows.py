"""Ragged rows: what they say is judged as the grid of all clients and items would be."""

from collections.abc import Callable

import numpy as np
import pytest

from attacks.scoring.gains import Figures, Level
from attacks.scoring.item_sets import ItemSets, listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows, touches
from attacks.scoring.truth import Scored
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.uploads import RowBlock
from tests.attacks.made import scored_by, table_of_marks

Scores = Callable[[np.random.Generator, BoolArray, BoolArray], FloatArray]

SCORES: dict[str, tuple[Scores, float]] = {
    "one value": (lambda rng, seen, rated: seen.astype(np.float64), 0.0),
    "few values": (lambda rng, seen, rated: rng.integers(1, 4, seen.shape) / 4, 0.0),
    "reals": (lambda rng, seen, rated: rng.standard_normal(seen.shape) + rated, -7.0),
    "ties with what was not seen": (lambda rng, seen, rated: np.where(rated, 0.5, 0.0), 0.5),
}


def federation(seed: int, clients: int = 41, items: int = 60) -> tuple[BoolArray, BoolArray]:
    """Rated sets of skewed popularity, and what was seen: most of them, and some others."""
    rng = np.random.default_rng(seed)
    weights = rng.permutation(np.arange(1, items + 1.0) ** -1.0)
    rated = rng.random((clients, items)) < np.minimum(0.9, 0.2 * items * weights / weights.sum())
    seen = (rated & (rng.random(rated.shape) < 0.9)) | (rng.random(rated.shape) < 0.2)
    seen[3], rated[5], rated[6] = False, False, True
    return rated, seen


def figures_of(claim: RatedSetClaim, rated: BoolArray) -> tuple[Figures, object]:
    scored = scored_by(claim, None, frozenset({2}), train=table_of_marks(rated))
    assert isinstance(scored, Scored)
    return scored.at(Level(seed=1)), (scored.units, scored.details, scored.null_control, scored.roc)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("at_once", [1 << 22, 300])
def test_rows_are_judged_as_the_grid_is(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digit for digit, whatever is seen, however many values there are, in blocks of any size."""
    rated, seen = federation(7)
    rng, (score, rest) = np.random.default_rng(8), SCORES[kind]
    grid = np.where(seen, score(rng, seen, rated), rest)
    guess, early = seen & (rng.random(seen.shape) < 0.6), np.where(seen, rng.integers(0, 3), 0.0)
    clients = np.arange(len(rated))
    whole = RatedSetClaim(
        clients=clients, scores=grid, visible=seen, predicted=guess, history={1: early}
    )
    told = figures_of(whole, rated)
    monkeypatch.setattr("attacks.scoring.item_sets._PAIRS_AT_ONCE", at_once)
    listed = ItemSets.of_grid(seen)
    rows = RatedSetClaim(
        clients=clients,
        scores=Rows(listed=listed, values=grid[seen], rest=rest),
        visible=Rows.marked(listed),
        predicted=Rows(listed=listed, values=guess[seen], rest=False),
        history={1: Rows(listed=listed, values=early[seen])},
    )
    assert figures_of(rows, rated) == told
    assert told[0]["auc"] is not None


@pytest.mark.parametrize("at_once", [1 << 22, 300])
def test_one_row_for_everybody_is_judged_as_the_grid_is(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rated, _ = federation(9)
    row = np.asarray(np.random.default_rng(1).integers(0, 30, rated.shape[1]) / 4)
    grid, clients = np.tile(row, (len(rated), 1)), np.arange(len(rated))
    told = figures_of(RatedSetClaim(clients=clients, scores=grid, visible=grid > 2), rated)
    monkeypatch.setattr("attacks.scoring.item_sets._PAIRS_AT_ONCE", at_once)
    listed = ItemSets.empty(*rated.shape)
    shared = RatedSetClaim(
        clients=clients,
        scores=Rows(listed=listed, values=np.zeros(0), rest=row),
        visible=Rows(listed=listed, values=np.zeros(0, dtype=bool), rest=row > 2),
    )
    assert figures_of(shared, rated) == told


def test_proofs_in_rows_are_judged_as_the_grid_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rated, seen = federation(11)
    proven = seen & (np.random.default_rng(12).random(seen.shape) < 0.5)
    clients, listed, train = np.arange(len(rated)), ItemSets.of_grid(seen), table_of_marks(rated)
    grids = UnmaskedClaim(clients=clients, visible=seen, proven=proven)
    told = scored_by(grids, None, frozenset({1}), train=train)
    monkeypatch.setattr("attacks.scoring.item_sets._PAIRS_AT_ONCE", 300)
    marks = Rows(listed=listed, values=proven[seen], rest=False)
    rows = UnmaskedClaim(clients=clients, visible=Rows.marked(listed), proven=marks)
    found = scored_by(rows, None, frozenset({1}), train=train)
    assert found.figures == told.figures
    one, other = told.gains["unmasked_lift"], found.gains["unmasked_lift"]
    assert np.array_equal(one.values, other.values, equal_nan=True)  # type: ignore[union-attr]


def test_fields_of_a_claim_list_the_same_pairs() -> None:
    rated, seen = federation(13)
    listed = ItemSets.of_grid(seen)
    with pytest.raises(ValueError, match="different pairs"):
        RatedSetClaim(
            clients=np.arange(len(seen)),
            scores=np.where(seen, 1.0, 0.0),
            visible=Rows.marked(listed),
        )
    with pytest.raises(ValueError, match="different pairs"):
        other = ItemSets.of_grid(rated)
        UnmaskedClaim(
            clients=np.arange(len(seen)), visible=Rows.marked(listed), proven=Rows.marked(other)
        )


def test_touches_are_counted_and_divided_by_client() -> None:
    """Three rounds; the second client is away in one of them."""
    rounds = {1: [[0, 3], [1]], 2: [[3], []], 3: [[2, 3], [0, 1]]}

    def uploaded(round_: int) -> ItemSets:
        sizes = np.cumsum([0, *map(len, rounds[round_])])
        rows = np.array([item for own in rounds[round_] for item in own], dtype=np.int32)
        block = RowBlock(indptr=sizes, rows=rows, values=None)
        return listed_rows(np.arange(2), np.arange(2), block, 5)[0]

    counts = touches(uploaded, [1, 2, 3])
    assert counts.grid().tolist() == [[1, 0, 1, 3, 0], [1, 2, 0, 0, 0]]
    shares = counts.divided(counts.highest()).grid()
    assert shares.tolist() == [[1 / 3, 0, 1 / 3, 1, 0], [1 / 2, 1, 0, 0, 0]]


def test_rows_out_of_order_find_their_pairs() -> None:
    """Two messages of one client, and items in no order."""
    block = RowBlock(
        indptr=np.array([0, 2, 3, 5]), rows=np.array([4, 1, 2, 1, 0], dtype=np.int32), values=None
    )
    sets, place = listed_rows(np.array([3, 8]), np.array([8, 3, 8]), block, 6)
    assert sets.grid().astype(int).tolist() == [[0, 0, 1, 0, 0, 0], [1, 1, 0, 0, 1, 0]]
    assert sets.items[place].tolist() == [4, 1, 2, 1, 0]
    assert sets.owners[place].tolist() == [1, 1, 0, 1, 1]


def test_marks_of_pairs_that_are_not_listed_are_refused() -> None:
    """They would be judged as unmarked, without a word."""
    listed = ItemSets.of_grid(np.eye(3, dtype=bool))
    marked, whole = Rows.marked(listed), Rows(listed=listed, values=np.ones(3, bool), rest=True)
    nobody = ItemSets.of_grid(np.zeros((3, 3), dtype=bool))
    everybody = Rows(listed=nobody, values=np.zeros(0, bool), rest=np.ones(3, bool))
    scores, clients = Rows(listed=listed, values=np.ones(3)), np.arange(3)
    with pytest.raises(ValueError, match="not listed are marked"):
        RatedSetClaim(clients=clients, scores=scores, visible=whole)
    with pytest.raises(ValueError, match="not listed are marked"):
        RatedSetClaim(clients=clients, scores=scores, visible=marked, predicted=whole)
    with pytest.raises(ValueError, match="not listed are marked"):
        UnmaskedClaim(clients=clients, visible=everybody, proven=everybody)
    with pytest.raises(ValueError, match="divided"):
        Rows(listed=listed, values=np.ones(3), rest=0.5).divided(2)


def test_a_grid_holds_the_value_of_all_other_pairs() -> None:
    listed = ItemSets.of_grid(np.eye(2, dtype=bool))
    found = Rows(listed=listed, values=np.array([3, 4]), rest=0.5).grid()
    np.testing.assert_array_equal(found, [[3.0, 0.5], [0.5, 4.0]])
    assert Rows(listed=listed, values=np.array([3, 4])).grid().dtype == np.int64
