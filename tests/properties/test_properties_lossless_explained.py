"""A difference of losslessness names clients and kind, exactly those, and nobody else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Cause, Explanation, assert_lossless, compare_runs
from secure_fedrec.properties.lossless import chance
from secure_fedrec.properties.lossless.explaining import explain_sums
from secure_fedrec.properties.lossless.explaining_rows import explain_rows
from secure_fedrec.properties.lossless.plain_run import Plain, Rows
from secure_fedrec.uploads import Aggregate
from tests.properties.lossless_zoo import CASES, CLIENTS, STACK, Case
from tests.properties.lossless_zoo_losses import LOSSES, late, less, more

RING = FixedPoint(bits=32, fraction_bits=10, clip=256.0)
NAMED = {name: case for name, case in (CASES | LOSSES).items() if case.whose is not None}


@pytest.mark.parametrize("name", NAMED)
def test_a_loss_names_client_and_kind(name: str) -> None:
    case = NAMED[name]
    assert case.whose
    with pytest.raises(LosslessnessError) as refused:
        assert_lossless(**case.arguments())
    message = str(refused.value).rpartition(" (")[0]
    assert message.endswith(f"; {case.whose}")


def test_losses_of_one_client_are_counted() -> None:
    found = {name: compare_runs(**case.arguments()).explanation for name, case in NAMED.items()}
    assert all(found.values())
    of_one = {name: each for name, each in found.items() if each and len(each.clients) == 1}
    assert len(of_one) >= 23
    kinds = Counter(each.kind for each in of_one.values())
    assert kinds.keys() == {
        "missing",
        "twice",
        "late",
        "left in",
        "doubled",
        "zeroed",
        "another's",
    }


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in NAMED])
def test_what_is_of_nobody_is_explained_by_nobody(name: str) -> None:
    outcome = compare_runs(**LOSSES[name].arguments())
    assert outcome.verdict == STACK
    assert outcome.explanation is None


@pytest.mark.parametrize(("loss", "kind"), [(less, "missing"), (more, "twice"), (late, "late")])
def test_every_set_of_clients_is_named(loss: object, kind: str) -> None:
    """Of the 254 sets of one to seven of eight clients, every seventh."""
    sets = chain(*(combinations(range(CLIENTS), size) for size in range(1, CLIENTS)))
    for clients in list(sets)[::7]:
        case = Case(expected=STACK, stack=loss(clients))  # type: ignore[operator]
        found = compare_runs(**case.arguments()).explanation
        assert found == Explanation(((Cause(kind=kind, clients=clients),),))


UNIT = 1_000_003
"""A number of twenty bits, so that no two sums of rows of it are alike by chance."""


def rows_of(values: list[list[int]], counts: list[int] | None = None) -> Rows:
    """Client 0's rows of items 0 and 1, then client 1's, and so on."""
    number = len(values)
    return Rows(
        clients=np.arange(number) // 2,
        rows=np.arange(number) % 2,
        values=UNIT * np.array(values),
        counts=np.ones(number, dtype=np.int64) if counts is None else np.array(counts),
    )


NOBODY = rows_of([[0]]).pick(np.zeros(1, dtype=bool))


def explained(
    rows: Rows, sums: list[int], counts: list[int], *, before: Rows = NOBODY, virtual: Rows = NOBODY
) -> Explanation | None:
    """What explains a difference from the sums of ``rows``."""
    plain = [np.zeros((2, 1), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)]
    np.add.at(plain[0], rows.rows, rows.values)
    np.add.at(plain[1], rows.rows, rows.counts[:, None])
    due = Plain(sums=plain[0], counts=plain[1][:, 0], bags={}, nonzero=0)
    ring = RING.from_integers(due.sums + UNIT * np.array(sums)[:, None])
    found = Aggregate(ring=ring, counts=due.counts + np.array(counts), codec=RING)
    return explain_sums(found, due, now=rows, before=before, virtual=virtual, ring=RING)


def test_rows_of_zeros_are_not_named() -> None:
    rows = rows_of([[5], [7], [0], [0], [3], [1]])
    assert str(explained(rows, [-5, -7], [0, 0])) == "client 0's values are missing"
    rows = rows_of([[5], [7], [0], [0], [3], [0]])
    assert str(explained(rows, [-8, -7], [0, 0])) == "the values of clients 0, 2 are missing"


def test_what_is_not_unique_is_said_to_be_one_of_them() -> None:
    rows = rows_of([[5], [7], [3], [1], [5], [7], [5], [2]])
    found = explained(rows, [-5, -7], [-1, -1])
    assert str(found) == "the rows of one of clients 0, 2 are missing"
    found = explained(rows, [5, 0], [1, 0])
    assert str(found) == "the row of item 0 of one of clients 0, 2, 3 is counted twice"
    # Of two sets with the same sums, nobody says which.
    assert explained(rows_of([[1], [1], [2], [2], [2], [2], [3], [3]]), [-4, -4], [-2, -2]) is None
    assert explained(rows_of([[1], [1], [2], [2], [2], [2]]), [-3, -3], [-2, -2]) is None
    mixed = explained(rows_of([[5], [7], [-5], [-7]]), [-5, -7], [0, 0])
    assert str(mixed) == "client 0's values are missing, or client 1's values are counted twice"


def test_a_difference_that_nearly_fits_is_not_explained() -> None:
    rows = rows_of([[5], [7], [3], [2]])
    assert explained(rows, [-5, -7], [-1, -1]) is not None
    for sums, counts in (([-6, -8], [-1, -1]), ([-5, -7], [1, -1]), ([-5, -7], [-2, -2])):
        assert explained(rows, sums, counts) is None


def test_another_clients_rows_are_compared_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of([[5], [7], [3], [2], [4], [6]])
    assert str(explained(rows, [-2, -5], [0, 0])) == "client 0's rows are client 1's"
    # In a ring of eight bits the weighted sums of some of these pairs are alike.
    monkeypatch.setattr(chance, "SURE", -1000.0)
    ring = FixedPoint(bits=8, fraction_bits=0, clip=1.0)
    many = rows_of([[value] for c in range(40) for value in (4 * c + 8, 28 * c * c % 256 - 128)])
    many = replace(many, values=many.values // UNIT)
    due = Plain(sums=np.zeros((2, 1), np.int64), counts=np.zeros(2, np.int64), bags={}, nonzero=0)
    found = Aggregate(ring=ring.from_integers(np.array([[4], [8]])), counts=due.counts, codec=ring)
    assert explain_sums(found, due, now=many, before=NOBODY, virtual=NOBODY, ring=ring) is None


def test_a_sum_that_wraps_is_explained_in_the_ring() -> None:
    rows = rows_of([[2**31 - 10], [1], [6], [2]])
    found = explained(rows, [6, 0], [1, 0])
    assert str(found) == "client 1's row of item 0 is counted twice"


def test_where_one_item_alone_is_explained_nothing_is() -> None:
    rows = rows_of([[5], [7], [3], [2]])
    assert str(explained(rows, [-5, 0], [-1, 0])) == "client 0's row of item 0 is missing"
    assert explained(rows, [-5, 1000], [-1, 0]) is None
    assert explained(rows, [1000, -7], [0, -1]) is None


def test_single_rows_of_several_clients_are_named_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = rows_of([[5], [7], [3], [2]])
    found = explained(rows, [-5, -2], [-1, -1])
    assert (
        str(found) == "client 0's row of item 0 is missing, and client 1's row of item 1 is missing"
    )
    assert found is not None
    assert (found.kind, found.clients, found.items) == ("missing", (0, 1), (0, 1))
    # Of item 1 it may be either of two.
    monkeypatch.setattr(chance, "SURE", -1000.0)
    several = rows_of([[5], [7], [3], [2], [9], [2]])
    assert explained(several, [-5, -2], [-1, -1]) is None


def test_late_and_virtual_rows() -> None:
    rows, before = rows_of([[5], [7], [3], [2]]), rows_of([[50], [70], [3], [2]])
    assert str(explained(rows, [45, 63], [0, 0], before=before)) == (
        "client 0's rows are of the round before"
    )
    virtual = rows_of([[9], [8]])
    assert str(explained(rows, [9, 8], [1, 1], virtual=virtual)) == (
        "client 0's virtual rows are left in"
    )


def test_whoever_sits_out_now_is_not_late() -> None:
    before = rows_of([[5], [7], [3], [2]])
    now = rows_of([[6], [9]])
    assert str(explained(now, [-1, -2], [0, 0], before=before)) == (
        "client 0's rows are of the round before"
    )
    assert explained(now, [3, 2], [1, 1], before=before) is None


def test_clients_that_nothing_settles_are_no_set() -> None:
    """Four of item 0, of whom two may be late and nothing shows; two of item 1, who are late."""
    item = np.array([True, False, True, False, True, False, True, False, False, True, False, True])
    rows = rows_of([[1], [0], [2], [0], [3], [0], [4], [0], [0], [5], [0], [7]]).pick(item)
    before = rows_of([[12], [0], [-9], [0], [26], [0], [-19], [0], [0], [15], [0], [107]])
    before = before.pick(item)
    assert explained(rows, [0, 110], [0, 0], before=before) is None
    of_item_1 = [each.pick(each.rows == 1) for each in (rows, before)]
    found = explained(of_item_1[0], [0, 110], [0, 0], before=of_item_1[1])
    assert str(found) == "the rows of clients 4, 5 are of the round before"


def test_rows_that_enter_as_others() -> None:
    due = rows_of([[5], [7], [3], [2], [0], [4]])
    before = rows_of([[6], [8], [1], [1]])

    def said(values: list[list[int]]) -> str:
        return str(explain_rows(rows_of(values), due, before=before, ring=RING))

    assert said([[10], [14], [6], [4], [0], [8]]) == "the rows of clients 0, 1, 2 are doubled"
    assert said([[10], [14], [3], [2], [0], [4]]) == "client 0's rows are doubled"
    assert said([[10], [7], [9], [9], [0], [4]]) == "None"
    assert said([[10], [7], [0], [0], [0], [4]]) == (
        "client 0's row of item 0 is doubled, and client 1's rows are zeros"
    )
    assert said([[6], [8], [1], [1], [0], [4]]) == (
        "the rows of clients 0, 1 are of the round before"
    )
    assert said([[3], [2], [5], [7], [0], [4]]) == "the rows of clients 0, 1 are swapped"
    assert said([[3], [7], [5], [2], [0], [4]]) == (
        "the rows of item 0 of clients 0, 1 are swapped"
    )
    assert said([[3], [2], [3], [2], [0], [4]]) == "client 0's rows are client 1's"
    assert said([[5], [4], [3], [2], [0], [4]]) == "client 0's row of item 1 is client 2's"
    assert said([[0], [7], [3], [2], [0], [4]]) == "client 0's row of item 0 is zeros"
    assert said([[1], [7], [3], [2], [0], [4]]) == "None"
    # Two rows are doubled, and no other row of their clients and items.
    assert said([[10], [7], [3], [4], [0], [4]]) == (
        "client 0's row of item 0 is doubled, and client 1's row of item 1 is doubled"
    )
    assert said([[10], [7], [6], [2], [0], [4]]) == (
        "the rows of item 0 of clients 0, 1 are doubled"
    )


def test_a_row_of_zeros_is_nobodys() -> None:
    due = rows_of([[5], [7], [0], [2]])
    sent = rows_of([[0], [7], [0], [2]])
    found = explain_rows(sent, due, before=NOBODY, ring=RING)
    assert str(found) == "client 0's row of item 0 is zeros"


def test_what_is_said_is_true_and_of_sets_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows so small that many differences are explained, some of them by several clients."""
    monkeypatch.setattr(chance, "SURE", -1000.0)  # all that fits is said
    small = st.lists(st.integers(-2, 2), min_size=8, max_size=8)
    signs = st.lists(st.sampled_from((-1, 0, 0, 1)), min_size=8, max_size=8)
    seen: Counter[str] = Counter()

    @settings(settings.get_profile("properties"), max_examples=400)
    @given(now=small, was=small, signs=signs, counted=st.booleans(), late=st.booleans())
    def check(now: list[int], was: list[int], signs: list[int], counted: bool, late: bool) -> None:
        rows, before = rows_of([[each] for each in now]), rows_of([[each] for each in was])
        changed = np.column_stack([rows.values, rows.counts * counted]) * np.array(signs)[:, None]
        if late:
            changed = (both(before) - both(rows)) * (np.array(signs) > 0)[:, None]
        difference = np.zeros((2, 2), dtype=np.int64)
        np.add.at(difference, rows.rows, changed)
        if not difference.any():
            return
        found = explained(rows, *(difference // [UNIT, 1]).T.tolist(), before=before)
        if found is None:
            return
        seen["explained"] += 1
        seen["one of several"] += not found.certain
        for causes in found.either:
            assert (change_of(causes, rows, before) == difference).all()
            seen["row by row"] += len(causes) > 1
        ((cause, *_), *_) = found.either
        if len(cause.clients) > 1:
            seen["sets"] += 1
            alone = {c: change_of([replace(cause, clients=(c,))], rows, before) for c in range(4)}
            changing = [client for client, change in alone.items() if change.any()]
            sets = chain(*(combinations(changing, size) for size in range(1, 5)))
            whole = {each: np.sum([alone[client] for client in each], axis=0) for each in sets}
            same = [each for each in whole if (whole[each] == difference).all()]
            assert same == [cause.clients]

    check()
    assert seen["explained"] >= 190
    assert seen["one of several"] >= 100
    assert seen["sets"] >= 10
    assert seen["row by row"] >= 10


def both(rows: Rows) -> IntArray:
    """Values and counts side by side."""
    return np.column_stack([rows.values, rows.counts])


def change_of(causes: Sequence[Cause], rows: Rows, before: Rows) -> IntArray:
    """What causes make of sums and counts, written down anew: int64[2, 2]."""
    change = np.zeros((2, 2), dtype=np.int64)
    for cause, client in [(each, client) for each in causes for client in each.clients]:
        now, was = (both(each)[each.clients == client] for each in (rows, before))
        if cause.kind == "another's":
            made = both(rows)[rows.clients == cause.other] - now
        elif cause.kind == "late":
            made = was - now
        else:
            sign = 1 if cause.kind == "twice" else -1
            made = sign * now * np.array([cause.part != "counts", cause.part != "values"])
        items = slice(None) if cause.items is None else list(cause.items)
        change[items] += made[items]
    return change


def test_many_are_counted_and_not_listed() -> None:
    everybody = Explanation(((Cause(kind="missing", clients=tuple(range(20))),),))
    assert str(everybody) == ("the rows of clients 0, 1, 2, 3, 4, 5, 6, 7 and 12 more are missing")
