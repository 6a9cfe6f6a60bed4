"""Uploads that are one vector per client: the weighted changes of all federated parameters."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attacks.base import need
from attacks.families.split.architecture import Architecture, Parameter
from attacks.view.blocks import flat_view
from attacks.view.coalition import rows_of
from attacks.view.named import named_payload_rounds, named_rows, sees_named_rows
from attacks.view.readable import readable
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import View

_AT_ONCE = 1 << 19
"""Values that are decoded at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatUploads:
    """The uploads of one round, as the adversary holds them: 0 where they cannot be read.

    Args:
        round: which round.
        clients: int64[B], ascending.
        words: ring words [B, values].
        plain: bool[B], which can be read.
        codec: the public ring.
        architecture: what lies where.
    """

    round: int
    clients: IntArray
    words: RingArray
    plain: BoolArray
    codec: FixedPoint
    architecture: Architecture

    @classmethod
    def read(cls, view: View) -> "FlatUploads":
        """Read the first round whose payloads were kept."""
        architecture = Architecture.of(view)
        need(sees_named_rows(view), "the view holds no uploads")
        rounds = need(named_payload_rounds(view), "no payload of an upload was recorded")
        flat = need(flat_view(view), "no block of the uploads is flat parameters")
        uploads, block = rows_of(named_rows(flat, rounds[0], payload=True))
        need(len(block), "no upload of the round reached the adversary")
        rows = len(block.rows) // len(block)
        whole = np.tile(np.arange(rows), len(block))
        words = np.zeros((0, 0)) if block.values is None else block.values
        words = words.reshape(len(block), -1) if np.array_equal(block.rows, whole) else words[:0]
        need(words.shape[1] >= architecture.values, "the uploads are not whole vectors")
        plain = readable(flat, block)
        if not plain.all():
            words = np.where(plain[:, None], words, words.dtype.type(0))
        return cls(
            round=rounds[0],
            clients=uploads.senders.ids,
            words=words,
            plain=plain,
            codec=flat.codec,
            architecture=architecture,
        )

    def change(self, parameter: Parameter, clients: slice = slice(None)) -> FloatArray:
        """Weighted change of one parameter, of all clients or some: float64[B, *shape]."""
        words = self.words[clients, parameter.start : parameter.stop]
        values = self.codec.decode(words)
        if parameter.by_input:
            return values.reshape(len(words), *parameter.shape[::-1]).swapaxes(1, -1)
        return values.reshape(len(words), *parameter.shape)

    def each(self, table: Parameter, read: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """What is read in the changes of a table, client by client: float64[B, rows].

        Args:
            table: whose changes.
            read: makes float64[b, rows] of the float64[b, rows, dim] of some clients.
        """
        some = max(1, _AT_ONCE // max(1, table.stop - table.start))
        starts = range(0, len(self.clients), some)
        parts = [read(self.change(table, slice(start, start + some))) for start in starts]
        return np.concatenate(parts) if parts else read(self.change(table))

    def weights(self) -> FloatArray:
        """The clients' weights: float64[B]."""
        if self.architecture.weight_position is None:
            return np.ones(len(self.clients))
        return self.codec.decode(self.words[:, self.architecture.weight_position])
