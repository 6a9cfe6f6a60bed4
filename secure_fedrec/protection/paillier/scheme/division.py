"""Division of sums by counts, exactly rounded, which cannot be done under encryption."""

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.settings import Count, Settings


def rounded_quotients(sums: IntArray, counts: IntArray) -> IntArray:
    """``sums / counts`` rounded to the nearest integer, ties to even.

    Args:
        sums: int64[N].
        counts: int64[N], from 1 to 2^31.

    Returns:
        int64[N], computed in integers throughout.
    """
    quotients = np.floor_divide(sums, counts)
    twice = 2 * (sums - quotients * counts)  # twice the remainder, in [0, 2 counts)
    up = (twice > counts) | ((twice == counts) & (quotients % 2 == 1))
    rounded: IntArray = quotients + up
    return rounded


class AverageStep(Settings, section=""):
    """``V_{t+1} = V_t - sum / count`` for each row of the item table; rows without raters stay.

    Clients multiply their gradients by the step size before they encode them, so table and sums
    share one fixed scale and the step is made of integers.

    Args:
        codec: ring of table and gradients.
        counts: ring of the row counts, without fraction bits.
        width: values per row.
    """

    codec: FixedPoint
    counts: FixedPoint
    width: Count

    def _agree(self) -> None:
        if self.counts.fraction_bits:
            raise ConfigError("counts.fraction_bits", self.counts.fraction_bits, "must be 0")

    def __call__(self, table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
        """The next table.

        Args:
            table: [rows * width] ring words of V_t.
            sums: ring words of the gradients' sum, [rows * width], and of the counts, [rows].

        Returns:
            [rows * width] ring words of V_{t+1}.

        Raises:
            ProtocolError: the shapes differ, a count is negative, or a row without raters has a
                gradient.
            EncodingError: a value of the new table exceeds the codec's clip.
        """
        if len(sums) != 2:
            raise ProtocolError(f"{len(sums)} sums, expected gradients and counts")
        gradients, ratings = (
            codec.to_integers(words)
            for codec, words in zip((self.codec, self.counts), sums, strict=True)
        )
        if gradients.shape != table.shape or gradients.shape != (len(ratings) * self.width,):
            raise ProtocolError("table, gradients and counts do not have the same rows")
        each = np.repeat(ratings, self.width)
        if np.any(each < 0) or np.any(gradients[each == 0]):
            raise ProtocolError("a count is negative, or a row without raters has a gradient")
        moved = self.codec.to_integers(table) - rounded_quotients(gradients, np.maximum(each, 1))
        if int(np.abs(moved).max()) > self.codec.largest:
            raise EncodingError(f"the table leaves ring.clip = {self.codec.clip:g}")
        return self.codec.from_integers(moved)
