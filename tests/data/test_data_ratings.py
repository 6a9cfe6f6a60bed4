from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.errors import ConfigError, DataError

STARS = RatingScale(1.0, 5.0, 1.0)
NAN, INF = float("nan"), float("inf")


def make(**changes: Any) -> RatingTable:
    columns: dict[str, Any] = {
        "name": "tiny",
        "n_clients": 3,
        "n_items": 4,
        "clients": np.array([0, 0, 2]),
        "items": np.array([1, 3, 0]),
        "ratings": np.array([1.0, 5.0, 3.0]),
        "scale": STARS,
        "client_labels": np.array([10, 20, 30]),
        "item_labels": np.arange(4),
        "demographics": {"gender": np.array(["F", "M", "F"])},
        "timestamps": np.array([5, 6, 7]),
    }
    return RatingTable(**(columns | changes))


def test_scale_lists_its_levels() -> None:
    assert RatingScale(0.5, 2.0, 0.5).levels.tolist() == [0.5, 1.0, 1.5, 2.0]


def test_scale_contains_levels_only() -> None:
    values = np.array([1.0, 5.0, 0.0, 6.0, 2.5, NAN, INF, -INF, 1e308])
    assert STARS.contains(values).tolist() == [True, True] + [False] * 7


@given(low=st.integers(-20, 20), steps=st.integers(1, 50), tenths=st.integers(1, 30))
def test_every_scale_contains_its_levels(low: int, steps: int, tenths: int) -> None:
    scale = RatingScale(low, low + steps * tenths / 10, tenths / 10)
    assert len(scale.levels) == steps + 1
    assert scale.contains(scale.levels).all()
    assert not scale.contains(scale.levels + tenths / 20).any()


@pytest.mark.parametrize(
    "bounds",
    [
        *[(1, 1, 1), (5, 1, 1), (1, 5, 0), (1, 5, 3), (1, INF, 1)],
        *[(0, 1e308, 1), (-1e308, 1e308, 1), (0, 5, 5e-324), (1, 5, 1e-12)],
    ],
)
def test_scale_must_be_a_grid(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError):
        RatingScale(*bounds)


def test_scale_check_names_the_line() -> None:
    with pytest.raises(DataError, match=r"u\.data, line 12: rating 7 is off its scale"):
        STARS.check(np.array([1.0, 2.0, 7.0]), "u.data", first_line=10)


def test_table_counts() -> None:
    table = make()
    assert len(table) == 3
    assert table.counts().tolist() == [2, 0, 1]
    assert table.indptr().tolist() == [0, 2, 2, 3]
    assert table.item_popularity().tolist() == [1, 1, 0, 1]
    assert table.indptr().dtype == table.item_popularity().dtype == np.int64


def test_columns_have_their_declared_types() -> None:
    table = make()
    assert table.clients.dtype == table.items.dtype == np.dtype(np.int32)
    assert table.ratings.dtype == np.dtype(np.float64)


def test_columns_are_private_and_read_only() -> None:
    ratings = np.array([1.0, 5.0, 3.0])
    table = make(ratings=ratings)
    ratings[0] = 2.0
    assert table.ratings[0] == 1.0
    for column in (table.clients, table.ratings, table.timestamps, table.demographics["gender"]):
        assert column is not None
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[1]
    with pytest.raises(TypeError):
        table.demographics["age"] = table.demographics["gender"]  # type: ignore[index]


def test_repr_shows_no_rating() -> None:
    assert "array" not in repr(make())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"n_clients": 0}, "n_clients"),
        ({"n_items": 2**31}, "n_items"),
        ({"clients": np.array([0, 0])}, "shape"),
        ({"clients": np.array([0, 0, 3])}, "client 3 is outside"),
        ({"clients": np.array([-1, 0, 2])}, "client -1 is outside"),
        ({"clients": np.array([0.0, 0.0, 2.0])}, "float64 cannot become int32"),
        ({"items": np.array([1, 4, 0])}, "item 4 is outside"),
        ({"items": np.array([1, 2**32 + 3, 0])}, "outside int32"),
        ({"items": np.array([3, 1, 0])}, "not sorted"),
        ({"clients": np.array([2, 0, 0])}, "not sorted"),
        ({"items": np.array([1, 1, 0])}, "occurs twice"),
        ({"ratings": np.array([1.0, NAN, 3.0])}, "rating nan is off its scale"),
        ({"ratings": np.array([1.0, INF, 3.0])}, "rating inf is off its scale"),
        ({"ratings": np.array([1.0, 2.5, 3.0])}, "rating 2.5 is off its scale"),
        ({"ratings": np.array([[1.0, 2.0, 3.0]])}, "shape"),
        ({"client_labels": np.arange(2)}, "client_labels"),
        ({"item_labels": np.arange(5)}, "item_labels"),
        ({"timestamps": np.array([5, 6])}, "timestamps"),
        ({"demographics": {"gender": np.array(["F", "M"])}}, "tiny.gender"),
        ({"demographics": {"age": np.array([1, 2, 3])}}, "tiny.age"),
    ],
)
def test_table_refuses(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        make(**changes)


def test_table_may_be_empty() -> None:
    table = make().subset(np.zeros(3, dtype=np.bool_))
    assert len(table) == 0
    assert table.indptr().tolist() == [0, 0, 0, 0]


def test_subset_keeps_the_numbering() -> None:
    table = make()
    part = table.subset(np.array([False, True, True]))
    assert (part.n_clients, part.n_items) == (3, 4)
    assert (part.clients.tolist(), part.items.tolist()) == ([0, 2], [3, 0])
    assert part.timestamps is not None
    assert part.timestamps.tolist() == [6, 7]
    assert part.demographics["gender"].tolist() == ["F", "M", "F"]


@pytest.mark.parametrize("mask", [np.array([True, False]), np.array([1, 0, 1])])
def test_subset_refuses_other_masks(mask: Any) -> None:
    with pytest.raises(DataError, match="mask"):
        make().subset(mask)


def columns_of(table: RatingTable) -> dict[str, Any]:
    names = ("name", "n_clients", "n_items", "clients", "items", "ratings", "scale")
    more = ("client_labels", "item_labels", "demographics", "timestamps")
    return {name: getattr(table, name) for name in names + more}


@given(order=st.permutations(range(3)))
def test_from_columns_sorts(order: list[int]) -> None:
    table = make()
    shuffled = columns_of(table)
    for column in ("clients", "items", "ratings", "timestamps"):
        shuffled[column] = shuffled[column][order]
    assert RatingTable.from_columns(**shuffled).fingerprint() == table.fingerprint()


def test_from_columns_names_the_line_of_a_repeat() -> None:
    columns = columns_of(make()) | {"clients": np.array([2, 0, 2]), "items": np.array([1, 1, 1])}
    with pytest.raises(DataError, match=r"f\.dat, line 4: this client has already rated this item"):
        RatingTable.from_columns(**columns, source="f.dat", first_line=2)


def test_from_columns_does_not_mistake_a_bad_item_for_a_repeat() -> None:
    columns = columns_of(make()) | {"clients": np.array([0, 1, 2]), "items": np.array([3, -1, 0])}
    with pytest.raises(DataError, match="item -1 is outside"):
        RatingTable.from_columns(**columns)


@pytest.mark.parametrize("column", ["clients", "ratings", "timestamps"])
def test_from_columns_refuses_ragged_columns(column: str) -> None:
    columns = columns_of(make())
    columns[column] = columns[column][:2]
    with pytest.raises(DataError, match="differ in length"):
        RatingTable.from_columns(**columns)


def test_fingerprint_is_pinned() -> None:
    # Transcripts and checkpoints name tables by this digest: a change breaks them.
    assert (
        make().fingerprint() == "2557287c0d7eaf0589bb5ec3b95532efdf440a80f22b920f1f612146888eab8a"
    )


def test_fingerprint_covers_contents_and_not_the_name() -> None:
    table = make()
    changed = [
        make(ratings=np.array([1.0, 5.0, 4.0])),
        make(items=np.array([1, 2, 0])),
        make(timestamps=None),
        make(timestamps=np.array([5, 6, 8])),
        make(client_labels=np.array([10, 20, 31])),
        make(demographics={"gender": np.array(["F", "F", "F"])}),
        make(scale=RatingScale(0.0, 5.0, 1.0)),
        make(n_items=5, item_labels=np.arange(5)),
    ]
    digests = {table.fingerprint(), *(other.fingerprint() for other in changed)}
    assert len(digests) == len(changed) + 1
    assert replace(table, name="other").fingerprint() == table.fingerprint()


def test_fingerprint_ignores_byte_order() -> None:
    assert (
        make(ratings=np.array([1.0, 5.0, 3.0], dtype=">f8")).fingerprint() == make().fingerprint()
    )
