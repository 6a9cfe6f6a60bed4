"""How protection layers meet: a cloak at the client, a collector between client and server.

A round flows one way through a ``Stack``:

    upload --cloak--> cloaked upload --ring--> ring words --collector--> aggregate

- A *cloak* changes what a client gives out before it is encoded: it adds virtual rows, or drops
  reports. Which rows are virtual is known to the client alone.
- The *ring* encodes each row once; whoever receives a row receives the same integers.
- A *collector* moves the words over the wire and forms the sum. It owns the messages of the round,
  refuses a round in which one is missing, repeated or late, and never sums without a client.

No layer knows the algorithm. Where a cloak needs the model it asks for a ``LocalModel``.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from secure_fedrec.arrays import BoolArray, FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import ConfigError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.wire import Traffic, Wire

__all__ = ["Cloak", "Cloaked", "Collector", "LocalModel", "RoundSession", "Stack"]


class LocalModel(Protocol):
    """What a layer may ask of an algorithm's client step, for a batch of clients."""

    @property
    def clients(self) -> IntArray:
        """int64[B], the clients of the batch."""
        ...

    @property
    def rated(self) -> RowBlock:
        """The clients' rated items, ascending, without values."""
        ...

    @property
    def upload(self) -> Upload:
        """Rows of the clients' own ratings, as they are sent without a cloak."""
        ...

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """Virtual ratings for unrated items.

        Args:
            indptr: int64[B + 1], the items of each client of the upload.
            items: int32[N].
            method: "average" (the client's mean rating) or "predicted" (by a locally trained copy
                of the user vector).
            local_steps: training steps of that copy.

        Returns:
            float64[N].
        """
        ...

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """Virtual ratings whose residual is that of one of the client's own ratings.

        Args:
            indptr: int64[B + 1], the items of each client of the upload.
            items: int32[N].
            draws: int64[N], non-negative random integers that choose the ratings.

        Returns:
            float64[N].
        """
        ...

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Upload rows of rated and virtual items together, computed all in the same way.

        Args:
            indptr: int64[B + 1], the items of each client.
            items: int32[N], ascending within a client.
            virtual: bool[N]; the others are rated, and their ratings are the client's own.
            ratings: float64[K], of the virtual items, in order.

        Returns:
            float64[N, d].

        Raises:
            ValueError: an item is neither virtual nor rated, or the numbers do not match.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cloaked:
    """An upload after the cloak, still at the clients.

    Args:
        upload: rows in ascending item order, virtual ones in between.
        virtual: bool[N], which rows are virtual; never sent.
    """

    upload: Upload
    virtual: BoolArray


class Cloak(Protocol):
    """Covers the rated sets of a batch of clients."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Make covered uploads; clients marked in ``exempt`` (bool[B]) send their rated items."""
        ...

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """Expected rows sent, and virtual rows among them, for clients with ``rated`` ratings."""
        ...

    def capped(self, rated: IntArray) -> IntArray:
        """Positions of the clients that have fewer unrated items than the cloak wants."""
        ...

    def without_virtual(self) -> "Cloak | None":
        """The same cloak with its virtual rows left out; None where nothing else remains."""
        ...

    def describe(self) -> tuple[str, dict[str, Any]]:
        """Layer name and public settings, as JSON values."""
        ...


class RoundSession(Protocol):
    """One round of a collector, all parties of a simulation together."""

    @property
    def order(self) -> IntArray:
        """int64[P], the clients in the order in which they must be submitted."""
        ...

    def exempt(self, clients: IntArray) -> BoolArray:
        """Which of these clients must not be cloaked."""
        ...

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the encoded rows of the next clients in ``order``."""
        ...

    def close(self) -> Aggregate:
        """Complete the round.

        Raises:
            ProtocolError: a message is missing, repeated, or of another round.
        """
        ...


class Collector(Protocol):
    """Forms the sum of a round from encoded rows."""

    @property
    def codec(self) -> FixedPoint:
        """The ring it sums in."""
        ...

    @property
    def n_clients(self) -> int:
        """Clients of the federation."""
        ...

    @property
    def model_hidden_from(self) -> tuple[str, ...]:
        """Roles that pass the public table on without being able to read it."""
        ...

    def participants(self, cohort: IntArray) -> IntArray:
        """Clients of the cohort that can take part, ascending; the others sit the round out."""
        ...

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        """Begin a round."""
        ...

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Messages of a round; client c sends ``rows[c]`` rows, ``virtual[c]`` of them virtual."""
        ...

    def describe(self) -> tuple[str, dict[str, Any]] | None:
        """Layer name and public settings, as JSON values; None if it is no protection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """The layers of a configuration, in the order data passes them.

    Args:
        codec: the ring.
        cloak: covers rated sets; None leaves uploads as they are.
        collector: forms the sum.
        n_clients: clients of the federation.

    Raises:
        SumBudgetError: the ring is too small for the cohort. A client sends at most one row per
            item, rated or virtual, so n clients bound every sum at any rho.
    """

    codec: FixedPoint
    cloak: Cloak | None
    collector: Collector
    n_clients: int

    def __post_init__(self) -> None:
        if self.codec != self.collector.codec:
            raise ConfigError("ring", self.codec, "differs from the ring of the collector")
        if self.n_clients != self.collector.n_clients:
            raise ConfigError(
                "n_clients", self.n_clients, f"the collector has {self.collector.n_clients}"
            )
        self.codec.require_budget(self.n_clients)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "StackSession":
        """Begin a round."""
        session = self.collector.open(round_=round_, participants=participants, wire=wire)
        return StackSession(self, session, round_)

    def traffic(self, rated: IntArray) -> tuple[Traffic, ...]:
        """Expected messages of a round with every client present."""
        virtual = np.zeros_like(rated)
        rows = rated
        if self.cloak is not None:
            rows, virtual = self.cloak.expected_rows(rated)
        return self.collector.traffic(rows, virtual)

    def capped(self, rated: IntArray) -> IntArray:
        """Clients whose virtual rows are capped by the number of items they have not rated."""
        return np.empty(0, dtype=np.int64) if self.cloak is None else self.cloak.capped(rated)

    def describe(self) -> dict[str, Any]:
        """Public knowledge about the layers: their names in order, and the settings of each."""
        found = [None if self.cloak is None else self.cloak.describe(), self.collector.describe()]
        layers = [layer for layer in found if layer is not None]
        return {"layers": [name for name, _ in layers], **dict(layers)}


class StackSession:
    """One round through all layers."""

    __slots__ = ("_round", "_session", "_stack")

    def __init__(self, stack: Stack, session: RoundSession, round_: int) -> None:
        self._stack = stack
        self._session = session
        self._round = round_

    @property
    def order(self) -> IntArray:
        """int64[P], the clients in the order in which they must be submitted."""
        return self._session.order

    def submit(self, local: LocalModel) -> None:
        """Protect and send the upload of the next clients in ``order``.

        Raises:
            EncodingError: a value is not finite or exceeds the ring's clip.
            ProtocolError: the collector refuses a delivered message.
        """
        if self._stack.cloak is None:
            upload = local.upload
            cloaked = Cloaked(upload=upload, virtual=np.zeros(len(upload.block.rows), dtype=bool))
        else:
            exempt = self._session.exempt(local.clients)
            cloaked = self._stack.cloak.cover(local, round_=self._round, exempt=exempt)
        _require_one_row_per_item(cloaked.upload.block)
        block = encode_block(cloaked.upload.block, self._stack.codec)
        self._session.submit(cloaked.upload.clients, block, cloaked.virtual)

    def close(self) -> Aggregate:
        """Complete the round and hand the aggregate to the server."""
        return self._session.close()


def _require_one_row_per_item(block: RowBlock) -> None:
    """The sum budget counts one row per client and item: hold every client to it."""
    ascending = block.rows[1:] > block.rows[:-1]
    starts = block.indptr[1:-1]
    ascending[starts[(starts > 0) & (starts < len(block.rows))] - 1] = True
    if not ascending.all():
        raise WireError("the rows of a client must be in ascending order, one per item")


def encode_block(block: RowBlock, codec: FixedPoint) -> RowBlock:
    """Encode the values of a block, once for every later receiver."""
    values: RingArray = codec.encode(np.empty((0, 0)) if block.values is None else block.values)
    return RowBlock(indptr=block.indptr, rows=block.rows, values=values, counts=block.counts)
