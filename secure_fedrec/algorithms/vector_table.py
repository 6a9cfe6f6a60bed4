"""A flat vector as a table of rows of one width, the form in which everything shared is summed."""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError

__all__ = ["VectorTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTable:
    """Position k of the vector lies in row k // width, column k % width; the rest is zero.

    Args:
        size: values of the vector, at least 1.
        width: values per row, at least 1.
    """

    size: int
    width: int

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return -(-self.size // self.width)

    def table(self, vector: FloatArray) -> FloatArray:
        """float64[rows, width] that holds the values of float64[size]."""
        padded = np.zeros(self.rows * self.width)
        padded[: self.size] = vector
        return padded.reshape(self.rows, self.width)

    def vector(self, table: FloatArray) -> FloatArray:
        """float64[size] out of float64[rows, width] (a view where it can be)."""
        return table.reshape(-1)[: self.size]

    def require_rows(self, rows: int) -> None:
        """Check that a table was sized for this vector.

        Raises:
            ConfigError: it was not.
        """
        if rows != self.rows:
            raise ConfigError(
                "rows", rows, f"{self.size} values in rows of {self.width} need {self.rows} rows"
            )
