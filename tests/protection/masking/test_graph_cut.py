"""An active server cuts the honest graph of a sparse round; the window check refuses its sets.

The server sees the ring before it names the survivors. It drops the honest clients of two windows
of degree/2 places; the corrupt ones there stay, so that everybody keeps enough live neighbours. The
honest clients between the windows then share masks with each other only, and their sum shows.
"""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.protection.masking.config.graph import (
    harary_neighbours,
    permutation,
    windows_hold,
)
from secure_fedrec.protection.masking.config.hypergeometric import least_within
from secure_fedrec.protection.masking.config.parameters import MaskingParameters, find_parameters

N = 1_024
RATE = 0.1
SEEDS = range(20)


def ring(seed: int) -> IntArray:
    return permutation(hashlib.sha256(seed.to_bytes(4, "little")).digest(), N)


def corrupt_clients(seed: int, count: int) -> BoolArray:
    """Chosen before the ring is known."""
    corrupt = np.zeros(N, dtype=bool)
    corrupt[np.random.default_rng(seed).choice(N, count, replace=False)] = True
    return corrupt


def reached(neighbours: IntArray, members: BoolArray, start: int) -> BoolArray:
    """Component of a client in the subgraph of some members."""
    seen = np.zeros(N, dtype=bool)
    seen[start] = True
    while True:
        wider = seen.copy()
        wider[neighbours[seen]] = True
        wider &= members
        wider |= seen
        if np.array_equal(wider, seen):
            return seen
        seen = wider


def cut(
    order: IntArray, corrupt: BoolArray, parameters: MaskingParameters, *, threshold: int
) -> tuple[BoolArray, BoolArray] | None:
    """The survivors to name and the honest clients that they cut off, with the fewest drops.

    Every named survivor keeps at least ``threshold`` live neighbours.
    """
    half = parameters.degree // 2
    neighbours = harary_neighbours(order, parameters.degree)
    around = np.concatenate([corrupt[order], corrupt[order]]).astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(around)])
    inside = sums[half : N + half] - sums[:N]  # corrupt clients in the window from each place on
    starts, between = np.arange(N)[:, None], np.arange(half // 2, 2 * half, 3)
    drops = 2 * half - inside[starts] - inside[(starts + half + between) % N]
    for candidate in np.argsort(drops, axis=None, kind="stable"):
        start, column = np.unravel_index(candidate, drops.shape)
        if drops[start, column] > parameters.dropped_clients:
            return None
        gap = int(between[column])
        walls = np.concatenate([np.arange(half), half + gap + np.arange(half)])
        walls = order[(start + walls) % N]
        survivors = np.ones(N, dtype=bool)
        survivors[walls] = corrupt[walls]
        victims = order[(start + half + np.arange(gap)) % N]
        cut_off = np.zeros(N, dtype=bool)
        cut_off[victims] = ~corrupt[victims]
        if survivors[neighbours].sum(axis=1)[survivors].min() >= threshold and cut_off.sum() >= 2:
            return survivors, cut_off
    return None


@pytest.fixture(scope="module")
def curious() -> MaskingParameters:
    found = find_parameters(N, corrupt=RATE, dropout=RATE, adversary="curious")
    assert (found.degree, found.threshold) == (46, 26)
    return found


@pytest.fixture(scope="module")
def active() -> MaskingParameters:
    return find_parameters(N, corrupt=RATE, dropout=RATE, adversary="active")


@pytest.mark.claim("masking-curious-parameters")
@pytest.mark.parametrize("seed", SEEDS)
def test_curious_parameters_let_an_active_server_cut_clients_off(
    seed: int, curious: MaskingParameters
) -> None:
    order = ring(seed)
    corrupt = corrupt_clients(seed, curious.corrupt_clients)
    found = cut(order, corrupt, curious, threshold=curious.threshold)
    assert found is not None
    survivors, victims = found
    assert survivors.sum() >= max(curious.min_survivors, curious.quorum)
    assert 30 <= N - survivors.sum() <= 46
    assert victims.sum() >= 8
    neighbours = harary_neighbours(order, curious.degree)
    honest = survivors & ~corrupt
    start = int(np.flatnonzero(victims)[0])
    assert np.array_equal(reached(neighbours, honest, start), victims)
    assert honest.sum() > 800  # the rest is a component of its own
    # What every client counts looks sound; the windows do not.
    assert survivors[neighbours].sum(axis=1)[survivors].min() >= curious.threshold
    least = least_within(N, curious.corrupt_clients, 23, Fraction(1, N * 2**40))
    assert not windows_hold(order, survivors, curious.degree, least)


def test_a_cut_opens_the_sum_of_the_clients_behind_it(curious: MaskingParameters) -> None:
    """Unmasking, step by step: the server ends with the plain sum of about a dozen clients."""
    order, corrupt = ring(0), corrupt_clients(0, curious.corrupt_clients)
    found = cut(order, corrupt, curious, threshold=curious.threshold)
    assert found is not None
    survivors, victims = found
    neighbours = harary_neighbours(order, curious.degree)
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**20, N)
    upper = np.triu(rng.integers(0, 2**62, (N, N)), 1)
    masks = np.zeros((N, N), dtype=np.int64)
    rows = np.repeat(np.arange(N), curious.degree)
    masks[rows, neighbours.ravel()] = (upper - upper.T)[rows, neighbours.ravel()]
    uploads = values + masks.sum(axis=1)  # self masks of survivors are revealed in the round
    # Opened: masks with dropped clients (recovered), and with corrupt ones (told).
    opened = ~survivors | corrupt
    shown = uploads[victims].sum() - masks[np.ix_(victims, opened)].sum()
    assert shown == values[victims].sum()
    # One honest survivor outside the cut keeps its masks: the same step on others shows nothing.
    others = np.flatnonzero(survivors & ~corrupt & ~victims)[: int(victims.sum())]
    hidden = uploads[others].sum() - masks[np.ix_(others, np.flatnonzero(opened))].sum()
    assert hidden != values[others].sum()


@pytest.mark.claim("masking-curious-parameters")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_cut_passes_the_windows_of_active_parameters(
    seed: int, active: MaskingParameters
) -> None:
    assert active.window_least is not None
    order = ring(seed)
    corrupt = corrupt_clients(seed, active.corrupt_clients)
    found = cut(order, corrupt, active, threshold=active.threshold_least)
    assert found is not None  # live neighbours alone would not rule it out
    assert not windows_hold(order, found[0], active.degree, active.window_least)
    # And whatever passes leaves the honest survivors in one piece: drop as many as the windows
    # allow, all of them honest, all in one stretch.
    survivors = np.ones(N, dtype=bool)
    for client in order[~corrupt[order]]:
        survivors[client] = False
        if not windows_hold(order, survivors, active.degree, active.window_least):
            survivors[client] = True
    assert survivors.sum() < N - active.dropped_clients
    honest = survivors & ~corrupt
    neighbours = harary_neighbours(order, active.degree)
    start = int(np.flatnonzero(honest)[0])
    assert np.array_equal(reached(neighbours, honest, start), honest)


def test_random_dropouts_pass_the_windows_of_active_parameters_only(
    active: MaskingParameters, curious: MaskingParameters
) -> None:
    rng = np.random.default_rng(11)
    trials, passed, passed_small = 400, 0, 0
    assert active.window_least is not None
    small = least_within(N, curious.corrupt_clients, 23, Fraction(1, N * 2**40))
    for trial in range(trials):
        order = ring(trial)
        survivors = np.ones(N, dtype=bool)
        survivors[rng.choice(N, active.dropped_clients, replace=False)] = False
        passed += windows_hold(order, survivors, active.degree, active.window_least)
        passed_small += windows_hold(order, survivors, curious.degree, small)
    assert passed == trials  # fails with probability below 2^-20 each
    assert passed_small < trials / 20  # the reason for the larger degree
