"""Signers of the survivors: a committee that the beacon draws, at the same cost in any cohort.

Of n clients m are drawn from the seed of the round's ring, hence after their keys are fixed. Those
of them that survive sign the survivors, and each client checks q of their signatures. Two sets of q
members share 2q - m of them at least, and an honest member signs one statement in a round: so no
two statements find a quorum, unless so many members are corrupt,

    P[HG(n, c, m) >= 2q - m],

and q members can sign, unless too many drop out, P[HG(n, d, m) > m - q]. For c_m corrupt members
the least q is floor((m + c_m) / 2) + 1 (``overlap_of``).

An adversary that corrupts members *after* the beacon named them needs few of them: that is not
covered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking.config.graph import permutation
from secure_fedrec.protection.masking.config.hypergeometric import (
    least_within,
    log2_above,
    log2_upper_tails,
    upper_tail,
)
from secure_fedrec.protection.session.statement import labelled_hash

_MARGIN_BITS: Final = 0.01  # the floating-point filter's error is below 2^-20


@dataclass(frozen=True, slots=True, kw_only=True)
class Committee:
    """A committee that meets its bounds.

    Args:
        members: m.
        quorum: q, signatures that make agreement.
        corrupted: P[2q - m members or more are corrupt].
        lost: P[fewer than q members are left].
    """

    members: int
    quorum: int
    corrupted: Fraction
    lost: Fraction


def overlap_of(clients: int, corrupt: int) -> int:
    """Fewest of some clients of which any two sets share one that is not corrupt.

    Args:
        clients: how many there are.
        corrupt: how many of them may be corrupt.
    """
    return (clients + corrupt) // 2 + 1


def smallest_committee(
    n: int, corrupt: int, dropped: int, *, privacy: Fraction, correctness: Fraction
) -> Committee | None:
    """The smallest committee that meets both bounds.

    Args:
        n: clients of the cohort.
        corrupt: corrupt clients among them.
        dropped: dropouts that a round survives.
        privacy: bound on P[2q - m members or more are corrupt].
        correctness: bound on P[fewer than q members are left].

    Returns:
        None where all n clients are needed.
    """
    for members in _promising(n, corrupt, dropped, privacy, correctness):
        # with `least` corrupt members the event has happened
        least = least_within(n, corrupt, members, privacy)
        quorum = overlap_of(members, least - 1)
        if quorum <= members:
            lost = upper_tail(n, dropped, members, members - quorum + 1)
            if lost <= correctness:
                corrupted = upper_tail(n, corrupt, members, 2 * quorum - members)
                return Committee(members=members, quorum=quorum, corrupted=corrupted, lost=lost)
    return None


def _promising(
    n: int, corrupt: int, dropped: int, privacy: Fraction, correctness: Fraction
) -> Iterator[int]:
    """Sizes below n that floating point does not exclude; the others are certain to fail."""
    if not privacy or not correctness:
        return
    corrupt_allowed = log2_above(privacy) + _MARGIN_BITS
    dropped_allowed = log2_above(correctness) + _MARGIN_BITS
    members = 1
    while members < n:
        least = np.count_nonzero(log2_upper_tails(n, corrupt, members) > corrupt_allowed)
        gone = np.count_nonzero(log2_upper_tails(n, dropped, members) > dropped_allowed)
        missing = overlap_of(members, int(least) - 1) + int(gone) - members - 1
        if missing <= 0:
            yield members
        # Each further member adds at most one to either count, so it makes up for at most one
        # missing signature.
        members += max(1, missing)


def draw_committee(seed: bytes, clients: int, members: int) -> BoolArray:
    """The committee of a round: the first clients of an order of their own.

    Args:
        seed: 32 bytes, of the round's ring (``graph_seed``); the orders of ring and committee are
            drawn under different labels.
        clients: clients of the cohort, n.
        members: clients to draw, m.

    Returns:
        bool[n], by place in the cohort.

    Raises:
        ConfigError: not 0 < m <= n, or the seed has another length.
        ProtocolError: two clients tie; the round needs another seed.
    """
    if not 0 < members <= clients:
        raise ConfigError("masking.committee", members, f"must be between 1 and {clients}")
    if len(seed) != 32:
        raise ConfigError("masking.graph_seed", f"{len(seed)} bytes", "must have 32 bytes")
    drawn = np.zeros(clients, dtype=np.bool_)
    drawn[permutation(labelled_hash("committee", seed), clients)[:members]] = True
    return drawn
