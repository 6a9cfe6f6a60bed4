"""The masking graph: an unbiased ring, symmetric neighbours, and when the graph falls apart."""

import hashlib
from fractions import Fraction
from itertools import combinations, permutations
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.config import graph
from secure_fedrec.protection.masking.config.graph import (
    disconnection_bound,
    graph_seed,
    harary_neighbours,
    permutation,
    windows_hold,
)
from secure_fedrec.protection.masking.messages.topology import Topology


def seed_of(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def complete_neighbours(n: int) -> IntArray:
    """int64[n, n - 1], every client's neighbours where the graph is complete."""
    config: Any = SimpleNamespace(degree=None, clients=n)
    topology = Topology(config, bytes(32))
    return np.array([topology.neighbours(place) for place in range(n)])


def components(neighbours: IntArray, members: BoolArray) -> int:
    """Connected components of the subgraph that some clients induce."""
    left, count = set(np.flatnonzero(members).tolist()), 0
    while left:
        count += 1
        reached = [left.pop()]
        while reached:
            near = left.intersection(neighbours[reached.pop()].tolist())
            left -= near
            reached += near
    return count


# Seed and ring


def test_the_graph_seed_binds_every_argument_and_its_length() -> None:
    parts = (b"beacon", b"cohort", b"round")
    seen = {graph_seed(*order) for order in permutations(parts)}
    seen |= {graph_seed(b"beaconc", b"ohort", b"round"), graph_seed(b"", b"beaconcohort", b"round")}
    assert len(seen) == 6 + 2
    assert {len(seed) for seed in seen} == {32}


def test_the_graph_seed_is_the_documented_hash() -> None:
    parts = (b"secure-fedrec|v1|masking|graph-seed", b"b" * 32, b"c" * 32, b"r" * 16)
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert graph_seed(*parts[1:]) == hashlib.sha256(message).digest()


@pytest.mark.parametrize("n", [1, 2, 7, 300])
def test_the_ring_sorts_one_aes_block_per_client(n: int) -> None:
    """An independent evaluation: block by block, in Python's integers."""
    seed = seed_of(n)
    key = hashlib.sha256(b"secure-fedrec|v1|masking|graph-ring" + seed).digest()
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
    ranks = []
    for client in range(n):
        block = encryptor.update(client.to_bytes(16, "big"))
        ranks.append(
            (int.from_bytes(block[:8], "little") << 64) | int.from_bytes(block[8:], "little")
        )
    expected = sorted(range(n), key=ranks.__getitem__)
    order = permutation(seed, n)
    assert order.tolist() == expected
    assert order.dtype == np.int64


def test_every_order_is_equally_likely() -> None:
    draws = 24 * 400
    counts = dict.fromkeys(permutations(range(4)), 0)
    for number in range(draws):
        counts[tuple(permutation(seed_of(number), 4).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3
    # The same test sees a ring whose ties are broken in favour of the lower number.
    biased = dict.fromkeys(permutations(range(4)), 0)
    for number in range(draws):
        keys = np.frombuffer(seed_of(number)[:4], np.uint8) // 16
        biased[tuple(np.argsort(keys, kind="stable").tolist())] += 1
    assert chisquare(list(biased.values())).pvalue < 1e-6


def test_every_client_is_equally_likely_at_every_place() -> None:
    n, draws = 9, 3000
    counts = np.zeros((n, n))
    for number in range(draws):
        counts[np.arange(n), permutation(seed_of(number), n)] += 1
    assert chisquare(counts.ravel(), ddof=2 * n - 2).pvalue > 1e-3


def test_a_large_ring_is_a_permutation_and_depends_on_the_seed() -> None:
    rings = [permutation(seed_of(number), 100_000) for number in range(2)]
    assert np.array_equal(np.sort(rings[0]), np.arange(100_000))
    assert np.mean(rings[0] == rings[1]) < 1e-3


def test_ties_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        def __init__(self, *_: object) -> None: ...

        def encryptor(self) -> "Constant":
            return self

        def update(self, data: bytes) -> bytes:
            return data

    monkeypatch.setattr(graph, "Cipher", Constant)
    with pytest.raises(ProtocolError, match="tie for a place"):
        permutation(bytes(32), 2)
    assert permutation(bytes(32), 1).tolist() == [0]


def test_bad_rings_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        permutation(bytes(32), 0)
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(ConfigError, match="32 bytes"):
            permutation(seed, 5)


# Neighbours


@pytest.mark.parametrize("n", [2, 3, 10])
def test_the_complete_graph_holds_everybody_else(n: int) -> None:
    neighbours = complete_neighbours(n)
    assert neighbours.tolist() == [[v for v in range(n) if v != u] for u in range(n)]
    assert neighbours.dtype == np.int64


@st.composite
def rings(draw: st.DrawFn, most: int = 40) -> tuple[IntArray, int]:
    n = draw(st.integers(3, most))
    order = np.array(draw(st.permutations(range(n))), dtype=np.int64)
    return order, 2 * draw(st.integers(1, (n - 1) // 2))


@settings(deadline=None)
@given(rings())
def test_harary_neighbours_are_those_within_half_the_degree_on_the_ring(
    ring: tuple[IntArray, int],
) -> None:
    order, degree = ring
    n = len(order)
    neighbours = harary_neighbours(order, degree)
    assert neighbours.shape == (n, degree)
    assert neighbours.dtype == np.int64
    place = {int(client): p for p, client in enumerate(order)}
    for u in range(n):
        near = [
            v
            for v in range(n)
            if 0 < min((place[u] - place[v]) % n, (place[v] - place[u]) % n) <= degree // 2
        ]
        assert neighbours[u].tolist() == near  # ascending, without u and without repeats
    linked = np.zeros((n, n), dtype=bool)
    linked[np.arange(n)[:, None], neighbours] = True
    assert np.array_equal(linked, linked.T)
    assert components(neighbours, np.ones(n, dtype=bool)) == 1


def test_a_harary_graph_of_full_degree_is_complete() -> None:
    assert np.array_equal(harary_neighbours(permutation(seed_of(1), 9), 8), complete_neighbours(9))


@pytest.mark.parametrize("degree", [-2, 0, 3, 10, 12])
def test_impossible_degrees_are_refused(degree: int) -> None:
    order = permutation(seed_of(1), 10)
    with pytest.raises(ConfigError, match="must be even, from 2 to 9"):
        harary_neighbours(order, degree)
    with pytest.raises(ConfigError, match="must be even, from 2 to 9"):
        windows_hold(order, np.ones(10, dtype=bool), degree, 1)
    with pytest.raises(ConfigError, match="must be even, from 2 to 9"):
        disconnection_bound(10, 3, degree)


def test_other_impossible_arguments_are_refused() -> None:
    order = permutation(seed_of(1), 10)
    with pytest.raises(ConfigError, match="each of 10 clients"):
        windows_hold(order, np.ones(9, dtype=bool), 4, 1)
    for removed in (-1, 11):
        with pytest.raises(ConfigError, match="between 0 and 10"):
            disconnection_bound(10, removed, 4)


# When it falls apart


def breaks(kept: list[int], n: int, half: int) -> int:
    """Gaps between ring neighbours that stay, of at least ``half`` removed places."""
    ends = [*kept[1:], kept[0] + n]
    return sum(end - start - 1 >= half for start, end in zip(kept, ends, strict=True))


@pytest.mark.parametrize(("n", "degree"), [(7, 2), (8, 4), (9, 2), (10, 4), (11, 6)])
def test_the_disconnection_bound_against_every_removal(n: int, degree: int) -> None:
    neighbours = harary_neighbours(np.arange(n, dtype=np.int64), degree)
    for removed in range(n - 1):
        apart = pairs = 0
        for kept in combinations(range(n), n - removed):
            members = np.zeros(n, dtype=bool)
            members[list(kept)] = True
            gaps = breaks(list(kept), n, degree // 2)
            split = components(neighbours, members) > 1
            assert split == (gaps >= 2)
            apart += split
            pairs += comb(gaps, 2)
        bound = disconnection_bound(n, removed, degree)
        assert bound == Fraction(pairs, comb(n, removed))
        assert Fraction(apart, comb(n, removed)) <= bound
        if removed < 3 * (degree // 2):  # no room for a third break: the bound is the probability
            assert Fraction(apart, comb(n, removed)) == bound


@settings(deadline=None)
@given(st.integers(5, 300), st.data())
def test_the_disconnection_bound_is_never_above_the_two_break_union_bound(
    n: int, data: st.DataObject
) -> None:
    degree = 2 * data.draw(st.integers(1, (n - 2) // 2))
    removed = data.draw(st.integers(0, n - 2))
    stay = n - removed
    union = Fraction(n * (n - degree - 1) * comb(n - degree, stay), 2 * comb(n, stay))
    assert disconnection_bound(n, removed, degree) <= union


@settings(deadline=None)
@given(rings(24), st.data())
def test_windows_are_counted_one_by_one(ring: tuple[IntArray, int], data: st.DataObject) -> None:
    order, degree = ring
    n = len(order)
    survivors = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    fewest = min(
        sum(survivors[order[(start + step) % n]] for step in range(degree // 2))
        for start in range(n)
    )
    assert windows_hold(order, survivors, degree, fewest)
    assert not windows_hold(order, survivors, degree, fewest + 1)


@pytest.mark.parametrize("start", range(10))
def test_windows_go_round_the_ring(start: int) -> None:
    order = permutation(seed_of(3), 10)
    survivors = np.ones(10, dtype=bool)
    survivors[order[(start + np.arange(3)) % 10]] = False
    assert not windows_hold(order, survivors, 6, 1)
    assert windows_hold(order, survivors, 8, 1)


@pytest.mark.parametrize(("n", "degree"), [(8, 4), (9, 4), (9, 6), (10, 4)])
def test_windows_that_hold_leave_honest_survivors_connected(n: int, degree: int) -> None:
    """Every survivor set against every pair of corrupt clients: whoever chose the survivors."""
    order = permutation(seed_of(n), n)
    neighbours = harary_neighbours(order, degree)
    held = apart = 0
    sets = [np.array([bits >> u & 1 for u in range(n)], dtype=bool) for bits in range(1, 2**n)]
    for pair in combinations(range(n), 2):
        honest = np.ones(n, dtype=bool)
        honest[list(pair)] = False
        ring = (~honest)[order]
        least = 1 + max(int(np.roll(ring, -p)[: degree // 2].sum()) for p in range(n))
        for survivors in sets:
            split = components(neighbours, honest & survivors) > 1
            apart += split
            if windows_hold(order, survivors, degree, least):
                held += 1
                assert not split
    assert held > 0
    assert apart > 0  # there was something to rule out
