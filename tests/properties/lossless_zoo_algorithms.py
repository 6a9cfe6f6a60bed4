"""Algorithms of the zoo of losslessness."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock, Upload


class Changed(PMF):
    """PMF whose steps are changed on their way."""

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)
        users = vault.read("user_vectors", clients)
        changed = {"upload": self.upload(step.upload, users), "commit": step.commit}
        parts = ("clients", "rated", "impute", "resample_residuals", "rows")
        return SimpleNamespace(**{name: getattr(step, name) for name in parts} | changed)

    def upload(self, upload: Upload, users: FloatArray) -> Upload:
        block = upload.block
        assert block.values is not None
        values = self.values(block.values.copy(), block, users)
        return replace(upload, blocks={"table": replace(block, values=values)})

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        raise NotImplementedError


class AddsTheMean(Changed):
    """Adds the mean private vector of the batch to every row."""

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        return np.asarray(values + users.mean(axis=0))


class AddsTheMeanOfLargeClients(AddsTheMean):
    """The same, with so much to upload that an engine gives every client a batch of its own."""

    def upload_rows(self, vault: Any, n_rows: int) -> IntArray:
        return np.full(vault.n_clients, 10_000)

    def upload_vectors(self, vault: Any) -> dict[str, IntArray]:
        return {}


class GivesTheMeanAway(Changed):
    """The first of a batch gives the mean vector away, the last takes it off again."""

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        mean = np.round(users.mean(axis=0) * 64) / 64  # on the grid: the sum is what it was
        values[block.indptr[0]] += mean
        values[block.indptr[-2]] -= mean
        return values


class Remembers(Changed):
    """Adds a trace of the clients that were computed before."""

    def __init__(self, config: PMFConfig) -> None:
        super().__init__(config)
        self.seen = np.zeros(config.rank)

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        before = self.seen.copy()
        self.seen += users.sum(axis=0)
        return values + before


class TrainsTogether(PMF):
    """Clients of a batch end with the mean of their vectors."""

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)

        def commit(vault: Any) -> None:
            step.commit(vault)
            users = vault.read("user_vectors", clients)
            vault.write("user_vectors", clients, users * 0 + users.mean(axis=0))

        return SimpleNamespace(clients=clients, upload=step.upload, commit=commit)


class Unseeded(Changed):
    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        return values + np.random.default_rng().normal(size=values.shape)


class SeedsGlobally(Changed):
    """Draws from NumPy's global generator, which every run seeds for itself."""

    def initial_public(self, n_rows: int, streams: Streams) -> Any:
        np.random.seed(1)  # noqa: NPY002
        return super().initial_public(n_rows, streams)

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        return values + np.random.normal(size=values.shape)  # noqa: NPY002


class StartsAnywhere(PMF):
    def initial_public(self, n_rows: int, streams: Streams) -> Any:
        public = super().initial_public(n_rows, streams)
        return replace(public, table=np.random.default_rng().normal(size=public.table.shape))


class WarmsUp(Changed):
    """Smaller steps for the first so many calls, whichever run they belong to."""

    calls = 0
    warm = 3

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        self.calls += 1
        return values * (0.5 if self.calls <= self.warm else 1.0)


class FirstCall(WarmsUp):
    """Its very first call is another."""

    warm = 1


class Gives(Changed):
    """Gives the user vectors to a bag."""

    def upload(self, upload: Upload, users: FloatArray) -> Upload:
        bag = SetBlock(indptr=np.arange(len(users) + 1), values=users)
        return replace(upload, bags={"users": bag})


class PublishesNoise(PMF):
    """Has the noise of the last sum in its public state."""

    def server_step(self, public: Any, aggregate: Aggregate) -> Any:
        after = super().server_step(public, aggregate)
        return replace(after, extras={"noise": np.array([aggregate.noise])})


class WritesIntoSums(PMF):
    """A server that works in the arrays it is handed."""

    def server_step(self, public: Any, aggregate: Aggregate) -> Any:
        after = super().server_step(public, aggregate)
        aggregate.ring[:] = 0
        aggregate.counts[aggregate.counts == 0] = 1
        for bag in aggregate.bags.values():
            bag[:] = -1
        return after


class WritesIntoBags(Gives, WritesIntoSums):
    """And in the bags."""


class SinglePrecision(PMF):
    """Has a private table of single precision beside its own."""

    def initialise(self, vault: Any, streams: Streams) -> None:
        super().initialise(vault, streams)
        vault.create("single", np.zeros((vault.n_clients, 3), dtype=np.float32))


class GivesOtherRows(PMF):
    """Gives a cloak rows twice as large as those it uploads."""

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)
        rows = step.rows
        step.rows = lambda *asked: 2 * rows(*asked)  # type: ignore[method-assign]
        return step
