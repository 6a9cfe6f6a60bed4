"""Examples of any kind and tables with any number of rows per client, kept in a vault."""

import copy
import pickle  # noqa: TID251  # to show that it is refused
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.errors import PrivateStateError
from secure_fedrec.vault import Vault

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def starts(lengths: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def examples_of(lengths: list[int]) -> Vault:
    indptr = starts(lengths)
    size = int(indptr[-1])
    columns = {
        "texts": np.array([f"text {number}" for number in range(size)], dtype="U12"),
        "pairs": np.arange(2 * size, dtype=np.int32).reshape(size, 2),
    }
    return Vault.of_examples(indptr, columns)


@given(LENGTHS)
def test_a_client_reads_its_own_examples(lengths: list[int]) -> None:
    vault, indptr = examples_of(lengths), starts(lengths)
    assert vault.n_clients == len(lengths)
    assert vault.example_counts().tolist() == lengths
    for client in range(len(lengths)):
        numbers = range(indptr[client], indptr[client + 1])
        own = vault.examples(client)
        assert own["texts"].tolist() == [f"text {number}" for number in numbers]
        assert own["pairs"].tolist() == [[2 * number, 2 * number + 1] for number in numbers]


def test_examples_are_copies() -> None:
    vault = examples_of([2, 1])
    own = vault.examples(0)["pairs"]
    own[:] = -1
    assert vault.examples(0)["pairs"].tolist() == [[0, 1], [2, 3]]


def test_ratings_are_examples_too() -> None:
    indptr, items = np.array([0, 1, 3]), np.array([4, 0, 2], dtype=np.int32)
    vault = Vault(indptr=indptr, items=items, ratings=np.array([1.0, 2.0, 3.0]))
    own = vault.examples(1)
    assert {name: column.tolist() for name, column in own.items()} == {
        "items": [0, 2],
        "ratings": [2.0, 3.0],
    }
    with pytest.raises(ValueError, match="no ratings but texts, pairs"):
        examples_of([1]).rated(np.array([0]))


@pytest.mark.parametrize(
    ("indptr", "column", "problem"),
    [
        ([0, 2, 3], np.zeros(4), "from 0 to 4"),
        ([1, 2, 4], np.zeros(4), "from 0 to 4"),
        ([0, 3, 2, 4], np.zeros(4), "from 0 to 4"),
        ([0.0, 4.0], np.zeros(4), "int64"),
        ([], np.zeros(0), "int64"),
        ([[0, 4]], np.zeros(4), "int64"),
        ([0, 4], [0, 0, 0, 0], "plain arrays"),
        ([0, 1], np.array([{"an": "object"}]), "plain arrays"),
        ([0, 4], np.ma.zeros(4), "plain arrays"),
        ([0, 1], np.array(1.0), "plain arrays"),
    ],
)
def test_columns_that_do_not_fit_are_refused(indptr: list[Any], column: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Vault.of_examples(np.array(indptr), {"column": column})


def test_examples_need_a_column() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        Vault.of_examples(np.array([0, 1]), {})


@given(LENGTHS, LENGTHS, st.data())
def test_a_ragged_table_keeps_segments_apart(
    owned: list[int], other: list[int], data: st.DataObject
) -> None:
    lengths = (other * len(owned))[: len(owned)]
    vault, indptr = examples_of(owned), starts(lengths)
    values = np.arange(3.0 * indptr[-1]).reshape(-1, 3)
    vault.create_ragged("users", indptr, values.copy())
    client = data.draw(st.integers(0, len(lengths) - 1))
    replaced = np.full((lengths[client], 3), -5.0)
    read = vault.read_ragged("users", client)
    assert read.tolist() == values[indptr[client] : indptr[client + 1]].tolist()
    read[:] = 99.0  # a copy
    vault.write_ragged("users", client, replaced)
    replaced[:] = 99.0
    for number in range(len(lengths)):
        expected = values[indptr[number] : indptr[number + 1]].tolist()
        if number == client:
            expected = [[-5.0] * 3] * lengths[client]
        assert vault.read_ragged("users", number).tolist() == expected
    assert vault.lengths("users").tolist() == lengths


def filled() -> Vault:
    vault = examples_of([2, 0, 3])
    vault.create("bias", np.zeros((3, 1)))
    vault.create_ragged("users", np.array([0, 1, 1, 4]), np.arange(8.0).reshape(4, 2))
    return vault


def test_tables_of_both_kinds_are_told_apart() -> None:
    vault = filled()
    assert vault.names() == ("bias",)
    assert vault.ragged_names() == ("users",)
    for wrong in (
        lambda: vault.read("users", np.array([0])),
        lambda: vault.write("users", np.array([0]), np.zeros((1, 2))),
        lambda: vault.read_ragged("bias", 0),
        lambda: vault.write_ragged("bias", 0, np.zeros((1, 1))),
        lambda: vault.lengths("bias"),
        lambda: vault.create("users", np.zeros((3, 1))),
        lambda: vault.create_ragged("bias", np.array([0, 0, 0, 0]), np.zeros((0, 1))),
    ):
        with pytest.raises(ValueError, match=r"users|bias"):
            wrong()
    with pytest.raises(KeyError, match="no private table absent; there are bias, users"):
        vault.read("absent", np.array([0]))


@pytest.mark.parametrize("shape", [(0, 2), (2, 2), (1, 3), (2,)])
def test_a_segment_keeps_its_shape(shape: tuple[int, ...]) -> None:
    vault = filled()
    with pytest.raises(ValueError, match="segment of shape"):
        vault.write_ragged("users", 0, np.zeros(shape))


@pytest.mark.parametrize("indptr", [[0, 1, 4], [0, 1, 1, 3], [0, 2, 1, 4], [1, 1, 1, 4]])
def test_segments_cover_the_table(indptr: list[int]) -> None:
    with pytest.raises(ValueError, match=r"more:"):
        filled().create_ragged("more", np.array(indptr), np.zeros((4, 2)))


def test_a_snapshot_restores_every_table() -> None:
    vault, twin = filled(), filled()
    kept = vault.snapshot()
    vault.write("bias", np.array([1]), np.ones((1, 1)))
    vault.write_ragged("users", 2, np.zeros((3, 2)))
    assert vault.snapshot()["users"].tolist() != kept["users"].tolist()
    for target in (vault, twin):
        target.restore(kept)
        again = target.snapshot()
        assert {name: values.tolist() for name, values in again.items()} == {
            "bias": [[0.0]] * 3,
            "users": np.arange(8.0).reshape(4, 2).tolist(),
        }
    vault.write_ragged("users", 0, np.full((1, 2), 7.0))
    assert kept["users"][0].tolist() == [0.0, 1.0]  # going on changes no snapshot


@pytest.mark.parametrize(
    "snapshot",
    [
        {"bias": np.zeros((3, 1))},
        {"bias": np.zeros((3, 1)), "users": np.zeros((4, 2)), "more": np.zeros(1)},
        {"bias": np.zeros((3, 1)), "users": np.zeros((1, 2))},
        {"bias": np.ones((3, 2)), "users": np.zeros((4, 2))},
    ],
)
def test_a_foreign_snapshot_is_refused_whole(snapshot: dict[str, Any]) -> None:
    vault = filled()
    before = {name: values.tolist() for name, values in vault.snapshot().items()}
    with pytest.raises(ValueError, match=r"snapshot of|shape"):
        vault.restore(snapshot)
    assert {name: values.tolist() for name, values in vault.snapshot().items()} == before


def test_ragged_state_leaves_no_vault() -> None:
    vault = filled()
    leaks: list[Any] = [pickle.dumps, copy.copy, copy.deepcopy, list, len, np.asarray, bytes]
    for leak in leaks:
        with pytest.raises(PrivateStateError, match="stays on its client"):
            leak(vault)
    shown = repr(vault)
    assert "texts(5,)" in shown and "users(4, 2)" in shown and "bias(3, 1)" in shown
    assert "text 0" not in shown and "7." not in shown
