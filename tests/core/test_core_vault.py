"""A vault gives its contents to no serialiser, no copy, no message."""

import copy
import json
import pickle  # noqa: TID251  # to show that it is refused
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import PrivateStateError, WireError
from secure_fedrec.uploads import DenseBlock, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Meter, Parties, Step, Wire

SECRET = 4321.125


def vault_with(lengths: list[int]) -> Vault:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    size = int(indptr[-1])
    items = np.array([item for n in lengths for item in range(n)], dtype=np.int32)
    return Vault(indptr=indptr, items=items, ratings=SECRET + np.arange(size, dtype=np.float64))


def filled() -> Vault:
    vault = vault_with([2, 0, 3])
    vault.create("user_vectors", np.full((3, 4), SECRET))
    return vault


def payload_of(vault: Any) -> Messages:
    one = np.zeros(1, dtype=np.int64)
    return Messages(
        round=1,
        step=Step.UPLOAD,
        senders=Parties(role="client", ids=one),
        receivers=Parties.server(1),
        payload=vault,
        sizes=one,
    )


def row_block(**columns: Any) -> RowBlock:
    empty: dict[str, Any] = {
        "indptr": np.zeros(2, dtype=np.int64),
        "rows": np.empty(0, dtype=np.int32),
        "values": None,
    }
    return RowBlock(**{**empty, **columns})


LEAKS: dict[str, Callable[[Any], object]] = {
    "pickle": pickle.dumps,
    "pickle 0": lambda vault: pickle.dumps(vault, protocol=0),
    "pickle in a list": lambda vault: pickle.dumps([1, vault]),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy in a dict": lambda vault: copy.deepcopy({"state": vault}),
    "bytes": bytes,
    "array": np.asarray,
    "object array": lambda vault: np.array(vault, dtype=object),
    "array of a list": lambda vault: np.array([vault]),
    "float array": lambda vault: np.asarray(vault, dtype=np.float64),
    "arithmetic": lambda vault: np.add(vault, 1.0),
    "iteration": list,
    "unpacking": lambda vault: [*vault],
    "length": len,
    "truth": bool,
    "index": lambda vault: vault[0],
    "slice": lambda vault: vault[:],
    "key": lambda vault: vault["user_vectors"],
    "reversed": lambda vault: list(reversed(vault)),
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS.keys())
def test_private_state_does_not_leave(leak: Callable[[Any], object]) -> None:
    with pytest.raises(PrivateStateError, match="stays on its client"):
        leak(filled())


@pytest.mark.claim("vault-stays")
@pytest.mark.parametrize(
    "leak",
    [
        json.dumps,
        memoryview,
        bytearray,
        vars,
        float,
        lambda vault: SECRET in vault,
        lambda vault: json.dumps({"vault": vault}),
        np.frombuffer,
        lambda vault: b"".join([vault]),
    ],
)
def test_private_state_has_no_other_form(leak: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        leak(filled())


@pytest.mark.claim("vault-stays")
@pytest.mark.parametrize(
    "send",
    [
        payload_of,
        lambda vault: payload_of([vault]),
        lambda vault: row_block(values=vault),
        lambda vault: row_block(rows=vault),
        lambda vault: row_block(counts=vault),
        lambda vault: row_block(indptr=vault),
        lambda vault: DenseBlock(values=vault, shape=(3, 4)),
        lambda vault: Wire(meter=Meter(3)).send(vault),
        lambda vault: Upload(clients=np.zeros(1, dtype=np.int64), blocks={"table": vault}),
    ],
)
def test_private_state_is_no_payload(send: Callable[[Any], object]) -> None:
    with pytest.raises((WireError, TypeError)):
        send(filled())


@pytest.mark.parametrize(
    "name",
    [
        *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__"),
        *("__deepcopy__", "__bytes__", "__array__", "__buffer__"),
        *("__iter__", "__len__", "__getitem__"),
    ],
)
def test_every_door_is_shut_by_itself(name: str) -> None:
    """What asks for one of them directly meets no other on its way."""
    with pytest.raises(PrivateStateError, match="stays on its client"):
        getattr(filled(), name)()


def test_private_state_cannot_be_poured_into_a_vault() -> None:
    state: Any = filled()
    with pytest.raises(PrivateStateError):
        state.__setstate__({"_ratings": np.zeros(5)})
    with pytest.raises(AttributeError):
        state.extra = 1


def test_the_repr_shows_names_and_shapes_only() -> None:
    shown = repr(filled()) + str(filled()) + f"{filled()}"
    assert "user_vectors(3, 4)" in shown
    assert "3 clients" in shown
    assert "4321" not in shown


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_rated_reads_the_segments_asked_for(lengths: list[int], data: st.DataObject) -> None:
    vault = vault_with(lengths)
    clients = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=10))
    rated = vault.rated(np.array(clients, dtype=np.int64))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    expected = [
        starts[client] + place + SECRET for client in clients for place in range(lengths[client])
    ]
    assert rated.ratings.tolist() == expected
    assert rated.items.tolist() == [place for c in clients for place in range(lengths[c])]
    assert rated.counts.tolist() == [lengths[client] for client in clients]
    assert rated.indptr[0] == 0


def test_a_vault_of_some_clients_has_their_examples_and_nothing_else() -> None:
    lengths, clients = np.array([2, 0, 3, 1]), np.array([3, 5, 6, 9])
    columns = {"items": np.arange(6), "texts": np.arange(12).reshape(6, 2)}
    whole = Vault.of_examples(np.concatenate([[0], np.cumsum(lengths)]), columns, clients)
    whole.create("own", np.ones((4, 2)))
    some = whole.only(np.array([5, 6, 9]))
    assert (some.clients.tolist(), some.tables()) == ([5, 6, 9], {})
    assert some.example_counts().tolist() == [0, 3, 1]
    for client in some.clients.tolist():
        for name, column in some.examples(client).items():
            assert np.array_equal(column, whole.examples(client)[name])
    with pytest.raises(ValueError, match="4"):
        whole.only(np.array([4]))


def test_tables_are_read_as_copies() -> None:
    vault = vault_with([1, 1, 1])
    vault.create("t", np.arange(6, dtype=np.float64).reshape(3, 2))
    everybody = np.arange(3)
    copied: FloatArray = vault.read("t", everybody)
    copied[:] = -1
    assert vault.read("t", everybody).tolist() == [[0, 1], [2, 3], [4, 5]]
    vault.write("t", np.array([2, 0]), np.array([[9.0, 9.0], [8.0, 8.0]]))
    assert vault.read("t", everybody).tolist() == [[8, 8], [2, 3], [9, 9]]
    assert vault.names() == ("t",)
    assert vault.example_counts().tolist() == [1, 1, 1]


def test_a_table_has_one_row_per_client() -> None:
    with pytest.raises(ValueError, match="2 rows for 3 clients"):
        filled().create("short", np.zeros((2, 1)))


def test_a_table_is_written_once_under_its_name() -> None:
    vault = filled()
    taken = "a private table of that name already"
    with pytest.raises(ValueError, match=taken):
        vault.create("user_vectors", np.zeros((3, 1)))
    with pytest.raises(ValueError, match=taken):
        vault.create_ragged("user_vectors", np.array([0, 1, 1, 1]), np.zeros(1))
    assert vault.read("user_vectors", np.arange(3)).tolist() == np.full((3, 4), SECRET).tolist()


def test_what_is_handed_out_is_a_copy() -> None:
    vault = filled()
    vault.create_ragged("segments", np.array([0, 2, 2, 3]), np.zeros(3))
    for handed in (
        vault.snapshot()["user_vectors"],
        vault.read_ragged("segments", 0),
        vault.examples(0)["ratings"],
    ):
        handed[:] = -1
    assert vault.read("user_vectors", np.array([0])).tolist() == [[SECRET] * 4]
    assert vault.read_ragged("segments", 0).tolist() == [0, 0]
    assert vault.examples(0)["ratings"].tolist() == [SECRET, SECRET + 1]


def test_a_snapshot_of_other_tables_is_refused_and_changes_nothing() -> None:
    vault = filled()
    vault.create("other", np.zeros((3, 1)))
    good = vault.snapshot()
    vault.write("user_vectors", np.arange(3), np.zeros((3, 4)))
    for wrong, match in (
        ({"user_vectors": good["user_vectors"]}, "a snapshot of"),
        (good | {"more": np.zeros(3)}, "a snapshot of"),
        (good | {"other": np.zeros((1, 1))}, "other: shape"),  # it would spread over all clients
    ):
        with pytest.raises(ValueError, match=match):
            vault.restore(wrong)
        assert vault.read("user_vectors", np.arange(3)).tolist() == np.zeros((3, 4)).tolist()
    vault.restore(good)
    assert vault.read("user_vectors", np.arange(3)).tolist() == np.full((3, 4), SECRET).tolist()


def test_a_segment_keeps_its_shape() -> None:
    vault = filled()
    vault.create_ragged("segments", np.array([0, 2, 2, 3]), np.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(1,\) for a segment of shape \(2,\)"):
        vault.write_ragged("segments", 0, np.ones(1))  # it would fill the segment
    assert vault.read_ragged("segments", 0).tolist() == [0, 0]


def test_tables_are_read_by_the_kind_that_they_are() -> None:
    vault = filled()
    vault.create_ragged("segments", np.array([0, 2, 2, 3]), np.zeros(3))
    with pytest.raises(KeyError, match="no private table absent"):
        vault.read("absent", np.arange(3))
    for read, match in (
        (lambda: vault.read("segments", np.arange(3)), "any number of rows per client"),
        (lambda: vault.write("segments", np.arange(3), np.ones(3)), "any number of rows"),
        (lambda: vault.read_ragged("user_vectors", 0), "one row per client"),
        (lambda: vault.lengths("user_vectors"), "one row per client"),
    ):
        with pytest.raises(ValueError, match=match):
            read()


@pytest.mark.parametrize(
    ("indptr", "match"),
    [
        ([0, 2, 2, 3], r"int64\[n \+ 1\]"),
        (np.array([0, 2, 2, 3], dtype=np.int32), r"int64\[n \+ 1\]"),
        (np.array([0, 2, 3]), "2 segments for 3 clients"),
        (np.array([1, 2, 2, 3]), "from 0 to 3"),
        (np.array([0, 2, 2, 2]), "from 0 to 3"),
        (np.array([0, 2, 1, 3]), "from 0 to 3"),
    ],
)
def test_segments_that_do_not_divide_the_rows_are_refused(indptr: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        filled().create_ragged("segments", indptr, np.zeros(3))


@pytest.mark.parametrize(
    "column",
    [[1, 2, 3], np.ma.masked_array(np.zeros(3)), np.array(3.0), np.array([1, "a", None])],
)
def test_examples_are_plain_arrays(column: Any) -> None:
    with pytest.raises(ValueError, match="plain arrays, without Python objects"):
        Vault.of_examples(np.array([0, 1, 2, 3]), {"texts": column})


def test_a_vault_without_columns_or_ratings_says_so() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        Vault.of_examples(np.array([0, 1]), {})
    with pytest.raises(ValueError, match="holds no ratings but texts"):
        Vault.of_examples(np.array([0, 1]), {"texts": np.zeros(1)}).rated(np.array([0]))


def test_the_secret_follows_from_everything_in_a_vault() -> None:
    indptr, rows = np.array([0, 1, 3]), np.arange(3)
    one = Vault.of_examples(indptr, {"a": rows, "b": rows}).secret()
    assert one == Vault.of_examples(indptr, {"b": rows, "a": rows}).secret()
    others = [
        Vault.of_examples(np.array([0, 2, 3]), {"a": rows, "b": rows}),
        Vault.of_examples(indptr, {"a": rows, "b": rows[::-1].copy()}),
        Vault.of_examples(indptr, {"a": rows, "c": rows}),
        Vault.of_examples(indptr, {"a": rows, "b": rows.view(np.uint64)}),
        Vault.of_examples(indptr, {"a": rows, "b": rows[:, None]}),
    ]
    assert len({one, *(other.secret() for other in others)}) == 6
