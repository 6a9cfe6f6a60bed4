"""The exact core: reals are converted once to integers of the ring Z_2^b, and once back to reals.

A client encodes its values right before hiding them; the aggregate is decoded after summation.
Everything between is integer arithmetic modulo 2^b, so masks, ciphertexts, additive shares,
denoisers and any order of summation give bit-identical aggregates: so losslessness is exact and
does not need a tolerance.

Ring elements are held in ``uint32`` (b <= 32) or ``uint64`` (b <= 64); only the low b bits carry
information. A negative real -x is represented by 2^b - encode(x) (two's complement).

Only the low b bits of each word are sent (``pack``). Values follow one another without gaps, least
significant bit first; the bits left over in the last byte are zero, so a vector has exactly one
encoding.
"""

import math
from typing import Annotated, Any, NoReturn

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IntArray, RingArray, WordArray, unmasked
from secure_fedrec.core.compiled import round_to_integers
from secure_fedrec.errors import EncodingError, ProtocolError, SumBudgetError
from secure_fedrec.settings import Bits, OneOf, Positive, Settings, Within

# A float64 holds every integer up to 2^53. Adding 1.5 * 2^52 to a number below 2^51 and taking it
# off again leaves the nearest integer, ties to even: the IEEE rounding of the addition itself.
_EXACT_LIMIT_BITS = 51
_DECODED_AT_ONCE = 2**20
"""Number of words that are decoded at once."""


class FixedPoint(Settings, section="ring"):
    """Codec between float64 and the ring of integers modulo 2^bits.

    A real x with ``abs(x) <= clip`` becomes ``round_half_even(x * 2^fraction_bits) mod 2^bits``; a
    value beyond ``clip`` is refused, never clipped or wrapped in silence. If ``beyond`` is "clip",
    ``limited`` clips such values before encoding, and counts them.

    Args:
        bits: ring width b: numbers are summed modulo 2^b.
        fraction_bits: number of binary digits kept after the point, 0 to ``bits - 1``.
        clip: largest magnitude a single value may have (same unit as the values).
        beyond: treatment of a finite value beyond ``clip`` in an upload: "refuse" ends the round
            (on a host of its own the client's part), "clip" puts ``clip`` in its place, with its
            sign, and counts it. Claims that a sum is lossless exclude such values.

    Raises:
        ConfigError: a field is out of range, or ``clip * 2^fraction_bits`` exceeds 2^51, beyond
            which a float64 has no digits left to round, or is below half a ring unit.
        SumBudgetError: not even one value of magnitude ``clip`` fits the ring.
    """

    bits: Annotated[Bits, Within(8, 64)] = 64
    fraction_bits: Bits = 32
    clip: Positive = 4096.0
    beyond: Annotated[str, OneOf(("refuse", "clip"))] = "refuse"

    def _agree(self) -> None:
        self.require_between("fraction_bits", 0, self.bits - 1)
        if self.clip * self.scale > 2.0**_EXACT_LIMIT_BITS:
            most = 2.0 ** (_EXACT_LIMIT_BITS - self.fraction_bits)
            exact = (
                f"with fraction_bits = {self.fraction_bits} a float64 is exact only up to {most:g}"
            )
            raise self.refusal("clip", exact)
        if self.largest < 1:
            tiny = f"every value encodes to 0 at fraction_bits = {self.fraction_bits}; raise either"
            raise self.refusal("clip", tiny)
        self.require_budget(1)

    @property
    def scale(self) -> float:
        """Ring units per 1.0 (a power of two, so scaling is exact)."""
        return float(2.0**self.fraction_bits)

    @property
    def resolution(self) -> float:
        """Distance between neighbouring representable reals."""
        return 1.0 / self.scale

    @property
    def dtype(self) -> type[np.uint32] | type[np.uint64]:
        """Word type that holds a ring element."""
        return np.uint32 if self.bits <= 32 else np.uint64

    @property
    def bytes_per_value(self) -> int:
        """Bytes one ring element takes on the wire (only the low b bits travel)."""
        return (self.bits + 7) // 8

    @property
    def largest(self) -> int:
        """Largest magnitude of an encoded value, in ring units."""
        return int(np.rint(self.clip * self.scale))

    @property
    def bound(self) -> float:
        """Largest magnitude that is encoded: ``clip``, or the multiple that stands for it.

        This may lie above ``clip`` by less than half a ring unit; what was decoded encodes again.
        """
        return max(self.clip, self.largest / self.scale)

    @property
    def max_terms(self) -> int:
        """How many values of largest magnitude can be summed without overflow of the ring."""
        return int((2 ** (self.bits - 1) - 1) // self.largest)

    def require_budget(self, terms: int) -> None:
        """Check that a sum of ``terms`` encoded values cannot wrap.

        Args:
            terms: the most values that can meet in one sum (for item rows: the clients of the
                cohort, because a client sends at most one row per item, rated or virtual).

        Raises:
            SumBudgetError: it could; the message names the settings that would fit.
        """
        if terms <= self.max_terms:
            return
        room = (2 ** (self.bits - 1) - 1) // terms
        fits = [
            digits
            for digits in range(self.fraction_bits)
            if 1 <= int(np.rint(self.clip * 2.0**digits)) <= room
        ]
        advice = f"set ring.fraction_bits to at most {fits[-1]}, " if fits else ""
        raise SumBudgetError(
            "ring.bits",
            self.bits,
            f"{terms} clients times clip {self.clip:g} at {self.fraction_bits} fraction bits can "
            f"leave the ring; {advice}lower ring.clip, or raise ring.bits",
        )

    def limited(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Values to be encoded, and how many of them were clipped for that.

        Args:
            values: float64 array; it stays as it is.

        Returns:
            The array itself where nothing is clipped. NaN and infinities stay, and are refused
            later.
        """
        if self.beyond != "clip":
            return values, 0
        over = (np.abs(values) > self.bound) & np.isfinite(values)
        count = int(np.count_nonzero(over))
        return (np.where(over, np.copysign(self.clip, values), values) if count else values), count

    def encode(self, values: FloatArray) -> RingArray:
        """Encode reals, rounding to nearest with ties to even.

        Args:
            values: float64 array of at least one dimension.

        Returns:
            A new array of the same shape and of ``self.dtype``.

        Raises:
            EncodingError: a value is NaN, infinite, or larger than ``bound`` in magnitude, or the
                array is masked.
        """
        if isinstance(values, np.ma.MaskedArray):
            unmasked(values, "an array")  # refuses it
        values = np.require(values, dtype=np.float64, requirements=["C", "W"])
        integers = np.empty(values.shape, dtype=np.int64)
        if not round_to_integers(
            values.reshape(-1), self.scale, self.bound * self.scale, integers.reshape(-1)
        ):
            self.refuse(values)
        return self.from_integers(integers)

    def from_integers(self, integers: IntArray) -> RingArray:
        """Reduce signed integers modulo 2^bits; shares memory with the input where it can."""
        words: RingArray = np.require(integers, dtype=np.int64, requirements="C").view(np.uint64)
        return self.reduce(words.astype(self.dtype, copy=False))

    def reduce(self, words: RingArray) -> RingArray:
        """Reduce words to the ring after they were added modulo their word size."""
        if self.bits == 8 * words.itemsize:
            return words
        cut: RingArray = words & words.dtype.type(2**self.bits - 1)
        return cut

    def to_integers(self, ring: RingArray) -> IntArray:
        """Centred ring elements: the representative of each in [-2^(b-1), 2^(b-1)), as int64."""
        return self.signed(ring).astype(np.int64, copy=False)

    def signed(self, ring: RingArray) -> npt.NDArray[np.int32] | IntArray:
        """As ``to_integers``, in the word's own size: int32 for uint32.

        Nothing is copied where b is the size of the word.
        """
        # Moving the sign bit to the top and back extends it; the shift right is arithmetic.
        words: RingArray = np.asarray(ring).astype(self.dtype, copy=False)
        signed: Any = np.int32 if self.bits <= 32 else np.int64
        unused = 8 * words.itemsize - self.bits
        if unused:
            words = (words << words.dtype.type(unused)).view(signed) >> signed(unused)
        centred: npt.NDArray[np.int32] | IntArray = words.view(signed)
        return centred

    def decode(self, ring: RingArray, *, spent: bool = False) -> FloatArray:
        """Decode an aggregate to float64.

        The result is the exact real ``integer / 2^fraction_bits``, rounded once to float64 where
        the sum has more than 53 significant bits.

        Args:
            ring: ring words of any shape.
            spent: whether the words are not needed any more, so that the reals may use their
                memory.
        """
        if not spent or ring.dtype.itemsize != 8 or not ring.ndim:
            return np.asarray(self.to_integers(ring) * self.resolution, dtype=np.float64)
        reals = ring.view(np.float64)
        rows = max(1, _DECODED_AT_ONCE * len(ring) // max(1, ring.size))
        for start in range(0, len(ring), rows):
            part = slice(start, start + rows)
            reals[part] = self.to_integers(ring[part]) * self.resolution
        return reals

    def refuse(self, values: FloatArray) -> NoReturn:
        """Raise the error that says why values cannot be encoded.

        Raises:
            EncodingError: always.
        """
        high, low = float(values.max()), float(values.min())  # NaN propagates into both
        worst = high if not (abs(low) > abs(high)) else low
        if not np.isfinite(worst):
            raise EncodingError(
                f"a value is {worst}: training diverged or the input holds NaN or infinity; "
                "lower the learning rate (algorithm.learning_rate) or check the data"
            )
        raise EncodingError(
            f"a value of {worst:g} exceeds ring.clip = {self.clip:g} (FixedPoint.clip in a loop of "
            "one's own); raise it if the value is legitimate, or lower algorithm.learning_rate, "
            "or the loop's own, if training diverges"
        )


def word_type(bits: int) -> type[np.uint32] | type[np.uint64]:
    """Array type that holds elements of Z_2^bits."""
    return np.uint32 if bits <= 32 else np.uint64


def packed_size(length: int, bits: int) -> int:
    """Bytes of ``length`` packed values."""
    return (length * bits + 7) // 8


def pack(words: RingArray, bits: int) -> memoryview:
    """Encode the low bits of ring words; higher bits are ignored.

    Args:
        words: contiguous uint32[d] (bits <= 32) or uint64[d].
        bits: ring width b, 1 to 64.

    Returns:
        ``packed_size(d, bits)`` bytes; they share memory with ``words`` where nothing is cut.
    """
    if bits == 8 * words.itemsize:
        return words.astype(f"<u{words.itemsize}", copy=False).view(np.uint8).data
    period = _period(bits)
    values = np.zeros((-(-len(words) // period), period), dtype=np.uint64)
    values.reshape(-1)[: len(words)] = words
    values &= np.uint64(2**bits - 1)
    packed = np.zeros((len(values), period * bits // 64), dtype="<u8")
    for place in range(period):
        word, shift = divmod(place * bits, 64)
        packed[:, word] |= values[:, place] << np.uint64(shift)
        if shift + bits > 64:
            packed[:, word + 1] |= values[:, place] >> np.uint64(64 - shift)
    return packed.view(np.uint8).reshape(-1)[: packed_size(len(words), bits)].data


def unpack(data: bytes | memoryview, length: int, bits: int) -> RingArray:
    """Decode packed values.

    Returns:
        uint32[length] (bits <= 32) or uint64[length]; read-only where it shares memory with
        ``data``.

    Raises:
        ProtocolError: other than ``packed_size(length, bits)`` bytes, or a bit set in the padding.
    """
    size = packed_size(length, bits)
    if len(data) != size:
        raise ProtocolError(f"{length} values of {bits} bits take {size} bytes, got {len(data)}")
    dtype = np.dtype(word_type(bits))
    if bits == 8 * dtype.itemsize:
        return np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype, copy=False)
    spare = -length * bits % 8
    if spare and data[-1] >> (8 - spare):
        raise ProtocolError("the padding of a packed vector must be zero")
    return _spread(data, length, bits).astype(dtype, copy=False)


def _spread(data: bytes | memoryview, length: int, bits: int) -> WordArray:
    period = _period(bits)
    groups = -(-length // period)
    padded = np.zeros(groups * period * bits // 8, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    packed = padded.view("<u8").reshape(groups, period * bits // 64)
    values = np.empty((groups, period), dtype=np.uint64)
    for place in range(period):
        word, shift = divmod(place * bits, 64)
        values[:, place] = packed[:, word] >> np.uint64(shift)
        if shift + bits > 64:
            values[:, place] |= packed[:, word + 1] << np.uint64(64 - shift)
    values &= np.uint64(2**bits - 1)
    return values.reshape(-1)[:length]


def _period(bits: int) -> int:
    """The fewest values that fill whole words of 64 bits."""
    return 64 // math.gcd(bits, 64)
