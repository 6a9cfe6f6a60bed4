"""What does not fit a kernel is refused before anything is read or changed: loops check nothing."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.kernels import (
    pair_dot,
    pick_rows,
    rank_one_rows,
    scatter_add,
    segment_dots,
    segment_sum,
)


@pytest.mark.parametrize(
    "target",
    [np.zeros((3, 2, 2)), np.zeros((3, 2), dtype=np.int8), np.zeros((3, 2), dtype=complex)],
)
def test_sums_of_other_types_are_refused(target: Any) -> None:
    with pytest.raises(ValueError, match="fit together"):
        scatter_add(target, np.array([0]), np.ones((1, 2), dtype=target.dtype))
    assert not target.any()


def test_picked_rows_of_other_types_are_refused() -> None:
    indptr, chosen = np.array([0, 2]), np.array([True, False])
    rows, values = np.arange(2, dtype=np.int32), np.ones((2, 1))
    for wrong in (
        (indptr, chosen.astype(np.int64), rows, values),
        (indptr, chosen, rows.astype(np.int64), values),
        (indptr, chosen, rows.astype(">i4"), values),
        (indptr, chosen, rows + 0.5, values),
        (indptr, chosen, rows, values.astype(np.float32)),
        (indptr, chosen, rows, values[:, 0]),
        (indptr, chosen[:1], rows, values),
    ):
        misfit: Any = wrong
        with pytest.raises(ValueError, match="fit together"):
            pick_rows(*misfit)


NUMBERS = [np.int8, np.int16, np.uint8, ">i4", ">i8", np.int32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_row_numbers_of_any_type_are_read_right_or_refused(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    table, users, one = rng.normal(size=(70_000, 2)), rng.normal(size=(1, 2)), np.array([0, 1])

    def calls(row: int) -> list[float]:
        rows: Any = np.array([row]).astype(dtype)
        sums = np.zeros((70_000, 2))
        scatter_add(sums, rows, np.ones((1, 2)))
        return [
            float(pair_dot(users, np.array([0]), table, rows)[0]),
            float(segment_dots(users, one, table, rows)[0]),
            -float(rank_one_rows(table, rows, users, one, np.zeros(1), 1.0)[1][0]),
            float(segment_sum(table, rows, np.ones(1), one)[0] @ users[0]),
            float(np.flatnonzero(sums[:, 0])[0]) if sums.any() else -1.0,
        ]

    assert calls(100) == [pytest.approx(users[0] @ table[100])] * 4 + [100.0]
    rows: Any = np.array([-1]).astype(dtype)
    if int(rows[0]) == 255:  # another row, and one that there is
        assert calls(-1)[-1] == 255.0
        return
    with pytest.raises(ValueError, match="outside 0 to 69999"):
        calls(-1)


@pytest.mark.parametrize("rows", [np.array([0.5]), np.array([[0]]), np.array([True])])
def test_what_is_no_list_of_row_numbers_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="fit together"):
        scatter_add(np.zeros((4, 2)), rows, np.ones((1, 2)))
    with pytest.raises(ValueError, match="fit together"):
        segment_dots(np.ones((1, 2)), np.array([0, 1]), np.ones((4, 2)), rows)


@pytest.mark.parametrize("indptr", [np.array([0, np.nan, 1]), np.array([[0], [1]])])
def test_what_are_no_bounds_of_segments_is_refused(indptr: Any) -> None:
    users, one = np.ones((len(indptr) - 1, 2)), np.array([0])
    with pytest.raises(ValueError, match="fit together"):
        segment_dots(users, indptr, np.ones((4, 2)), one)
    with pytest.raises(ValueError, match="fit together"):
        pick_rows(indptr, one == 0, one.astype(np.int32), np.ones((1, 2)))


@pytest.mark.parametrize("place", [-1, 4])
def test_destinations_outside_the_target_are_refused(place: int) -> None:
    target, one = np.zeros((4, 2)), np.ones((1, 2))
    with pytest.raises(ValueError, match="outside 0 to 3"):
        scatter_add(target, np.array([place]), one)
    assert not target.any()


@pytest.mark.parametrize(
    "values", [np.ones((1, 2), dtype=np.uint32), np.ones((1, 3)), np.ones((2, 2))]
)
def test_scatter_add_refuses_rows_that_do_not_fit(values: FloatArray) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        scatter_add(np.zeros((4, 2)), np.array([0]), values)
