"""The public state as words, for collectors whose clients keep it secret from the server."""

from dataclasses import dataclass, replace

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.arrays import FloatArray, WordArray
from secure_fedrec.uploads import Aggregate


@dataclass(frozen=True, slots=True, eq=False)
class PublicStateWords:
    """One public state, bit for bit, and the algorithm's step from it (``base.PublicStep``).

    Args:
        algorithm: the algorithm of the state.
        public: the state before a round.
        layout: which block lies where in a sum.
    """

    algorithm: Algorithm
    public: PublicState
    layout: BlockLayout | None = None

    @property
    def words(self) -> WordArray:
        """uint64[L]: the bits of the table, then of the extras in the order of their names."""
        return _words(self.public)

    def read(self, words: WordArray) -> PublicState:
        """The state with other bits, of the same round and shapes."""
        before = self.public
        shapes = {
            "": before.table.shape,
            **{n: before.extras[n].shape for n in sorted(before.extras)},
        }
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
        arrays: dict[str, FloatArray] = {}
        for (name, shape), part in zip(shapes.items(), np.split(words, ends[:-1]), strict=True):
            arrays[name] = np.ascontiguousarray(part).view(np.float64).reshape(shape)
        table = arrays.pop("")
        return PublicState(round=before.round, table=table, extras=arrays)

    def after(self, words: WordArray, aggregate: Aggregate) -> WordArray:
        """The bits of the state after the server's step from another state of the same shapes."""
        named = replace(aggregate, layout=self.layout)
        return _words(self.algorithm.server_step(self.read(words), named))


def _words(public: PublicState) -> WordArray:
    parts = [public.table, *(public.extras[name] for name in sorted(public.extras))]
    flat = [np.ascontiguousarray(part, dtype=np.float64).reshape(-1) for part in parts]
    return np.concatenate(flat).view(np.uint64)
