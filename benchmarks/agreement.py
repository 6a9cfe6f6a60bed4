"""Does the loop do what the engine does? Same fakes in, equal ring sums out, by ``==``."""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.federations import Federation
from benchmarks.loop import ClientLoop, Fakes
from secure_fedrec.algorithms import PMF, PublicState
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.protection import Cloaked, LocalModel, VirtualRatings
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.wire import Messages, Step

__all__ = ["RememberingPMF", "Tap", "require_agreement"]


def require_agreement(federation: Federation) -> int:
    """Run one round on the engine, repeat it with the loop on the same fakes, compare.

    Compared are the server's sum of the uploads, the denoiser's sums, and the aggregate with its
    counts.

    Returns:
        Ring words compared.

    Raises:
        AssertionError: a sum differs.
    """
    tap = Tap(federation.table.n_items, federation.algorithm.rank)
    cloak = _RememberingCloak(federation)
    engine = federation.engine(federation.stack(cloak), tap=tap)
    loop = ClientLoop(federation, engine)
    server = RememberingPMF(federation.algorithm)
    engine.algorithm = server
    engine.run_round()
    fakes, aggregate = cloak.fakes, server.aggregate
    if aggregate is None:
        raise AssertionError("the engine formed no aggregate")
    nothing = Fakes(np.empty(0, dtype=np.int64), np.empty(0))
    sums = loop.run_round(lambda client: fakes.get(client, nothing))
    for what, ours, theirs in (
        ("uploads", tap.sums[Step.UPLOAD], sums.uploads),
        ("denoiser's sums", tap.sums[Step.DENOISE], sums.noise),
        ("aggregates", aggregate.ring, sums.aggregate),
        ("counts", aggregate.counts, sums.counts),
    ):
        if not np.array_equal(ours, theirs):
            raise AssertionError(f"engine and loop differ in their {what}")
    return 3 * sums.uploads.size


class Tap:
    """Sums every row message that passes the wire."""

    def __init__(self, n_items: int, width: int) -> None:
        empty = np.zeros((n_items, width), dtype=np.uint64)
        self.sums = {step: empty.copy() for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE)}

    def apply(self, messages: Messages) -> Messages:
        """Add the rows up; deliver everything."""
        block = messages.payload
        if isinstance(block, RowBlock) and block.values is not None:
            scatter_add(self.sums[messages.step], block.rows, block.values)
        return messages


class RememberingPMF(PMF):
    """Keeps the aggregate of the last round."""

    aggregate: Aggregate | None = None

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Keep the aggregate and go on."""
        self.aggregate = aggregate
        return super().server_step(public, aggregate)


class _RememberingCloak(VirtualRatings):
    """Keeps the fakes of every client."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(
            federation.virtual, n_items=federation.table.n_items, streams=federation.streams
        )
        self.fakes: dict[int, Fakes] = {}

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Cover an upload as always, with a model that notes what it is asked for."""
        listening = _ListeningModel(local, self.fakes)
        return super().cover(listening, round_=round_, exempt=exempt)


@dataclass(frozen=True, slots=True)
class _ListeningModel:
    """A local model that notes the virtual ratings whose rows it computes."""

    model: LocalModel
    fakes: dict[int, Fakes] = field(repr=False)

    @property
    def clients(self) -> IntArray:
        """Pass on."""
        return self.model.clients

    @property
    def rated(self) -> RowBlock:
        """Pass on."""
        return self.model.rated

    @property
    def upload(self) -> Upload:
        """Pass on."""
        return self.model.upload

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """Pass on."""
        return self.model.impute(indptr, items, method=method, local_steps=local_steps)

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """Pass on."""
        return self.model.resample_residuals(indptr, items, draws=draws)

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Note and pass on."""
        drawn = items[virtual].astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum(virtual)])[indptr]
        for position, client in enumerate(self.clients.tolist()):
            part = slice(bounds[position], bounds[position + 1])
            self.fakes[client] = Fakes(drawn[part], ratings[part].copy())
        return self.model.rows(indptr, items, virtual, ratings)
