"""Mask neighbours: the complete graph, or a Harary graph over a public random ring.

Clients of a round are numbered by their place in the ascending list of the cohort. A seed that no
party chose turns them into a ring (``permutation``); in the Harary graph of even degree k each
masks with the k/2 clients before and the k/2 behind it (Bell, Bonawitz, Gascón, Lepoint, Raykova,
"Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020, section 3).

If some clients are gone, the remaining graph falls apart exactly when at least two runs of k/2 or
more consecutive ring places are empty. Against a server that follows the protocol the empty places
are random, and ``disconnection_bound`` counts them. An active server sees the ring and then chooses
which clients to declare dropped; therefore every client checks ``windows_hold``.
"""

import hashlib
import math
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, ProtocolError

_SEED_LABEL = b"secure-fedrec|v1|masking|graph-seed"
_RING_LABEL = b"secure-fedrec|v1|masking|graph-ring"


def graph_seed(beacon: bytes, cohort_hash: bytes, round_id: bytes) -> bytes:
    """Seed of a round's graph: SHA-256 over the length-prefixed label and arguments.

    No party can grind it as long as the cohort hash and the round number were signed before the
    beacon of their epoch existed, and an epoch allows one attempt.

    Args:
        beacon: public randomness of the epoch.
        cohort_hash: hash of the cohort's list.
        round_id: identity of the round.

    Returns:
        32 bytes.
    """
    digest = hashlib.sha256()
    for part in (_SEED_LABEL, beacon, cohort_hash, round_id):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def permutation(seed: bytes, n: int) -> IntArray:
    """A pseudo-random ring of n clients: the order of one 128-bit AES-256-CTR block each.

    The key is SHA-256 of label and seed; client u gets block u of the keystream, read as two
    little-endian words, the more significant first. All orders are equally likely but for ties
    (probability below n^2 / 2^129), and a tie is refused instead of broken in a party's favour.

    Args:
        seed: 32 bytes, from ``graph_seed``.
        n: number of clients, at least 1.

    Returns:
        int64[n]; entry p is the client at ring place p.

    Raises:
        ConfigError: n is below 1, or the seed has another length.
        ProtocolError: two clients tie; the round needs another seed.
    """
    if n < 1:
        raise ConfigError("masking.clients", n, "must be at least 1")
    if len(seed) != 32:
        raise ConfigError("masking.graph_seed", f"{len(seed)} bytes", "must have 32 bytes")
    key = hashlib.sha256(_RING_LABEL + seed).digest()
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(16 * n))
    words = np.frombuffer(stream, dtype="<u8").reshape(n, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    ranked = words[order]
    if np.any((ranked[1:] == ranked[:-1]).all(axis=1)):
        raise ProtocolError("two clients tie for a place in the ring; draw another graph seed")
    return order.astype(np.int64, copy=False)


def harary_neighbours(order: IntArray, degree: int) -> IntArray:
    """The Harary graph over a ring.

    Args:
        order: int64[n], the client at each ring place.
        degree: neighbours of each client, even, from 2 to n - 1.

    Returns:
        int64[n, degree]; row u holds the neighbours of u, ascending. v is in row u exactly when u
        is in row v.

    Raises:
        ConfigError: the degree is odd or out of range.
    """
    half = _half(degree, len(order))
    places = np.arange(len(order))[:, None]
    steps = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
    neighbours = np.empty((len(order), degree), dtype=np.int64)
    neighbours[order] = order[(places + steps) % len(order)]
    neighbours.sort(axis=1)
    return neighbours


def windows_hold(order: IntArray, survivors: BoolArray, degree: int, least: int) -> bool:
    """Whether every window of degree/2 consecutive ring places keeps enough survivors.

    With ``least`` above the corrupt clients of any window, each window keeps an honest survivor;
    then no run of degree/2 places is empty of them and their graph is connected, for any choice of
    survivors.

    Args:
        order: int64[n], the client at each ring place.
        survivors: bool[n], by client (not by ring place).
        degree: degree of the Harary graph.
        least: survivors that each of the n cyclic windows must hold.

    Raises:
        ConfigError: the degree is odd or out of range, or there is not one mark per client.
    """
    half = _half(degree, len(order))
    if survivors.shape != order.shape:
        raise ConfigError(
            "masking.survivors", survivors.shape, f"must mark each of {len(order)} clients"
        )
    ring = survivors[order].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(np.concatenate([ring, ring[: half - 1]]))])
    return bool(np.all(before[half:] - before[:-half] >= least))


def disconnection_bound(n: int, removed: int, degree: int) -> Fraction:
    """Bound on P[a Harary graph falls apart] when random places of its ring are removed.

    The r = n - removed clients that stay cut the ring into r gaps whose lengths are uniform among
    the ways to write ``removed`` as an ordered sum. The expected number of pairs of gaps that both
    reach k/2 is

        C(r, 2) C(n - 1 - k, r - 1) / C(n - 1, r - 1) = C(r, 2) C(removed, k) / C(n - 1, k)

    and bounds the probability that there is such a pair. It counts a gap once, not at each of its
    places, so it is never above the two-break union bound n (n - k - 1) / 2 C(n - k, r) / C(n, r).

    Args:
        n: clients on the ring.
        removed: clients that are corrupt or dropped, at random places.
        degree: degree of the graph, even, from 2 to n - 1.

    Raises:
        ConfigError: the degree is odd or out of range, or not 0 <= removed <= n.
    """
    _half(degree, n)
    if not 0 <= removed <= n:
        raise ConfigError("masking.removed", removed, f"must be between 0 and {n}")
    pairs = math.comb(n - removed, 2)
    return Fraction(pairs * math.comb(removed, degree), math.comb(n - 1, degree))


def _half(degree: int, n: int) -> int:
    if degree % 2 or not 2 <= degree <= n - 1:
        raise ConfigError("masking.degree", degree, f"must be even, from 2 to {n - 1}")
    return degree // 2
