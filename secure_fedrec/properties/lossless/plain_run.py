"""The reference of losslessness: an algorithm's own uploads, summed plainly.

No layer of the tested stack influences it. The rows of clients are encoded by the package's own
ring and added up as integers; their vectors for bags are encoded and sorted. Only the settings of
the ring come from the tested stack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, Exchanging, PublicState
from secure_fedrec.blocks import BlockKind, BlockLayout
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.engines import Problem, blocks_of
from secure_fedrec.engines.peer_exchange import PeerExchange
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.base.folding import covers_ratings, fold, limited
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

_COLUMNS = ("clients", "rows", "values", "counts")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Encoded rows of many clients, ascending by client, then by row.

    Args:
        clients: int64[N].
        rows: int64[N], row (item) numbers.
        values: int64[N, d], in ring units around 0.
        counts: int64[N], the number of ratings behind each row.
    """

    clients: IntArray
    rows: IntArray
    values: IntArray
    counts: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, keep: BoolArray | IntArray) -> "Rows":
        """Some of the rows."""
        return Rows(**{name: getattr(self, name)[keep] for name in _COLUMNS})

    def keys(self, n_rows: int) -> IntArray:
        """int64[N], one number per client and row."""
        return self.clients * n_rows + self.rows

    @classmethod
    def of(cls, clients: IntArray, block: RowBlock, ring: FixedPoint) -> "Rows":
        """Copies of the encoded rows of a batch, in the order of the block."""
        words = ring.encode(np.empty((0, 0))) if block.values is None else block.values
        counts = np.ones(len(block.rows), np.int64) if block.counts is None else block.counts
        return cls(
            clients=np.repeat(clients, block.lengths),
            rows=block.rows.astype(np.int64),
            values=ring.to_integers(words).copy(),
            counts=counts.copy(),
        )

    @classmethod
    def joined(cls, parts: Sequence["Rows"], width: int) -> "Rows":
        """All rows of some batches in one order."""
        nothing = np.empty(0, dtype=np.int64)
        empty = cls(clients=nothing, rows=nothing, values=nothing.reshape(0, width), counts=nothing)
        parts = [empty, *(part for part in parts if len(part))]
        found = cls(**{c: np.concatenate([getattr(part, c) for part in parts]) for c in _COLUMNS})
        return found.pick(np.lexsort((found.rows, found.clients)))


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Encoded vectors for bags, with the clients that gave them.

    Args:
        ring: encodes them.
        parts: by name of the bag, for every batch: its clients, the bounds of each client's
            vectors, and the vectors, int64[N, d], in ring units around 0.
    """

    ring: FixedPoint
    parts: dict[str, list[tuple[IntArray, IntArray, IntArray]]] = field(default_factory=dict)

    def bag(self, name: str) -> FloatArray:
        """Decoded vectors, ascending by their first value, then their second, and so on."""
        vectors = np.concatenate([part for *_, part in self.parts[name]])
        order = np.lexsort(vectors.T[::-1]) if vectors.size else np.arange(len(vectors))
        return self.ring.decode(self.ring.from_integers(vectors[order]))

    def of(self, name: str, empty: FloatArray) -> tuple[IntArray, FloatArray]:
        """int64[N] clients, and their decoded vectors, in the order in which they came."""
        found = [(np.empty(0, dtype=np.int64), empty)]
        for clients, bounds, vectors in self.parts.get(name, ()):
            decoded = self.ring.decode(self.ring.from_integers(vectors))
            found.append((np.repeat(clients, np.diff(bounds)), decoded))
        owners, decoded = (np.concatenate(each) for each in zip(*found, strict=True))
        return owners, decoded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plain:
    """The results of a round of plain uploads.

    Args:
        sums: int64[m, d], in ring units around 0.
        counts: int64[m].
        bags: by name, float64[N, d], ascending.
        nonzero: summed rows and vectors in bags that are not zero in the ring.
    """

    sums: IntArray
    counts: IntArray
    bags: Mapping[str, FloatArray]
    nonzero: int


def _asked_for(step: LocalModel) -> RowBlock:
    """Rows of the rated items, as a cloak that adds no virtual items would request them."""
    rated = step.rated
    real, none = np.zeros(len(rated.rows), dtype=bool), np.empty(0)
    values = step.rows(rated.indptr, rated.rows, real, none)
    return RowBlock(indptr=rated.indptr, rows=rated.rows, values=values)


def own_ring(codec: FixedPoint) -> FixedPoint:
    """The package's ring with the settings of ``codec``, whose methods are not used."""
    return FixedPoint(
        bits=codec.bits,
        fraction_bits=codec.fraction_bits,
        clip=codec.clip,
        beyond=codec.beyond,
    )


class PlainRun:
    """An algorithm trained on plain sums.

    A round is ``begin``, then ``step`` and ``add`` for some clients at a time, then ``close``; of
    finished clients only the sums are kept. Alternatively it has two halves, so that uploads are
    fixed before the tested stack sees the round: ``compute`` takes the clients' steps, ``finish``
    the server's.

    Args:
        algorithm: a fresh one.
        problem: what it learns from; a separate instance.
        streams: streams of the run.
        ring: see ``own_ring``.
    """

    def __init__(
        self, algorithm: Algorithm, problem: Problem, streams: Streams, ring: FixedPoint
    ) -> None:
        self.algorithm = algorithm
        self._streams = streams
        self.ring = ring
        self.layout = BlockLayout(blocks_of(algorithm, problem), ring)
        self.n_rows = self.layout.rows
        self.vault: Vault = problem.vault
        self.public: PublicState = algorithm.initial_public(problem.n_rows, streams)
        algorithm.initialise(problem.vault, streams)
        self.rows = Rows.joined((), self.layout.width)
        self._begin_sums()

    def begin(self, batches: Sequence[IntArray]) -> None:
        """Let clients exchange vectors that are not part of a sum.

        Args:
            batches: all clients of the round, batch by batch.

        Raises:
            EncodingError: a value does not fit the ring.
        """
        self._begin_sums()
        algorithm, round_ = self.algorithm, self.public.round + 1
        if not isinstance(algorithm, Exchanging) or not len(batches):
            return
        everybody = np.sort(np.concatenate(batches))
        wire = Wire(meter=Meter(self.vault.n_clients))
        exchange = PeerExchange(round_, everybody, self.ring, wire)
        for clients in batches:
            given = algorithm.give(clients, self.public, self.vault, self._streams)
            exchange.send(clients, given)
        for clients in batches:
            algorithm.take(clients, exchange.received(clients), self.vault)

    def step(self, clients: IntArray, *, as_covered: bool = False) -> Rows:
        """The local work of a batch; returns its rows, client by client in the order of the batch.

        Args:
            clients: int64[B].
            as_covered: take the rows that a cloak would request, instead of those of the upload.

        Raises:
            EncodingError: a value does not fit the ring.
        """
        step = self.algorithm.client_step(clients, self.public, self.vault, self._streams)
        upload = step.upload
        if as_covered and covers_ratings(step):
            (items, *_) = self.layout.of_kind(BlockKind.ITEMS)
            upload = replace(upload, blocks={**upload.blocks, items.shape.name: _asked_for(step)})
        rows = self._encoded(clients, upload)
        step.commit(self.vault)
        return rows

    def add(self, rows: Rows) -> None:
        """Add rows to the round's sum."""
        np.add.at(self._sums, rows.rows, rows.values.view(np.uint64))  # modulo 2^64, so modulo 2^b
        np.add.at(self._counts, rows.rows, rows.counts)
        self._nonzero += int(np.count_nonzero(rows.values.any(axis=1)))

    def close(self, empty: Mapping[str, FloatArray]) -> Plain:
        """The server's work.

        Args:
            empty: by name of the bag, an array without vectors, used if no client gives to the bag.
        """
        words, counts = self.ring.from_integers(self._sums.view(np.int64)), self._counts
        given = (part for parts in self.vectors.parts.values() for *_, part in parts)
        nonzero = self._nonzero + sum(int(np.count_nonzero(each.any(axis=1))) for each in given)
        bags = dict(empty) | {name: self.vectors.bag(name) for name in self.vectors.parts}
        found = Plain(
            sums=self.ring.to_integers(words).copy(),
            counts=counts.copy(),
            bags={name: bag.copy() for name, bag in bags.items()},
            nonzero=nonzero,
        )
        aggregate = Aggregate(
            ring=words, counts=counts, codec=self.ring, bags=bags, layout=self.layout
        )
        self.public = self.algorithm.server_step(self.public, aggregate)
        return found

    def compute(self, batches: Sequence[IntArray], *, as_covered: bool = False) -> None:
        """The local work of all clients of a round, batch by batch; see ``step``."""
        self.begin(batches)
        found = [self.step(clients, as_covered=as_covered) for clients in batches]
        self.rows = Rows.joined(found, self.layout.width)

    def finish(self, reported: BoolArray, empty: Mapping[str, FloatArray]) -> Plain:
        """The server's work, on the ``rows`` that ``reported`` (bool[N]) marks; see ``close``."""
        self.add(self.rows.pick(reported))
        return self.close(empty)

    def _begin_sums(self) -> None:
        self._sums = np.zeros((self.n_rows, self.layout.width), dtype=np.uint64)
        self._counts, self._nonzero = np.zeros(self.n_rows, dtype=np.int64), 0
        self.vectors = Vectors(self.ring)

    def digest(self) -> bytes:
        """Digest of everything that a round produced: uploads, public state, private tables."""
        found = sha256()
        rows = {name: getattr(self.rows, name) for name in _COLUMNS}
        state: dict[str, IntArray | FloatArray] = {**rows, "table": self.public.table}
        bags = {f"bag {name}": self.vectors.bag(name) for name in self.vectors.parts}
        parts: tuple[Mapping[str, IntArray | FloatArray], ...]
        parts = (state, bags, self.public.extras, self.vault.snapshot())
        for part in parts:
            for name in sorted(part):
                found.update(f"\n{name} {part[name].shape}\n".encode())
                found.update(np.ascontiguousarray(part[name]).tobytes())
        return found.digest()

    def _encoded(self, clients: IntArray, upload: Upload) -> Rows:
        upload, _ = limited(upload, self.ring, self.layout)
        for name, bag in upload.bags.items():
            if bag.values is not None:
                integers = self.ring.to_integers(self.ring.encode(bag.values))
                self.vectors.parts.setdefault(name, []).append((clients, bag.indptr, integers))
        return Rows.of(clients, fold(upload, None, self.layout).block, self.ring)
