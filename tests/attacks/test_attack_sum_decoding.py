"""Sums over few clients: what is planted is found, and nothing that is called certain is false."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.sums.decoding import Decoded, RoundSums, decode
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint

ONE = np.array([0.0, 1.0])
STARS = np.arange(1.0, 6.0)
LAMBDA = 0.001
WIDE = FixedPoint()


class Federation:
    """Clients, who rated which item and how, and the sums that a server is left with."""

    def __init__(
        self,
        raters: Sequence[Sequence[int]],
        *,
        clients: int,
        width: int,
        seed: int,
        levels: FloatArray = ONE,
        size: float = 0.005,
        mean: float = 0.0,
        codec: FixedPoint = WIDE,
        bound: bool = True,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.users = rng.uniform(-size, size, (clients, width)) + mean * size
        self.raters = [tuple(each) for each in raters]
        self.vectors = rng.uniform(-size, size, (len(raters), width))
        positive = levels[levels > 0]
        self.ratings = [rng.choice(positive, len(each)) for each in raters]
        words = np.zeros((len(raters), width), dtype=codec.dtype)
        for item, (own, rated) in enumerate(zip(self.raters, self.ratings, strict=True)):
            for client, rating in zip(own, rated, strict=True):
                off = rating - self.users[client] @ self.vectors[item]
                row = -off * self.users[client] + LAMBDA * self.vectors[item]
                words[item] += codec.encode(row[None])[0]
        counts: IntArray = np.array([len(each) for each in raters], dtype=np.int64)
        values = codec.decode(codec.reduce(words))
        self.sums = RoundSums(
            items=np.arange(len(raters)),
            counts=counts,
            rows=LAMBDA * counts[:, None] * self.vectors - values,
            vectors=self.vectors,
            levels=levels,
            resolution=codec.resolution,
            bound=size * (1 + abs(mean)) if bound else np.inf,
        )

    def client_of(self, found: Decoded, who: int) -> int:
        """Whose vector a pseudonym's is closest to, of all that it may have."""
        possible = [entry.vector for entry in found.entries[who]]
        off = [np.linalg.norm(self.users - vector, axis=1) for vector in possible]
        return int(np.min(off, axis=0).argmin())

    def judged(self, found: Decoded) -> tuple[set[tuple[int, int]], int]:
        """True certain interactions, and how many certain claims are false."""
        right, wrong = set(), 0
        for (who, row), (rating, certain) in found.ties.items():
            if not certain:
                continue
            client, own = self.client_of(found, who), self.raters[row]
            true = client in own
            if true and rating == rating:  # noqa: PLR0124
                true = bool(self.ratings[row][own.index(client)] == rating)
            right |= {(client, row)} if true else set()
            wrong += not true
        for who in found.solved:
            entry = found.entries[who][0]
            off = float(np.linalg.norm(self.users[self.client_of(found, who)] - entry.vector))
            wrong += off > entry.error + 1e-12
        return right, wrong


def drawn(rng: np.random.Generator, clients: int, sizes: Sequence[int]) -> list[list[int]]:
    return [sorted(rng.choice(clients, size, replace=False).tolist()) for size in sizes]


# --- nothing false --------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 100_000),
    width=st.integers(1, 20),
    fraction=st.sampled_from([8, 10, 12, 16, 24, 32]),
    levels=st.sampled_from([ONE, STARS]),
    size=st.sampled_from([0.005, 0.3]),
    mean=st.sampled_from([0.0, 1.0]),
    clients=st.sampled_from([5, 25, 60]),
    least=st.integers(1, 4),
    bound=st.booleans(),
)
def test_nothing_certain_is_false(
    seed: int,
    width: int,
    fraction: int,
    levels: FloatArray,
    size: float,
    mean: float,
    clients: int,
    least: int,
    bound: bool,
) -> None:
    """Coarse rings, few dimensions, vectors around a common mean, floors: all sums of real raters."""
    rng = np.random.default_rng(seed)
    bits = 64 if fraction > 20 else 32
    federation = Federation(
        drawn(rng, clients, rng.integers(least, 6, 60).tolist()),
        clients=clients,
        width=width,
        seed=seed,
        levels=levels,
        size=size,
        mean=mean,
        codec=FixedPoint(bits=bits, fraction_bits=fraction, clip=16.0),
        bound=bound,
    )
    found = decode(federation.sums, budget=2.0**20)
    _, wrong = federation.judged(found)
    assert wrong == 0
    assert found.false <= 2.0**-20
