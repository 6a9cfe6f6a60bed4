"""What every answer of the parameter search keeps: enumerated failure rates, ranges, refusals."""

import re
from fractions import Fraction
from itertools import combinations
from math import comb, inf, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking.config import parameters
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.graph import harary_neighbours, windows_hold
from secure_fedrec.protection.masking.config.hypergeometric import upper_tail
from secure_fedrec.protection.masking.config.parameters import MaskingParameters, find_parameters


def tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[HG >= least], term by term from binomial coefficients: independent of the module."""
    ways = sum(
        comb(marked, x) * comb(population - marked, drawn - x)
        for x in range(max(least, 0), min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(population, drawn))


def apart(n: int, removed: int, degree: int) -> Fraction:
    """Expected pairs of breaks of the ring."""
    return Fraction(comb(n - removed, 2) * comb(removed, degree), comb(n - 1, degree))


# Exact failure rates, by trying every placement of corrupt and dropped clients on a small ring.


def connected(neighbours: IntArray, members: BoolArray) -> bool:
    left = set(np.flatnonzero(members).tolist())
    reached = [left.pop()]
    while reached:
        near = left.intersection(neighbours[reached.pop()].tolist())
        left -= near
        reached += near
    return not left


@pytest.mark.parametrize(
    ("n", "corrupt", "dropout", "privacy_bits", "correctness_bits"),
    [(9, 0.12, 0.25, 1, 1), (10, 0.2, 0.1, 1, 1), (11, 0.1, 0.2, 2, 2), (11, 0.2, 0.2, 1, 1)],
)
@pytest.mark.parametrize("agreed", [True, False])
def test_failure_rates_by_enumeration_stay_within_the_bounds(
    n: int, corrupt: float, dropout: float, privacy_bits: int, correctness_bits: int, agreed: bool
) -> None:
    found = find_parameters(
        n,
        corrupt=corrupt,
        dropout=dropout,
        adversary="curious",
        agreed_survivors=agreed,
        privacy_bits=privacy_bits,
        correctness_bits=correctness_bits,
        complete_up_to=0,
    )
    assert not found.complete
    neighbours = harary_neighbours(np.arange(n, dtype=np.int64), found.degree)
    private_failures = live_failures = cases = 0
    for bad in combinations(range(n), found.corrupt_clients):
        honest = np.ones(n, dtype=bool)
        honest[list(bad)] = False
        corrupt_near = (~honest)[neighbours].sum(axis=1)
        fatal = found.threshold if agreed else 2 * found.threshold - found.degree
        surrounded = bool(np.any(corrupt_near[honest] >= fatal))
        for gone in combinations(np.flatnonzero(honest).tolist(), found.dropped_clients):
            alive = np.ones(n, dtype=bool)
            alive[list(gone)] = False
            cases += 1
            private_failures += surrounded or not connected(neighbours, honest & alive)
            live_failures += bool(np.any(alive[neighbours].sum(axis=1) < found.threshold))
    assert Fraction(private_failures, cases) <= Fraction(1, 2**privacy_bits)
    assert Fraction(live_failures, cases) <= Fraction(1, 2**correctness_bits)


# What every answer must satisfy


@st.composite
def requests(draw: st.DrawFn) -> MaskingParameters:
    adversary: Adversary = draw(st.sampled_from(["curious", "active"]))
    n = draw(st.integers(12, 3_000))
    request: dict[str, Any] = {
        "corrupt": draw(st.integers(0, 30)) / 100,
        "dropout": draw(st.integers(0, 30)) / 100,
        "agreed_survivors": adversary == "active" or draw(st.booleans()),
        "privacy_bits": draw(st.integers(10, 60)),
        "correctness_bits": draw(st.integers(5, 30)),
        "roster": draw(st.sampled_from([None, n, 3 * n, 10 * n])),
    }
    try:
        return find_parameters(n, adversary=adversary, **request)
    except ConfigError:  # small cohorts of large rosters may hold too many corrupt clients
        reject()


@pytest.mark.claim("masking-degree-and-threshold")
@settings(deadline=None, max_examples=60)
@given(requests())
def test_every_answer_keeps_its_promises(found: MaskingParameters) -> None:
    n, k, c, d = found.n, found.degree, found.corrupt_clients, found.dropped_clients
    assert 2 <= found.threshold_least <= found.threshold <= found.threshold_most <= k
    assert found.complete or k % 2 == 0
    assert (n <= 128) <= found.complete
    for protects, bits in (
        ("privacy", found.privacy_bits),
        ("correctness", found.correctness_bits),
    ):
        total = sum(2.0**bound.log2 for bound in found.bounds if bound.protects == protects)
        assert total <= 2.0**-bits * 1.01  # printed logarithms are rounded up to hundredths
    assert found.min_survivors == n - d
    assert found.quorum <= found.min_survivors
    assert (found.window_least is not None) == (found.adversary == "active" and not found.complete)
    assert found.committee is None or found.window_least is not None
    if found.adversary == "active":
        # no two survivor sets are over so many, nor do both gather a quorum
        assert 2 * found.min_survivors > n + c
        if found.committee is None:
            assert 2 * found.quorum > n + c
            assert 2 * (found.quorum - 1) <= n + c
        else:
            assert found.committee < n
            assert found.committee < 2 * found.quorum <= 2 * found.committee
    else:
        assert found.quorum == 1  # one set for everybody: there is nothing to agree on


@settings(deadline=None, max_examples=30)
@given(requests())
def test_stated_bounds_are_those_of_the_chosen_degree_and_threshold(
    found: MaskingParameters,
) -> None:
    n, k, c, d, t = (
        found.n,
        found.degree,
        found.corrupt_clients,
        found.dropped_clients,
        found.threshold,
    )
    window, least = k // 2, found.window_least or 0
    true = {
        "corrupt neighbours": (n - c)
        * tail(n - 1, c, k, t if found.agreed_survivors else 2 * t - k),
        "live neighbours": n * tail(n, d, k, k - t + 1),
        "connectivity": apart(n, c + d, k),
        "windows": n * tail(n, c, window, least),
        "live windows": n * tail(n, d, window, window - least + 1),
    }
    if found.committee is not None:
        m, q = found.committee, found.quorum
        true |= {"committee": tail(n, c, m, 2 * q - m), "live committee": tail(n, d, m, m - q + 1)}
    if found.complete:
        true["live neighbours"] = Fraction(int(d > k - t))
    for bound in found.bounds:
        if bound.event != "cohort":
            exact = true[bound.event]
            below = log2(exact.numerator) - log2(exact.denominator) if exact else -inf
            assert below <= bound.log2 <= below + 0.0102


@settings(deadline=None, max_examples=30)
@given(requests())
def test_the_threshold_range_is_as_wide_as_the_bounds_allow(found: MaskingParameters) -> None:
    n, k, c, d = found.n, found.degree, found.corrupt_clients, found.dropped_clients
    assume(not found.complete)
    assume(all(bound.event != "cohort" for bound in found.bounds))  # spends from the budget too
    privacy = Fraction(1, 2**found.privacy_bits)
    correctness = Fraction(1, 2**found.correctness_bits)
    if found.window_least is None:
        privacy -= apart(n, c + d, k)
    else:
        privacy -= n * tail(n, c, k // 2, found.window_least)
        correctness -= n * tail(n, d, k // 2, k // 2 - found.window_least + 1)
    if found.committee is not None:
        m, q = found.committee, found.quorum
        privacy -= tail(n, c, m, 2 * q - m)
        correctness -= tail(n, d, m, m - q + 1)

    def surrounded(t: int) -> Fraction:
        return (n - c) * tail(n - 1, c, k, t if found.agreed_survivors else 2 * t - k)

    assert surrounded(found.threshold_least) <= privacy
    assert found.threshold_least == 2 or surrounded(found.threshold_least - 1) > privacy
    assert n * tail(n, d, k, k - found.threshold_most + 1) <= correctness
    assert n * tail(n, d, k, k - found.threshold_most) > correctness


@pytest.mark.parametrize("adversary", ["curious", "active"])
def test_more_demand_never_shrinks_the_graph(adversary: Adversary) -> None:
    base = {"corrupt": 0.1, "dropout": 0.1, "privacy_bits": 40, "correctness_bits": 20}
    steps: dict[str, tuple[float, ...]] = {
        "corrupt": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25),
        "dropout": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25),
        "privacy_bits": (10, 20, 30, 40, 60, 80),
        "correctness_bits": (5, 10, 20, 30, 40),
    }
    for key, values in steps.items():
        degrees = [
            find_parameters(2_000, adversary=adversary, **{**base, key: value}).degree  # type: ignore[arg-type]
            for value in values
        ]
        assert degrees == sorted(degrees)
        assert degrees[0] < degrees[-1]


def test_the_threshold_of_an_active_server_keeps_a_reserve() -> None:
    active = find_parameters(128, corrupt=0.1, dropout=0.1, adversary="active")
    assert active.threshold == 70  # 2t > 127 + 12
    assert active.threshold_least == 13
    curious = find_parameters(128, corrupt=0.1, dropout=0.1, adversary="curious")
    assert curious.threshold == curious.threshold_least == 13


def test_rates_are_read_as_the_decimals_they_print_as() -> None:
    found = find_parameters(100, corrupt=0.29, dropout=0.07, adversary="curious")
    assert (int(0.29 * 100), found.corrupt_clients) == (28, 29)
    assert found.dropped_clients == 7


# What is stated of the events

PROOF = Path(__file__).parents[3] / "docs" / "protection" / "masking-proof.md"


def events_of(adversary: Adversary, protects: str) -> set[str]:
    """Events that the parameters of a drawn sparse cohort are found for."""
    found = find_parameters(600, corrupt=0.1, dropout=0.1, adversary=adversary, roster=6_000)
    return {bound.event for bound in found.bounds if bound.protects == protects}


def test_the_module_lists_exactly_the_events_that_are_evaluated() -> None:
    privacy, _, correctness = (parameters.__doc__ or "").partition("The round may fail")
    for text, protects in ((privacy, "privacy"), (correctness, "correctness")):
        listed = re.findall(r"^- \*([a-z ]+)\*", text, re.MULTILINE)
        assert len(listed) == len(set(listed))
        assert set(listed) == events_of("curious", protects) | events_of("active", protects)


@pytest.mark.claim("masking-degree-and-threshold")
def test_the_proof_lists_exactly_the_events_against_an_active_server() -> None:
    text = PROOF.read_text(encoding="utf-8")
    chance = text.partition("## Events that are left to chance")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+): .*\| (.*) \|$", chance, re.MULTILINE)
    assert {event for event, _ in rows} == events_of("active", "privacy")
    found = find_parameters(600, corrupt=0.1, dropout=0.1, adversary="active", roster=6_000)
    formulas = {bound.event: bound.formula for bound in found.bounds}
    assert all(formulas[event] == formula for event, formula in rows)


# A cohort drawn from a roster


def test_a_drawn_cohort_may_hold_more_corrupt_clients_than_the_roster_does_on_average() -> None:
    drawn = find_parameters(10_000, corrupt=0.1, dropout=0.1, adversary="active", roster=10**6)
    whole = find_parameters(10_000, corrupt=0.1, dropout=0.1, adversary="active")
    assert whole.corrupt_clients == 1_000
    most = drawn.corrupt_clients
    assert upper_tail(10**6, 10**5, 10_000, most + 1) <= Fraction(1, 2**41)
    assert upper_tail(10**6, 10**5, 10_000, most) > Fraction(1, 2**41)
    assert drawn.degree > whole.degree
    assert drawn.committee is not None
    assert whole.committee is not None
    assert drawn.committee > whole.committee
    assert 2 * drawn.min_survivors > 10_000 + most
    assert [bound.event for bound in drawn.bounds if bound.protects == "privacy"] == [
        "cohort",
        "corrupt neighbours",
        "windows",
        "committee",
    ]
    total = sum(2.0**bound.log2 for bound in drawn.bounds if bound.protects == "privacy")
    assert total <= 2.0**-40


@pytest.mark.parametrize("bits", range(20, 60, 4))
def test_the_draw_of_the_cohort_spends_from_the_same_budget(bits: int) -> None:
    found = find_parameters(
        600, corrupt=0.1, dropout=0.1, adversary="curious", roster=6_000, privacy_bits=bits
    )
    c, k = found.corrupt_clients, found.degree
    total = upper_tail(6_000, 600, 600, c + 1) + apart(600, c + found.dropped_clients, k)
    total += (600 - c) * tail(599, c, k, found.threshold)
    assert total <= Fraction(1, 2**bits)


def test_a_roster_that_is_the_cohort_changes_nothing() -> None:
    request = {"corrupt": 0.1, "dropout": 0.1}
    same = find_parameters(400, adversary="active", roster=400, **request)  # type: ignore[arg-type]
    assert same == find_parameters(400, adversary="active", **request)  # type: ignore[arg-type]


# Refusals


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"n": 2}, "masking.clients"),
        ({"n": 2**24 + 1}, "masking.clients"),
        ({"corrupt": -0.01}, "masking.corrupt"),
        ({"corrupt": 1.0}, "masking.corrupt"),
        ({"corrupt": float("nan")}, "masking.corrupt"),
        ({"dropout": 1.5}, "masking.dropout"),
        ({"dropout": float("inf")}, "masking.dropout"),
        ({"privacy_bits": 0}, "masking.privacy_bits"),
        ({"correctness_bits": 129}, "masking.correctness_bits"),
        ({"roster": 99}, "masking.roster"),
        ({"min_honest": 1}, "masking.min_honest"),
        ({"adversary": "malicious"}, "masking.adversary"),
        ({"adversary": "active", "agreed_survivors": False}, "masking.agreed_survivors"),
        ({"corrupt": 0.5, "dropout": 0.4999}, "masking.corrupt"),
        ({"corrupt": 0.4, "dropout": 0.35, "adversary": "active"}, "masking.corrupt"),
        ({"n": 3, "corrupt": 0.34, "dropout": 0.0, "min_honest": 3}, "masking.corrupt"),
        ({"n": 4, "corrupt": 0.0, "dropout": 0.5}, "masking.dropout"),
    ],
)
def test_impossible_requests_are_refused(change: dict[str, object], key: str) -> None:
    request: dict[str, object] = {
        "n": 100,
        "corrupt": 0.1,
        "dropout": 0.1,
        "adversary": "curious",
        **change,
    }
    with pytest.raises(ConfigError) as refusal:
        find_parameters(request.pop("n"), **request)  # type: ignore[arg-type]
    assert refusal.value.key == key


def test_the_smallest_round_has_three_clients() -> None:
    found = find_parameters(3, corrupt=0.0, dropout=0.0, adversary="active")
    assert (found.degree, found.threshold, found.quorum, found.min_survivors) == (2, 2, 2, 3)


def test_a_refused_survivor_set_is_one_that_windows_would_refuse() -> None:
    """The number that parameters hand to clients is the one that ``windows_hold`` compares."""
    found = find_parameters(1_024, corrupt=0.1, dropout=0.1, adversary="active")
    order = np.arange(1_024, dtype=np.int64)
    survivors = np.ones(1_024, dtype=bool)
    least = found.window_least
    assert least is not None
    survivors[: found.degree // 2 - least] = False
    assert windows_hold(order, survivors, found.degree, least)
    survivors[found.degree // 2 - least] = False
    assert not windows_hold(order, survivors, found.degree, least)
