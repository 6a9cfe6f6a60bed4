"""FedRec++ as most people would simulate it: a Python loop over clients, numpy inside.

It runs the protocol of ``secure_fedrec`` on the same ratings: per client the fakes, the virtual
ratings, the rows in item order, the ring words, the server's and the denoiser's sum, and the step
of the user vector; then the step of the item vectors. No messages are built and nothing is metered
or checked. Of the idioms tried, these were the fastest per client:

- ``Generator.choice(..., replace=False, shuffle=False)`` for the fakes (a permutation takes three
  times as long at the median client);
- one gather of item vectors for real and virtual rows together, merged through flags, not a sort;
- ``table[items] += rows``: a client's items are distinct, so no ``np.add.at`` is needed.

``ClientLoop`` trains the copy that predicts as the paper writes it, T_local gradient steps over the
client's ratings. ``TunedLoop`` replaces them by affine maps through the client's Gram matrix, the
trick of the engine itself; it is timed beside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.federations import Federation
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.engines import LocalEngine

__all__ = ["ClientLoop", "Fakes", "RingSums", "TunedLoop"]

_USER_VECTORS = "user_vectors"


class Fakes(NamedTuple):
    """Virtual items of one client.

    Attributes:
        items: int64[k], unrated and distinct.
        ratings: float64[k], the virtual ratings; None asks for predictions.
    """

    items: IntArray
    ratings: FloatArray | None = None


class Rows(NamedTuple):
    """What one client computes from its ratings and fakes.

    Attributes:
        items: int64[N], ascending.
        virtual: int64[k], positions of the virtual ones.
        values: float64[N, d].
        user: float64[d], the new user vector.
    """

    items: IntArray
    virtual: IntArray
    values: FloatArray
    user: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RingSums:
    """Sums of a round, in ring words, and how many rows stand behind them.

    Args:
        uploads: uint64[m, d], rows that reached the server under a name.
        noise: uint64[m, d], what the denoiser sent: virtual rows less its own rows.
        counts: int64[m], ratings per item once the noise is off.
    """

    uploads: RingArray
    noise: RingArray
    counts: IntArray

    @property
    def aggregate(self) -> RingArray:
        """uint64[m, d], the sum of the real rows."""
        return self.uploads - self.noise


class ClientLoop:
    """A federation simulated client by client, from the state of a fresh engine.

    Args:
        federation: ratings and settings.
        start: engine whose state is taken over.
        seed: of the fakes.
    """

    def __init__(self, federation: Federation, start: LocalEngine, *, seed: int = 0) -> None:
        table, virtual = federation.table, federation.virtual
        self.algorithm = federation.algorithm
        self.n_clients, self.n_items = table.n_clients, table.n_items
        self.round = start.public.round
        self.item_vectors = start.public.table.copy()
        self.users = start.vault.read(_USER_VECTORS, np.arange(table.n_clients))
        self._rho, self._local_steps = virtual.rho, virtual.local_steps
        self._scale = federation.codec.scale
        self._denoiser = federation.denoiser
        self._bounds = table.indptr().tolist()
        self._items = table.items.astype(np.int64)
        self._ratings = np.array(table.ratings)
        self._rng = np.random.default_rng(seed)
        self._by_item = np.empty(table.n_items)  # scratch: ratings of one client at their items

    @property
    def step_size(self) -> float:
        """Gamma of the round in progress."""
        return self.algorithm.step_size(self.round)

    def run_round(self, given: Callable[[int], Fakes] | None = None) -> RingSums:
        """One round of training.

        Args:
            given: fakes of a client, to repeat another engine's round; drawn here by default.

        Returns:
            The round's sums.
        """
        fakes_of = self.draw if given is None else given
        shape = self.item_vectors.shape
        uploads, noise = np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64)
        received, noise_received = np.zeros((2, self.n_items), dtype=np.int64)
        users = np.empty_like(self.users)
        for client in range(self.n_clients):
            rows = self.rows(client, fakes_of(client))
            users[client] = rows.user
            words = self.encode(rows.values)
            if client == self._denoiser:
                noise[rows.items] -= words
                noise_received[rows.items] -= 1
                continue
            uploads[rows.items] += words
            received[rows.items] += 1
            virtual = rows.items[rows.virtual]
            noise[virtual] += words[rows.virtual]
            noise_received[virtual] += 1
        sums = RingSums(uploads=uploads, noise=noise, counts=received - noise_received)
        self._server_step(sums)
        self.users = users
        return sums

    def draw(self, client: int) -> Fakes:
        """Fresh fakes, uniform without replacement; the denoiser draws none."""
        own, _ = self._rated(client)
        unrated = np.flatnonzero(~self._flags(own))
        count = min(int(self._rho * len(own)), len(unrated))
        if client == self._denoiser:
            count = 0
        return Fakes(unrated[self._rng.choice(len(unrated), count, replace=False, shuffle=False)])

    def rows(self, client: int, fakes: Fakes) -> Rows:
        """Rows of one client in ascending item order, and its next user vector."""
        own, ratings = self._rated(client)
        user, vectors = self.users[client], self.item_vectors
        own_vectors = vectors[own]
        filled = fakes.ratings
        if filled is None:
            filled = vectors[fakes.items] @ self._trained_copy(user, own_vectors, ratings)
        flags = self._flags(own)
        flags[fakes.items] = True
        items = np.flatnonzero(flags)
        flags[own] = False
        self._by_item[own], self._by_item[fakes.items] = ratings, filled
        values = vectors[items]
        residuals = self._by_item[items] - np.vecdot(values, user)
        values *= self.algorithm.regularization
        values -= residuals[:, None] * user
        stepped = self._user_step(user, own_vectors, ratings)
        return Rows(items, np.flatnonzero(flags[items]), values, stepped)

    def encode(self, values: FloatArray) -> RingArray:
        """Ring words of reals, rounded to nearest even."""
        return np.rint(values * self._scale).astype(np.int64).view(np.uint64)

    def _rated(self, client: int) -> tuple[IntArray, FloatArray]:
        part = slice(self._bounds[client], self._bounds[client + 1])
        return self._items[part], self._ratings[part]

    def _flags(self, items: IntArray) -> BoolArray:
        flags = np.zeros(self.n_items, dtype=bool)
        flags[items] = True
        return flags

    def _trained_copy(
        self, user: FloatArray, vectors: FloatArray, ratings: FloatArray
    ) -> FloatArray:
        """T_local full-batch gradient steps on the client's ratings."""
        gamma, size = self.step_size, max(1, len(ratings))
        shrink = 1 - gamma * self.algorithm.regularization
        copy = user
        for _ in range(self._local_steps):
            residuals = ratings - vectors @ copy
            copy = shrink * copy + (gamma / size) * (residuals @ vectors)
        return copy

    def _user_step(self, user: FloatArray, vectors: FloatArray, ratings: FloatArray) -> FloatArray:
        if not len(ratings):
            return user
        pull = (vectors @ user - ratings) @ vectors / len(ratings)
        gradient: FloatArray = pull + self.algorithm.regularization * user
        return user - self.step_size * gradient

    def _server_step(self, sums: RingSums) -> None:
        rated = sums.counts > 0
        total = sums.aggregate.view(np.int64)[rated] / self._scale
        self.item_vectors[rated] -= self.step_size * total / sums.counts[rated, None]
        self.round += 1


class TunedLoop(ClientLoop):
    """The loop with local training through the Gram matrix: u <- matrix u + offset."""

    def _trained_copy(
        self, user: FloatArray, vectors: FloatArray, ratings: FloatArray
    ) -> FloatArray:
        gamma = self.step_size
        share = gamma / max(1, len(ratings))
        shrink = 1 - gamma * self.algorithm.regularization
        matrix = shrink * np.eye(len(user)) - share * (vectors.T @ vectors)
        offset = share * (ratings @ vectors)
        copy = user
        for _ in range(self._local_steps):
            copy = matrix @ copy + offset
        return copy
