"""Counts of changing cohorts are equations: for the server, and for all who see them made public.

What plain subtraction of two rounds names for certain is found by the attack, and nothing false is.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attacks import Claims, evaluate
from attacks.families.sums import participation
from attacks.families.sums.participation import of_one
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.games import Finding
from attacks.view.coalition import others_cohort, others_counts
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.wire import Adversary, OwnUploads, View
from tests.adversary.test_adversary_coalitions import recorded

pytestmark = pytest.mark.claim("exact-counts")

CLIENTS, ROUNDS = 12, 4
COUNTED = {"biases": True}
SHARED: list[dict[str, Any]] = [
    {"layer": "virtual-ratings", "sticky": True},
    {"layer": "shared-upload", "count": 2, "floor": 2},
]


class Case(NamedTuple):
    """A finding, what its view was, and who rated what."""

    finding: Finding
    view: View
    rated: BoolArray


def attacked(
    folder: Path,
    protection: list[dict[str, Any]],
    *corrupt: str,
    tap: bool = False,
    cohort: int | None = CLIENTS - 1,
    items: int = 60,
    **algorithm: Any,
) -> Case:
    settings: dict[str, Any] = {
        "data": {"name": "synthetic", "clients": CLIENTS, "items": items, "mean_ratings": 14},
        "algorithm": {"name": "pmf", "rank": 4, "rounds": ROUNDS, **algorithm},
        "recording": {"payload_rounds": list(range(1, ROUNDS + 1))},
        "protection": protection,
        "adversaries": [{"name": "them", "corrupt": list(corrupt)}],
    }
    if cohort is not None:
        settings["cohort"] = {"clients_per_round": cohort}
    run = recorded(settings, folder)
    taps = frozenset({"network"} if tap else ())
    them = Adversary(name="them", corrupt=frozenset(corrupt), taps=taps)
    own = OwnUploads(run.truth.recorded, run.truth.corrupted_clients(them))
    train = run.truth.ratings
    rated = np.zeros((train.n_clients, train.n_items), dtype=bool)
    rated[train.clients, train.items] = True
    finding = evaluate(SumDecoding(), them, run.transcript, run.truth, seed=1)
    assert finding.figures["disclosures_wrong"] == 0
    return Case(finding, run.transcript.view(them, own=own), rated)


def by_subtraction(case: Case) -> set[tuple[int, int]]:
    """Pairs of a client and an item that the counts of two rounds name by themselves.

    Where cohorts differ by one who left and one who came, a count that is one lower or higher is
    the rating of either.
    """
    cohorts: list[BoolArray] = []
    counts: list[FloatArray] = []
    for round_ in range(1, ROUNDS + 1):
        seen, told = others_cohort(case.view, round_), others_counts(case.view, round_)
        assert seen is not None
        assert told is not None
        there = np.zeros(CLIENTS, dtype=bool)
        there[seen[0]] = True
        true = case.rated[there].sum(axis=0)
        assert (np.isnan(told) | (told == true)).all()
        cohorts.append(there)
        counts.append(told)
    found = set()
    for one in range(ROUNDS):
        for other in range(ROUNDS):
            left = np.flatnonzero(cohorts[one] & ~cohorts[other])
            more = np.flatnonzero(counts[one] - counts[other] == 1)
            if len(left) == 1:
                found |= {(int(left[0]), int(item)) for item in more}
    assert all(case.rated[pair] for pair in found)
    return found


def assert_finds(case: Case, pairs: set[tuple[int, int]]) -> None:
    assert pairs
    figures = case.finding.figures
    assert (figures["clients_exposed"] or 0) >= len({client for client, _ in pairs})
    assert (figures["interactions_exposed"] or 0) >= len(pairs)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("floor", [0, 5])
def test_counts_of_two_cohorts_are_subtracted(biases: bool, floor: int, tmp_path: Path) -> None:
    """A floor keeps rows back, and no count."""
    masking = [{"layer": "masking", "min_survivors": 3, "tail_floor": floor}]
    case = attacked(tmp_path, masking, "server", biases=biases)
    assert_finds(case, by_subtraction(case))


def test_who_came_for_somebody_else_is_told_by_the_difference() -> None:
    """Neither sum of three by itself tells anything, nor is any client alone in their span."""
    cohorts, counts = np.array([[1.0, 1, 0, 1], [1, 0, 1, 1]]), np.array([[1.0], [2.0]])
    known, possible = np.zeros((4, 1), dtype=bool), np.ones((4, 1), dtype=bool)
    signs, sums = participation._with_differences(cohorts, counts)
    assert participation._propagate(signs, sums, known, possible, 1)
    assert known[:, 0].tolist() == [False, False, True, False]
    assert possible[:, 0].tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    "layer",
    [
        {"layer": "masking", "min_survivors": 3},
        {"layer": "masking", "min_survivors": 3, "tail_floor": 3},
        {"layer": "paillier"},
    ],
    ids=["masking", "floor", "paillier"],
)
def test_whoever_sees_biases_and_who_sends_subtracts_counts(
    layer: dict[str, Any], tmp_path: Path
) -> None:
    """What a floor kept out of the public counts is not known to be 0."""
    case = attacked(tmp_path, [layer], "client:3", tap=True, **COUNTED)
    assert_finds(case, by_subtraction(case))


@pytest.mark.parametrize(
    "stack",
    [
        [{"layer": "masking", "min_survivors": 3}],
        [{"layer": "masking", "min_survivors": 3, "tail_floor": 3}],
        SHARED,
    ],
    ids=["masking", "floor", "shares"],
)
def test_clients_subtract_counts_of_rounds_that_one_was_left_out_of(
    stack: list[dict[str, Any]], tmp_path: Path
) -> None:
    """They know how many are invited, and not who: what is told has no name."""
    case = attacked(tmp_path, stack, "client:3", **COUNTED)
    assert others_cohort(case.view, 1) is None
    tapped = Adversary(name="x", corrupt=frozenset({"client:3"}), taps=frozenset({"network"}))
    seen = case._replace(view=View(case.view._store, case.view.public, tapped, own=case.view.own))
    # Of each pair of rounds with one of the others left out, whoever was in the other alone.
    pairs = {(client, item) for client, item in by_subtraction(seen) if client != 3}
    assert_finds(case, pairs)
    moved = dict.fromkeys(range(1, ROUNDS + 1), np.ones(60, dtype=bool))
    assert of_one(case.view, moved, all_rated=True)
    two = {**case.view.public, "cohort": {"clients_per_round": CLIENTS - 3}}
    view = View(case.view._store, two, case.view.adversary, own=case.view.own)
    assert not of_one(view, moved, all_rated=True)


@pytest.mark.claim("the-only-other-client")
@pytest.mark.parametrize("tap", [False, True])
@pytest.mark.parametrize(
    "algorithm", [COUNTED, {"rank": 0, **COUNTED}, {"rank": 1}, {}, {"temperature": 1e-9}]
)
def test_rows_of_a_round_of_one_are_one_clients(
    algorithm: dict[str, Any], tap: bool, tmp_path: Path
) -> None:
    """How many come is public; who it was, a tap tells."""
    case = attacked(tmp_path, [], "client:3", cohort=1, tap=tap, **algorithm)
    sent = [others_cohort(case.view, round_) for round_ in range(1, ROUNDS + 1)] if tap else []
    whom = {int(client) for each in sent if each is not None for client in each[0]}
    figures = case.finding.figures
    if tap:
        assert case.finding.details["exposed_clients"] == sorted(whom)
        assert figures["interactions_exposed"] == case.rated[sorted(whom)].sum()
    assert (figures["clients_exposed"] or 0) >= 2
    assert figures["largest_profile"] == 1.0
    # With two invited nobody is alone, unless one of the two is the adversary's own.
    two = {**case.view.public, "cohort": {"clients_per_round": 2}}
    view = View(case.view._store, two, Adversary(name="x", corrupt=frozenset({"client:9"})))
    assert not of_one(view, {1: np.ones(60, dtype=bool)}, all_rated=True)


def test_who_sends_nothing_and_is_in_the_sum_is_not_left_out(tmp_path: Path) -> None:
    """Denoisers collect others' rows: nothing is proven of those who are seen."""
    stack: list[dict[str, Any]] = [{"layer": "virtual-ratings"}, {"layer": "denoisers", "count": 2}]
    for number, tap in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = attacked(folder, stack, "client:3", tap=tap, **COUNTED)
        assert "pairs_proven_real" not in case.finding.details


def test_a_holder_of_shares_subtracts_counts(tmp_path: Path) -> None:
    """It has a share of every upload under its sender's name, and the counts are public."""
    case = attacked(tmp_path, SHARED, "denoiser:1", **COUNTED)
    assert_finds(case, by_subtraction(case))
    assert case.finding.details["pairs_excluded"] > 0


def test_clients_who_do_not_see_who_sends_read_directions_of_lone_rows(tmp_path: Path) -> None:
    """With public counts a step is a sum: rows of one rater are collinear."""
    masking = [{"layer": "masking", "min_survivors": 3}]
    case = attacked(tmp_path, masking, "client:3", cohort=None, items=300, **COUNTED)
    others = case.rated.copy()
    others[3] = False
    lone = others & (others.sum(axis=0) == 1)
    exposed = np.flatnonzero(lone.sum(axis=1) > 1)
    assert len(exposed) > 5
    assert set(exposed.tolist()) <= set(case.finding.details["exposed_clients"])
    assert (case.finding.figures["interactions_exposed"] or 0) >= lone[exposed].sum()


@pytest.mark.parametrize("biases", [False, True])
def test_a_floor_that_leaves_no_row_leaves_counts(biases: bool, tmp_path: Path) -> None:
    """Nobody uploads then, and who took part is seen by the counts."""
    masking = [
        {"layer": "masking", "tail_floor": CLIENTS, "min_survivors": 3, "corrupt": 0.0},
    ]
    case = attacked(tmp_path, masking, "server", biases=biases)
    assert_finds(case, by_subtraction(case))


def test_a_vector_known_beforehand_tells_no_slope_of_a_line_over_biases(tmp_path: Path) -> None:
    masking = [{"layer": "masking", "min_survivors": 3}]
    case = attacked(tmp_path, masking, "server", **COUNTED)
    claims = SumDecoding(lambda view, round_: {0: np.ones(4)}).run(case.view)
    assert isinstance(claims, Claims)
    assert claims.details["vectors_known_beforehand"] == 0
