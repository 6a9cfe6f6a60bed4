"""The round that ``ring_overhead`` is measured against: same rows, no ring, no denoiser.

Cloak, algorithm, engine and metering of the uploads are the real ones. What is missing is the
encoding, the noise messages, and the denoiser's sums: rows are added up as float64, virtual ones
included.
"""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.local import LocalUpload
from secure_fedrec.protection import Denoisers, Stack
from secure_fedrec.protection.base.folding import covers_ratings
from secure_fedrec.protection.base.stack import StackSession
from secure_fedrec.protection.base.table import upload_messages
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Wire

__all__ = ["float_stack"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatStack(Stack):
    """The layers of a stack with its last two replaced by a float64 sum."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "FloatSession":
        """Begin a round."""
        return FloatSession(self, round_, participants, wire)


def float_stack(stack: Stack) -> FloatStack:
    """The float counterpart of a stack."""
    return FloatStack(
        codec=stack.codec,
        cloak=stack.cloak,
        collector=stack.collector,
        n_clients=stack.n_clients,
    )


class FloatSession(StackSession):
    """One round of rows as float64.

    Clients come in the order of the stack's collector, and those it exempts from the cloak are
    exempt here: both kinds of round draw the same fakes.
    """

    __slots__ = ("_cloak", "_collector", "_counts", "_sums")

    def __init__(self, stack: Stack, round_: int, participants: IntArray, wire: Wire) -> None:
        collector = stack.collector
        if stack.cloak is None or not isinstance(collector, Denoisers):
            raise TypeError("the float round mirrors a stack of virtual ratings and denoisers")
        session = collector.open(round_=round_, participants=participants, wire=wire)
        super().__init__(stack, session, round_, wire)
        self._cloak = stack.cloak
        self._collector = collector
        self._sums = np.zeros((collector.n_items, collector.width))
        self._counts = np.zeros(collector.n_items, dtype=np.int64)

    def submit(self, local: LocalUpload) -> None:
        """Cover the upload, meter it, add it up."""
        if not covers_ratings(local):
            raise TypeError("the float round covers the rated sets of an algorithm on ratings")
        exempt = self.session.exempt(local.clients)
        cloaked = self._cloak.cover(local, round_=self.round, exempt=exempt)
        block, clients = cloaked.upload.block, local.clients
        if block.values is None:
            raise ValueError("an upload has values")
        width, codec = self._collector.width, self._collector.codec
        sent = upload_messages(self.round, clients, block, width, codec)
        self.wire.meter.count(sent, senders=clients, receivers=None)
        scatter_add(self._sums, block.rows, block.values, counts=self._counts)

    def close(self) -> Aggregate:
        """Hand the sums over."""
        return _FloatAggregate(
            ring=np.empty((0, 0), dtype=np.uint64),
            counts=self._counts,
            codec=self._collector.codec,
            floats=self._sums,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FloatAggregate(Aggregate):
    """A sum that never was in the ring."""

    floats: FloatArray

    @property
    def values(self) -> FloatArray:
        """float64[m, d], the sum."""
        return self.floats
