"""Layers of a model as rows of a shared table, each row with a weight of its own.

A weighted mean of parameters is formed from sums alone if every client sends ``w x`` and ``w``.
Here a layer starts at a new row, and every row carries the weight of its layer in one more column:
layers may be weighted differently, and the sums still travel in one table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secure_fedrec.algorithms.vector_table import VectorTable
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError

__all__ = ["LayerTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """Where the layers of a flat parameter vector lie in the table.

    Args:
        sizes: values per layer by name, in the order of the flat vector; each at least 1.
        row_width: parameters per row, at least 1.
    """

    sizes: Mapping[str, int]
    row_width: int

    @property
    def width(self) -> int:
        """Values per row: parameters and the weight."""
        return self.row_width + 1

    @property
    def size(self) -> int:
        """Parameters of all layers."""
        return sum(self.sizes.values())

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(table.rows for table in self._tables)

    @property
    def row_numbers(self) -> IndexArray:
        """int32[rows]: every client sends every row."""
        return np.arange(self.rows, dtype=np.int32)

    @property
    def first_rows(self) -> IntArray:
        """int64[layers], the first row of each layer."""
        return np.cumsum([0] + [table.rows for table in self._tables[:-1]])

    def require_rows(self, rows: int) -> None:
        """Check that a table was sized for these layers.

        Raises:
            ConfigError: it was not.
        """
        if rows != self.rows:
            problem = f"the layers {', '.join(self.sizes)} need {self.rows} rows"
            raise ConfigError("rows", rows, problem)

    def layers(self, vector: FloatArray) -> list[FloatArray]:
        """The layers of float64[size] (views)."""
        return np.split(vector, np.cumsum(list(self.sizes.values()))[:-1])

    def table(self, vector: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """The table of a flat vector.

        Args:
            vector: float64[size].
            weights: float64[layers]; rows are multiplied by the weight of their layer and carry it.
                None leaves them as they are, with weight 0.

        Returns:
            float64[rows, width].
        """
        pieces = zip(self._tables, self.layers(vector), strict=True)
        values = np.concatenate([table.table(layer) for table, layer in pieces])
        if weights is None:
            return np.hstack([values, np.zeros((self.rows, 1))])
        own = np.repeat(weights, [table.rows for table in self._tables])[:, None]
        return np.hstack([values * own, own])

    def vector(self, table: FloatArray) -> FloatArray:
        """float64[size] out of the parameter columns of a table."""
        ends = np.cumsum([layer.rows for layer in self._tables])[:-1]
        pieces = zip(self._tables, np.split(table[:, :-1], ends), strict=True)
        return np.concatenate([layer.vector(piece) for layer, piece in pieces])

    @property
    def _tables(self) -> Sequence[VectorTable]:
        return [VectorTable(size=size, width=self.row_width) for size in self.sizes.values()]
