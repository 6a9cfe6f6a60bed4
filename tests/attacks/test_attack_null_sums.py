"""Recorded masked federations: what is called certain is true, and what is planted is found.

``make nulls`` records all 1,000; a test run has 30 of them.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from attacks.families.sums.decoded import SURE_BITS
from tests.attacks.null_sums import (
    COARSE,
    FRACTION_BITS,
    KINDS,
    SCALES,
    Draw,
    Planted,
    contents,
    draw,
    outcome,
    record,
    record_planted,
)

pytestmark = pytest.mark.claim("certain-is-right")

NULLS = int(os.environ.get("SECURE_FEDREC_NULLS", "30"))
FLOORS = {  # of 1,000, how many there are at least
    "lone rows": 400,
    "pairs": 300,
    "twins": 100,
    "crowds alone": 250,
    "rank 1": 20,
    "rank 16 or more": 200,
    "coarse ring": 300,
    "biases": 80,
    "several rounds": 500,
    "cohorts": 80,
    "a floor": 200,
    "own clients": 250,
    "without the server": 120,
    "vectors known": 300,
    "lies": 200,
    "item tables": 100,
    "certain claims": 150,
}


def test_nothing_certain_is_false() -> None:
    """Of 1,000 federations under masks, with every attack that calls anything certain.

    A claim is false if a named client, or the one whose vector a pseudonym has, did not rate the
    item so, or if a vector is not hers. An adversary that knows vectors of clients who rate nothing
    must not name them, though they are copies or multiples of members' vectors that it knows too:
    what it cannot tell apart it must not call certain. One exception is no fault of an attack: a
    stranger whose exact vector is a member's to three digits and more, while the member's own is
    not known. By chance no stranger's is; the name is a lie, and is read as the member's. Outside
    are multiples of such a member's vector, which are no stranger's by chance either: where
    ``U.V`` is within rounding, her rating is the multiple's other rating.
    """
    there, certain, most = Counter[str](), Counter[tuple[str, str]](), 0.0
    wrong: list[tuple[Draw, int]] = []
    for number in range(NULLS):
        wanted = draw(number, KINDS[number % len(KINDS)])
        made = record(wanted)
        found = outcome(made)
        said = sum(found.certain.values())
        there.update([*contents(made), *(["certain claims"] if said else [])])
        for attack, count in found.certain.items():
            certain[wanted.kind, attack] += count
        certain[wanted.kind, "federations"] += 1
        certain[wanted.kind, "federations with certain claims"] += said > 0
        certain[wanted.kind, "wrong"] += found.wrong
        most = max(most, found.expected)
        if found.wrong or (wanted.crowded and wanted.kind == "popular" and said):
            wrong.append((wanted, found.wrong))
            print("WRONG", wrong[-1], flush=True)
        if number % 50 == 49 or number == NULLS - 1:
            print(
                f"{number + 1} of {NULLS}: {dict(certain)}, at most {most:.2g} expected", flush=True
            )
    print(f"holding {dict(there)}", flush=True)
    assert not wrong
    assert most <= 2.0**-SURE_BITS
    if NULLS >= 1000:
        assert {name: there[name] for name, floor in FLOORS.items() if there[name] < floor} == {}
        drawn = [draw(number, KINDS[number % len(KINDS)]) for number in range(NULLS)]
        assert {each.rank for each in drawn} >= set(range(1, 21))
        assert {each.fraction_bits for each in drawn} == set(FRACTION_BITS)
        assert {each.scale for each in drawn} == set(SCALES)
        assert min(FRACTION_BITS) <= COARSE


@pytest.mark.parametrize(
    "wanted",
    [
        Draw(seed=1, kind="decoys", clients=30, scale="all ones", rank=4, fraction_bits=4),
        Draw(seed=2, kind="decoys", clients=30, scale="1 to 5", rank=4, biases=True),
    ],
    ids=["sums of zeros", "biases"],
)
def test_where_known_vectors_tell_nothing_nothing_is_certain(wanted: Draw) -> None:
    """Words that are all zero, and rows of more than the vectors that are known."""
    made = record(replace(wanted, crowded=True))
    assert made.known
    found = outcome(made)
    assert (found.wrong, sum(found.certain.values())) == (0, 0)


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_who_is_almost_a_client_of_two_names_is_not_named() -> None:
    """Rows less either vector are as like a third one, which is known less well."""
    assert outcome(record(draw(10241, "decoys"))).wrong == 0


def test_a_known_name_that_never_came_is_not_the_next_client() -> None:
    """Client 32 did not come, and is taken for another one in two rows; 33 came, and is not."""
    made = record(draw(30430, "decoys"))
    assert outcome(replace(made, lies={})).wrong == 2


def test_known_vectors_along_each_other_name_nobody() -> None:
    assert outcome(record(draw(60316, "decoys"))).wrong == 0


def test_two_rows_less_parts_of_their_own_raters_are_no_row_of_another() -> None:
    """Ratings 3 and 5 less 0 and 2, and 4 and 3 less 1 and 0, leave rows along each other."""
    assert outcome(record(draw(20115, "decoys"))).wrong == 0


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_what_is_almost_one_raters_row_is_no_evidence_for_another() -> None:
    """Where 0 is a rating, some rows of two are one rater's, and some of one next to nothing."""
    rows: list[list[int]] = []
    for one, two, hidden in np.arange(30).reshape(10, 3).tolist():
        rows += [[one], [two], [one, hidden], [two, hidden]]
    planted = Planted(rows=rows, clients=CLIENTS, scale="0/1", rank=20, known=(), seed=17)
    assert outcome(record_planted(planted)).wrong == 0


# --- what is planted is found ---------------------------------------------------------------------

CLIENTS = 200
Rows = Sequence[Sequence[int]]


def lone(number: int) -> tuple[Rows, set[int]]:
    """Two items that nobody else rated."""
    return [[client] for client in range(number) for _ in range(2)], set(range(number))


def pairs(number: int) -> tuple[Rows, set[int]]:
    """Two pairs of clients with four items of their own, and one in common with the other pair."""
    rows: list[list[int]] = []
    for place in range(0, 4 * number, 4):
        one, two, three, four = range(place, place + 4)
        rows += [*4 * [[one, two]], *4 * [[three, four]], [one, three], [two, four]]
    return rows, set(range(4 * number))


def chain(number: int) -> tuple[Rows, set[int]]:
    """A client without an item of its own shares one with each of two who have some."""
    rows: list[list[int]] = []
    for place in range(0, 3 * number, 3):
        one, two, hidden = range(place, place + 3)
        rows += [[one], [one], [two], [two], [one, hidden], [two, hidden]]
    return rows, set(range(3 * number))


def subsets(number: int) -> tuple[Rows, set[int]]:
    """Sums of three and of four, of twelve clients: found by who knows their vectors."""
    rng = np.random.default_rng(number)
    rows = [rng.choice(12, 3 + place % 2, replace=False).tolist() for place in range(number)]
    return rows, {client for own in rows for client in own}


def solved(number: int) -> tuple[Rows, set[int]]:
    """The same of clients whose vectors follow from two items that nobody else rated."""
    rows, _ = subsets(number)
    return [*rows, *lone(12)[0]], set(range(12))


@pytest.mark.parametrize(("number", "scale"), [(1, "half stars"), (3, "all ones"), (10, "1 to 5")])
@pytest.mark.parametrize("plant", [lone, pairs, chain, subsets, solved])
def test_planted_leaks_are_found(
    plant: Callable[[int], tuple[Rows, set[int]]], number: int, scale: str
) -> None:
    """All planted ones among 200 clients whose other items have a dozen raters and more."""
    rows, exposed = plant(number)
    # Each of a pair rates all that they share alike: of other pairs nothing is told.
    planted = Planted(
        rows=rows,
        clients=CLIENTS,
        scale="all ones" if plant is pairs else scale,
        rank=20 if plant is pairs else 12,
        known=range(12) if plant is subsets else (),
        seed=number,
    )
    found = outcome(record_planted(planted))
    assert found.wrong == 0
    assert found.exposed == exposed
    if plant in (subsets, solved):
        assert found.certain["sum-decoding"] >= sum(map(len, rows))
