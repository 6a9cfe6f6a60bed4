"""What the words of a masked vector mean; everything is checked before a word is masked.

- ``SumLayout``: integers as they are.
- ``MeanLayout``: a weighted mean. A client sends [w, w x] with an integer weight w inside the
  masked vector, the server divides the exact sums once: weights are not sent in clear, rounded to
  ratios, or changed to fit a maximum.
- ``TableLayout``: sparse rows of a shared table, as one public layout of all its rows with a count
  per row. It does not show which rows a client has, and item denominators are exact sums too.

A layout knows for how many clients it is made, and it refuses a ring that any sum of so many
could leave. Its hash is part of the round's configuration, so parties with different settings never
meet in one sum.
"""

import struct
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IntArray, RingArray, unmasked
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking.config.policy import EncodedVector
from secure_fedrec.protection.session.statement import labelled_hash
from secure_fedrec.settings import Settings, Within
from secure_fedrec.uploads import Aggregate, RowBlock

_EXACT = 2**53  # every integer up to it is a float64


_Size: TypeAlias = Annotated[int, Within(1, 2**63 - 1)]


class SumLayout(Settings, section="layout"):
    """Integers, summed as they are.

    Args:
        bits: ring width b, 8 to 64.
        length: integers per vector.
        clients: most clients that meet in one sum.
        largest: largest magnitude of one integer.

    Raises:
        SumBudgetError: clients times largest could leave the ring.
    """

    kind: ClassVar[str] = "sum"

    bits: int
    length: _Size
    clients: _Size
    largest: _Size

    def _agree(self) -> None:
        _require_budget(self.bits, self.clients, self.largest, "largest")

    @property
    def words(self) -> int:
        """Ring words per vector."""
        return self.length

    @property
    def hash(self) -> bytes:
        """Identity of the layout."""
        numbers = self.bits, self.length, self.clients, self.largest
        return labelled_hash("layout-sum", struct.pack("<4Q", *numbers))

    def encode(self, values: npt.NDArray[Any]) -> EncodedVector:
        """Encode signed integers.

        Args:
            values: integer array [length].

        Raises:
            EncodingError: another type or shape, or a value beyond ``largest``.
        """
        integers = _integers(values, (self.length,), self.largest)
        return _vector(self, self.bits, _ring(self.bits).from_integers(integers))

    def decode(self, words: RingArray) -> IntArray:
        """The exact sum: int64[length]."""
        _require_words(words, self.words)
        return _ring(self.bits).to_integers(words)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedMean:
    """Exact sums of a weighted mean.

    Args:
        weight: sum of the weights.
        words: ring words [d], sums of weight times value.
        codec: encoding of the words.
    """

    weight: int
    words: RingArray
    codec: FixedPoint

    @property
    def sums(self) -> IntArray:
        """int64[d], sums of weight times value in units of ``codec.resolution``."""
        return self.codec.to_integers(self.words)

    @property
    def mean(self) -> FloatArray:
        """float64[d], the exact quotient rounded once.

        Raises:
            ProtocolError: every weight is 0.
        """
        if self.weight <= 0:
            raise ProtocolError("the survivors' weights add up to 0; there is no mean")
        if self.weight <= _EXACT and 2 ** (self.codec.bits - 1) <= _EXACT:
            # The scale is a power of two, so this rounds once, and it reads the words once.
            integers = self.codec.signed(self.words)
            return np.asarray(integers / np.float64(self.weight * self.codec.scale))
        return self._wide_mean()

    def _wide_mean(self) -> FloatArray:
        """A quotient of integers beyond 2^53 would be rounded twice by float64 division.

        Python rounds the quotient of two integers once.
        """
        sums = self.sums
        mean, wide = np.empty(len(sums)), np.arange(len(sums))
        if self.weight <= _EXACT:
            mean = sums / np.float64(self.weight)
            wide = np.flatnonzero((sums > _EXACT) | (sums < -_EXACT))
        for place in wide.tolist():
            mean[place] = int(sums[place]) / self.weight
        mean *= self.codec.resolution
        return mean


class MeanLayout(Settings, section="layout"):
    """A weighted mean: [w, w x] per client.

    Args:
        codec: fixed-point ring of the values.
        length: values per vector, d.
        clients: most clients that meet in one sum.
        max_weight: largest weight of one client.

    Raises:
        SumBudgetError: clients times weight times clip could leave the ring.
    """

    kind: ClassVar[str] = "mean"

    codec: FixedPoint
    length: _Size
    clients: _Size
    max_weight: _Size = 1

    def _agree(self) -> None:
        largest = self.max_weight * max(self.codec.largest, 1)
        _require_budget(self.codec.bits, self.clients, largest, "max_weight times the clip")

    @property
    def words(self) -> int:
        """Ring words per vector."""
        return self.length + 1

    @property
    def hash(self) -> bytes:
        """Identity of the layout."""
        numbers = struct.pack("<3Q", self.length, self.clients, self.max_weight)
        return labelled_hash("layout-mean", _codec_bytes(self.codec), numbers)

    def encode(self, values: npt.NDArray[Any], *, weight: int = 1) -> EncodedVector:
        """Encode the values of one client.

        Args:
            values: real array [length]; float16, float32, float64 or integers.
            weight: 0 to ``max_weight``.

        Raises:
            EncodingError: a value is NaN, infinite or beyond the clip, the weight is out of range,
                or type or shape do not fit.
        """
        weight = _count("weight", weight, self.max_weight)
        reals = _reals(values, (self.length,))
        words: RingArray = np.empty(self.words, dtype=self.codec.dtype)
        words[0] = weight
        # A ring map: the product of the words is the word of the product, which fits the ring.
        np.multiply(self.codec.encode(reals), self.codec.dtype(weight), out=words[1:])
        return _vector(self, self.codec.bits, self.codec.reduce(words))

    def decode(self, words: RingArray) -> WeightedMean:
        """The exact sums."""
        _require_words(words, self.words)
        weight = int(self.codec.to_integers(words[:1])[0])
        return WeightedMean(weight=weight, words=words[1:], codec=self.codec)


class TableLayout(Settings, section="layout", eq=False):
    """Rows of a shared table: a count per row, then the rows.

    Args:
        codec: fixed-point ring of the values.
        rows: int64[m], the row numbers that are summed, ascending; public.
        width: values per row.
        clients: most clients that meet in one sum.
        max_count: largest count of one client's row.

    Raises:
        SumBudgetError: a sum of counts or values could leave the ring.
    """

    kind: ClassVar[str] = "table"

    codec: FixedPoint
    rows: IntArray
    width: _Size
    clients: _Size
    max_count: _Size = 1

    def _agree(self) -> None:
        rows = self.rows
        if rows.ndim != 1 or not len(rows) or np.any(np.diff(rows) <= 0) or rows[0] < 0:
            raise ConfigError("layout.rows", rows.shape, "must be ascending row numbers")
        largest = max(self.codec.largest, self.max_count)
        _require_budget(self.codec.bits, self.clients, largest, "clip or max_count")

    @property
    def words(self) -> int:
        """Ring words per vector."""
        return len(self.rows) * (1 + self.width)

    @property
    def hash(self) -> bytes:
        """Identity of the layout."""
        numbers = struct.pack("<3Q", self.width, self.clients, self.max_count)
        rows = self.rows.astype("<i8").tobytes()
        return labelled_hash("layout-table", _codec_bytes(self.codec), numbers, rows)

    def encode(self, block: RowBlock) -> EncodedVector:
        """Encode the float64 rows of one client; rows that it does not have count as zeros.

        Raises:
            EncodingError: a value is NaN, infinite or beyond the clip, a count is out of range, a
                row is not of this layout, or there is more than one client.
        """
        if len(block) != 1 or block.values is None or block.values.shape[1:] != (self.width,):
            raise EncodingError(f"a table takes the rows of one client, {self.width} values each")
        places = np.searchsorted(self.rows, block.rows)
        known = self.rows[np.minimum(places, len(self.rows) - 1)] == block.rows
        if not known.all() or len(np.unique(block.rows)) != len(block.rows):
            raise EncodingError("rows must be of the layout, each at most once")
        counts = block.counts if block.counts is not None else np.ones(len(places), np.int64)
        if np.any((counts < 0) | (counts > self.max_count)):
            raise EncodingError(f"counts must be between 0 and max_count = {self.max_count}")
        values = _reals(block.values, block.values.shape)
        words = np.zeros(self.words, dtype=self.codec.dtype)
        words[places] = self.codec.from_integers(counts)
        table = words[len(self.rows) :].reshape(len(self.rows), self.width)
        table[places] = self.codec.encode(values) if len(places) else 0
        return _vector(self, self.codec.bits, words)

    def decode(self, words: RingArray) -> Aggregate:
        """Exact sums and counts of the layout's rows, in its order."""
        _require_words(words, self.words)
        ring = words[len(self.rows) :].reshape(len(self.rows), self.width)
        counts = self.codec.to_integers(words[: len(self.rows)])
        return Aggregate(ring=ring, counts=counts, codec=self.codec)


def _vector(
    layout: SumLayout | MeanLayout | TableLayout, bits: int, words: RingArray
) -> EncodedVector:
    named = layout.hash
    return EncodedVector(words=words, bits=bits, layout_hash=named, clients=layout.clients)


def _ring(bits: int) -> FixedPoint:
    return FixedPoint(bits=bits, fraction_bits=0, clip=1)


def _codec_bytes(codec: FixedPoint) -> bytes:
    return struct.pack("<BBd", codec.bits, codec.fraction_bits, codec.clip)


def _require_budget(bits: int, clients: int, largest: int, factor: str) -> None:
    if not 8 <= bits <= 64:
        raise ConfigError("ring.bits", bits, "must be between 8 and 64")
    if clients * largest >= 2 ** (bits - 1):
        needed = (clients * largest).bit_length() + 1
        advice = f"use {needed} bits, or lower" if needed <= 64 else "lower"
        raise SumBudgetError(
            "ring.bits",
            bits,
            f"{clients} clients with up to {largest} ring units each can leave the ring; {advice} "
            f"the number of clients or the {factor}",
        )


def _require_words(words: RingArray, length: int) -> None:
    if words.shape != (length,):
        raise ProtocolError(f"a sum of {words.shape} words; the layout has {length}")


def _count(name: str, value: object, largest: int) -> int:
    # bool is an int, but a flag passed as a weight is a mistake.
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise EncodingError(f"a {name} must be an integer, not {value!r}")
    if not 0 <= value <= largest:
        raise EncodingError(f"a {name} of {value} is not between 0 and {largest}")
    return int(value)


def _reals(values: npt.NDArray[Any], shape: tuple[int, ...]) -> FloatArray:
    array = unmasked(values, "a vector of values")
    exact = array.dtype.kind in "iu" or array.dtype in (np.float16, np.float32, np.float64)
    if not exact or array.shape != shape:
        raise EncodingError(
            f"values must be real numbers of at most 64 bits in shape {shape}, got {array.dtype} "
            f"{array.shape}"
        )
    return np.ascontiguousarray(array, dtype=np.float64)


def _integers(values: npt.NDArray[Any], shape: tuple[int, ...], largest: int) -> IntArray:
    array = unmasked(values, "a vector of values")
    if array.dtype.kind not in "iu" or array.shape != shape:
        raise EncodingError(
            f"values must be integers in shape {shape}, got {array.dtype} {array.shape}"
        )
    # Compared as Python integers: abs of the smallest int64 would wrap.
    if array.size and max(int(array.max()), -int(array.min())) > largest:
        raise EncodingError(f"a value exceeds largest = {largest}")
    return array.astype(np.int64)
