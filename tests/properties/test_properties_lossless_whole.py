"""What is explained is the whole difference, and nothing is that may be so by chance."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Cause, Explanation, compare_runs
from secure_fedrec.properties.lossless import chance
from secure_fedrec.properties.lossless.explaining import explain_bags, explain_sums
from secure_fedrec.properties.lossless.explaining_rows import explain_rows
from secure_fedrec.properties.lossless.plain_run import Plain, Rows, Vectors
from secure_fedrec.properties.lossless.ring_words import words_of
from secure_fedrec.protection import Stack
from secure_fedrec.uploads import Aggregate
from tests.properties.lossless_zoo import STACK, Case, bagged, denoised, fresh
from tests.properties.lossless_zoo_algorithms import Gives
from tests.properties.lossless_zoo_layers import Doubles
from tests.properties.lossless_zoo_losses import Misadds, Misgives, less
from tests.properties.test_properties_lossless_explained import NOBODY, RING, UNIT, rows_of

STAR = 2**RING.fraction_bits


def stars(seed: int, *, clients: int = 8, items: int = 12) -> Rows:
    """Whole stars of some items by every client."""
    random = np.random.default_rng(seed)
    owners, rated = np.nonzero(random.random((clients, items)) < 0.5)
    values = STAR * random.integers(1, 6, size=(len(owners), 1))
    ones = np.ones(len(owners), dtype=np.int64)
    return Rows(clients=owners, rows=rated, values=values, counts=ones)


def found_of(
    rows: Rows, values: IntArray, counts: IntArray, before: Rows = NOBODY
) -> Explanation | None:
    """What explains that these values and counts are added where those of ``rows`` should be."""
    items = 1 + int(rows.rows.max())
    plain, found = (np.zeros((items, 2), dtype=np.int64) for _ in range(2))
    np.add.at(plain, rows.rows, np.column_stack([rows.values, rows.counts]))
    np.add.at(found, rows.rows, np.column_stack([values, counts]))
    due = Plain(sums=plain[:, :1], counts=plain[:, 1], bags={}, nonzero=0)
    ring = RING.from_integers(found[:, :1].copy())
    aggregate = Aggregate(ring=ring, counts=found[:, 1], codec=RING)
    return explain_sums(aggregate, due, now=rows, before=before, virtual=NOBODY, ring=RING)


@pytest.mark.parametrize(
    "altered",
    [lambda each: each // 2, lambda each: -each, lambda each: each + STAR, lambda each: 6 * STAR],
    ids=["halved", "negated", "a star more", "six"],
)
def test_stars_that_were_altered_name_nobody(altered: Any) -> None:
    for seed in range(100):
        rows = stars(seed)
        own = rows.clients == seed % 8
        values = np.where(own[:, None], altered(rows.values), rows.values)
        assert found_of(rows, values, rows.counts) is None, seed
        # Of one row as of all.
        own &= rows.rows == rows.rows[np.argmax(own)]
        values = np.where(own[:, None], altered(rows.values), rows.values)
        assert found_of(rows, values, rows.counts) is None, seed


def test_stars_that_are_lost_name_their_client_or_one_of_some_with_it() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        rows, client = stars(seed), seed % 8
        own = rows.clients == client
        one = own & (rows.rows == rows.rows[np.argmax(own)])
        for kind, gone in (("all", own), ("one", one)):
            found = found_of(rows, rows.values * ~gone[:, None], rows.counts * ~gone)
            assert found is not None
            assert client in found.clients
            assert found.certain == (len(found.clients) == 1)
            assert f"client{'s' * (not found.certain)} " in str(found)
            seen[kind, found.certain] += 1  # type: ignore[index]
    assert seen["all", True] == 100  # type: ignore[index]
    assert seen["one", True] >= 20  # type: ignore[index]
    assert seen["one", False] >= 20  # type: ignore[index]


def test_rows_that_may_be_of_several_are_not_said_to_be_ones() -> None:
    """Client 0's three rows that are lost are as well one of client 1's and two of client 0's."""
    owners, rated = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    values = np.array([[4, 5, 2, 3], [4, 1, 7, 6], [9, 8, 10, 11], [12, 13, 14, 15]]).reshape(-1, 1)
    rows = Rows(clients=owners, rows=rated, values=values, counts=np.ones_like(owners))
    gone = (owners == 0) & (rated < 3)
    kept = rows.values * ~gone[:, None], rows.counts * ~gone
    assert found_of(rows, *kept) is None
    big = replace(rows, values=UNIT * rows.values)
    said = "client 0's rows of items 0, 1, 2 are missing"
    assert str(found_of(big, UNIT * kept[0], kept[1])) == said
    # Where client 1 has another star they are nobody else's.
    values[4] = 5
    assert str(found_of(rows, rows.values * ~gone[:, None], kept[1])) == said


def test_what_one_of_several_is_names_them_all() -> None:
    rows = rows_of([[5], [7], [3], [1], [5], [7], [5], [2]])
    gone = (rows.clients == 0) & (rows.rows == 0)
    found = found_of(rows, rows.values * ~gone[:, None], rows.counts * ~gone)
    assert str(found) == "the row of item 0 of one of clients 0, 2, 3 is missing"
    assert found is not None
    assert (found.kind, found.clients, found.items) == ("missing", (0, 2, 3), (0,))
    assert not found.certain
    mirrored = rows_of([[5], [7], [-5], [-7]])
    found = found_of(mirrored, mirrored.values * (mirrored.clients > 0)[:, None], mirrored.counts)
    assert str(found) == "client 0's values are missing, or client 1's values are counted twice"
    assert found is not None
    assert (found.kind, found.clients, found.items) == ("missing or twice", (0, 1), None)


def test_what_is_late_by_a_star_is_nobodys() -> None:
    """Client 0's two stars more are what the round before had of client 1's."""
    now = rows_of([[1], [7], [3], [2]])
    before = rows_of([[9], [8], [5], [1]])
    values = now.values + UNIT * np.array([[2], [0], [0], [0]])
    found = found_of(now, values, now.counts, before)
    assert str(found) == "client 1's row of item 0 is of the round before"
    assert found_of(small(now), values // UNIT, now.counts, small(before)) is None


def test_a_count_that_is_off_names_nobody_by_chance() -> None:
    rows = rows_of([[5], [7], [3], [2], [4], [6]]).pick(np.array([0, 1, 2, 3, 4]))
    # Client 2 rated item 0 alone, and all others both.
    for counts in ([0, 0, 0, 0, 1], [0, 0, 1, 1, 0]):
        assert found_of(rows, rows.values, rows.counts + np.array(counts)) is None


def small(rows: Rows) -> Rows:
    """The same in small numbers."""
    return replace(rows, values=rows.values // UNIT)


def test_sets_of_clients_and_rows_of_others_are_not_found_by_chance() -> None:
    rows = rows_of([[5], [7], [0], [0], [3], [0], [2], [4]])
    own = np.isin(rows.clients, (0, 2))[:, None]
    values = rows.values * ~own
    assert str(found_of(rows, values, rows.counts)) == "the values of clients 0, 2 are missing"
    assert found_of(small(rows), values // UNIT, rows.counts) is None
    rows = rows_of([[5], [7], [3], [2], [4], [6]])
    values = rows.values.copy()
    values[:2] = values[2:4]
    assert str(found_of(rows, values, rows.counts)) == "client 0's rows are client 1's"
    assert found_of(small(rows), values // UNIT, rows.counts) is None


def test_single_rows_of_several_are_not_found_by_chance() -> None:
    rows = rows_of([[5], [7], [3], [2], [4], [6]])
    values = rows.values.copy()
    values[[0, 3]] = 0
    assert str(found_of(rows, values, rows.counts)) == (
        "client 0's values of item 0 are missing, and client 1's values of item 1 are missing"
    )
    assert found_of(small(rows), values // UNIT, rows.counts) is None


def test_of_more_clients_more_has_to_fit() -> None:
    rows = small(rows_of([[each] for each in (101, 0, 53, 0, 71, 0, 83, 0)]))
    for clients, known in ((1, True), (4, False)):
        some = rows.pick(rows.clients < clients)
        found = found_of(some, some.values * (some.clients > 0)[:, None], some.counts)
        assert (found is not None) == known


def test_another_clients_stars_are_not_found_by_chance() -> None:
    due = rows_of([[4], [5], [2], [3], [1], [6]])
    sent = rows_of([[2], [5], [2], [3], [1], [6]])
    assert str(explain_rows(sent, due, before=NOBODY, ring=RING)) == (
        "client 0's row of item 0 is client 1's"
    )
    before = rows_of([[2], [7], [2], [3], [1], [6]])
    assert str(explain_rows(sent, due, before=before, ring=RING)) == (
        "client 0's row of item 0 is of the round before"
    )
    due, sent, before = map(small, (due, sent, before))
    assert explain_rows(sent, due, before=before, ring=RING) is None
    assert str(explain_rows(due, sent, before=before, ring=RING)) == (
        "client 0's row of item 0 is doubled"
    )


def test_rows_that_were_doubled_before_they_were_rounded_are_doubled() -> None:
    due = rows_of([[5], [7], [3], [2]])
    off = np.array([[1], [-1], [0], [0]])
    twice = replace(due, values=2 * due.values + off)
    assert str(explain_rows(twice, due, before=NOBODY, ring=RING)) == (
        "the rows of clients 0, 1 are doubled"
    )
    assert (
        explain_rows(replace(twice, values=twice.values + off), due, before=NOBODY, ring=RING)
        is None
    )
    due = small(due)
    twice = replace(due, values=2 * due.values + off)
    assert explain_rows(twice, due, before=NOBODY, ring=RING) is None


def bags_of(**lost: int) -> tuple[dict[str, FloatArray], dict[str, FloatArray], Vectors]:
    """Two bags of a vector of each of four clients, those that are lost of one, and who gave."""
    ring, due, found = FixedPoint(), {}, {}
    parts: dict[str, Any] = {}
    for number, name in enumerate(("a", "b")):
        integers = np.array([[UNIT * (10 * number + client)] for client in range(4)])
        parts[name] = [(np.arange(4), np.arange(5), integers)]
        due[name] = ring.decode(ring.from_integers(integers))
        found[name] = due[name][np.arange(4) != lost.get(name, -1)]
    return found, due, Vectors(ring, parts)


def test_all_bags_are_explained_by_the_same_clients() -> None:
    said = {}
    for a, b in ((1, -1), (-1, 2), (1, 1), (1, 2)):
        found, due, now = bags_of(a=a, b=b)
        said[a, b] = str(explain_bags(found, due, now=now, before=Vectors(now.ring)))
    assert said == {
        (1, -1): "client 1's vector is missing",
        (-1, 2): "client 2's vector is missing",
        (1, 1): "client 1's vector is missing",
        (1, 2): "None",
    }
    found, due, now = bags_of(a=1)
    del found["b"]
    assert explain_bags(found, due, now=now, before=Vectors(now.ring)) is None


def test_a_vector_of_the_round_before_is_not_found_by_chance() -> None:
    """Client 3's vector is altered: client 0's was that one, and is now what client 3's was."""
    ring = FixedPoint()

    def given(*integers: int) -> Vectors:
        part = np.array(integers)[:, None]
        return Vectors(ring, {"a": [(np.arange(len(part)), np.arange(len(part) + 1), part)]})

    for before, known in (((2, 5, 6, 7), True), ((2, 2, 2, 2), False)):
        now, was = given(1, 3, 4, 1), given(*before)
        due = {"a": now.bag("a")}
        found = {"a": given(1, 2, 3, 4).bag("a")}
        explained = explain_bags(found, due, now=now, before=was)
        assert (explained is not None) == known


def both_lost(client: int) -> Stack:
    """A sum that loses client 3, and a bag that loses another."""
    collector: Any = less([3])().collector
    stack = bagged(Misgives)
    vars(stack.bags)["instead"] = lambda own, _: own[:0]
    assert isinstance(collector, Misadds)
    if client != 3:
        vars(collector).update(less([client])().collector.__dict__)
    return replace(stack, collector=collector)


def test_sums_and_bags_are_explained_together() -> None:
    """The bag loses client 3's vector; the sum its rows, or those of another client."""
    for client, words in ((3, "client 3's rows are missing"), (5, "None")):
        case = Case(expected=STACK, stack=partial(both_lost, client), algorithm=fresh(Gives))
        assert str(compare_runs(**case.arguments()).explanation) == words


def doubled_and(lost: list[int]) -> Stack:
    """Rows are doubled as they come in, and those of some clients are lost beside."""
    stack: Stack = less(lost)()
    return replace(stack, cloak=denoised(cloak=Doubles, rho=0.0).cloak)


def test_rows_and_sums_are_explained_together() -> None:
    for lost, words in (([], "doubled"), ([3], "None")):
        case = Case(expected=STACK, stack=partial(doubled_and, lost))
        assert str(compare_runs(**case.arguments()).explanation).endswith(words)


def test_numbers_hold_the_bits_from_their_common_unit() -> None:
    whole = words_of(np.array([[4 * STAR], [-4 * STAR], [0], [STAR]]), np.zeros(4, dtype=np.int64))
    assert chance.numbers(whole[:, :1], 32).round(2).tolist() == [2.32, 2.32, 0.0, 1.0]
    assert chance.alike(np.array([[1], [2], [3]])) == float("inf")
    assert chance.alike(np.array([[1], [1], [2], [3]])) == pytest.approx(np.log2(6))
    assert chance.alike(np.array([[1], [1], [1]])) == 0
    assert chance.places(1, 4) == 2
    assert chance.places(4, 4) == 0


def test_many_causes_are_counted_and_not_listed() -> None:
    causes = tuple(Cause(kind="missing", clients=(each,), items=(each,)) for each in range(10))
    said = str(Explanation((causes,)))
    assert said.startswith("client 0's row of item 0 is missing, and client 1's row of item 1 is")
    assert said.endswith("client 7's row of item 7 is missing, and so on for 2 more")
