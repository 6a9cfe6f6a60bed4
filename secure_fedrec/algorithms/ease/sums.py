"""The summed values: the upper triangle of x x^T, or its product with random signs.

The triangle holds the pairs (i, j), i <= j, row by row, the diagonal included. Where noise is to be
added, its off-diagonal values carry a factor sqrt(2): then the norm of the triangle is the
Frobenius norm of the whole matrix, and the noise of a pair is divided by sqrt(2) when the factor is
removed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.streams import Streams

_SIGNS: Final = "ease-signs"
_DOUBLED: Final = math.sqrt(2)


@dataclass(frozen=True, slots=True)
class Triangle:
    """Upper triangles of the m x m matrices x x^T.

    Args:
        n_items: m.
        largest_norm: of a client's matrix; None sends 0 and 1.
    """

    n_items: int
    largest_norm: float | None

    @property
    def values(self) -> int:
        """Values of an upload, m (m + 1) / 2."""
        return self.n_items * (self.n_items + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sums."""
        return (self.values,)

    @property
    def clip(self) -> float:
        """Largest magnitude of a value."""
        if self.largest_norm is None:
            return 1.0
        return float(max(1.0, _DOUBLED * min(1.0, self.largest_norm / 2)))  # two items, or one

    @property
    def whole_numbers(self) -> bool:
        """Whether all values are."""
        return self.largest_norm is None

    def of(self, indptr: IntArray, items: IndexArray) -> FloatArray:
        """What clients send: float64[B, values].

        Args:
            indptr: int64[B + 1].
            items: int32[N], those of each client, ascending.
        """
        found = np.zeros((len(indptr) - 1, self.values))
        self._add(indptr, items, found)
        return found

    def total(self, indptr: IntArray, items: IndexArray) -> FloatArray:
        """The sum of the clients' values, one after the other: float64[values]."""
        found = np.zeros((1, self.values))
        self._add(indptr, items, found)
        return found.reshape(-1)

    def _add(self, indptr: IntArray, items: IndexArray, found: FloatArray) -> None:
        sizes = np.diff(indptr).astype(np.float64)
        scales, between = np.ones(len(sizes)), 1.0
        if self.largest_norm is not None:
            between = _DOUBLED
            scales = np.minimum(1.0, self.largest_norm / np.maximum(sizes, 1.0))
        _add_triangles(indptr, items, self.n_items, scales, between, found)

    def square(self, sums: FloatArray) -> FloatArray:
        """The whole matrix of a triangle: float64[m, m]."""
        between = 1.0 if self.largest_norm is None else 1.0 / _DOUBLED
        matrix = np.empty((self.n_items, self.n_items))
        _fill_square(sums, between, matrix)
        return matrix


@dataclass(frozen=True, slots=True)
class Sketch:
    """Products (x x^T) S with m x k public random signs S.

    Args:
        n_items: m.
        columns: k.
        signs: S, float64[m, k] of -1 and 1.
    """

    n_items: int
    columns: int
    signs: Callable[[], FloatArray]

    @property
    def values(self) -> int:
        """Values of an upload, m k."""
        return self.n_items * self.columns

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sums."""
        return (self.n_items, self.columns)

    @property
    def clip(self) -> float:
        """Largest magnitude of a value: a client has at most every item."""
        return float(self.n_items)

    @property
    def whole_numbers(self) -> bool:
        """All values are."""
        return True

    def of(self, indptr: IntArray, items: IndexArray) -> FloatArray:
        """What clients send, rows of their items alone: float64[B, m * k]."""
        signs, sizes = self.signs(), np.diff(indptr)
        found = np.zeros((len(sizes), self.n_items, self.columns))
        for place, (begin, end) in enumerate(pairwise(indptr)):
            own = items[begin:end]
            found[place, own] = signs[own].sum(axis=0)
        return found.reshape(len(sizes), self.values)


def random_signs(n_items: int, columns: int, streams: Streams) -> FloatArray:
    """S, a function of the run's public seed: float64[m, k] of -1 and 1."""
    words = streams.stream(_SIGNS).words_at(
        0, np.zeros(n_items, dtype=np.int64), np.arange(n_items), width=-(-columns // 64)
    )
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, count=columns)
    return np.asarray(2.0 * bits - 1.0)


@compiled_loop
def _add_triangles(
    indptr: IntArray,
    items: IndexArray,
    n_items: int,
    scales: FloatArray,
    between: float,
    found: FloatArray,
) -> None:
    for client in range(len(indptr) - 1):
        scale, begin, end = scales[client], indptr[client], indptr[client + 1]
        own = found[min(client, len(found) - 1)]
        for one in range(begin, end):
            row = np.int64(items[one])
            start = row * n_items - row * (row - 1) // 2 - row
            own[start + row] += scale
            for other in range(one + 1, end):
                own[start + items[other]] += scale * between


@compiled_loop
def _fill_square(sums: FloatArray, between: float, matrix: FloatArray) -> None:
    size, place = len(matrix), 0
    for row in range(size):
        matrix[row, row] = sums[place]
        place += 1
        for column in range(row + 1, size):
            matrix[row, column] = sums[place] * between
            matrix[column, row] = matrix[row, column]
            place += 1
