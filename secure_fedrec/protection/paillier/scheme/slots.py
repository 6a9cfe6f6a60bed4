"""Slots: many ring integers side by side in one plaintext, with room for their sum.

A plaintext below 2^(bits of n - 1) is cut, from its lowest bit, into

    count [g bits] | slot 0 [v + g bits] | slot 1 | ... | slot s - 1 | zeros

A slot holds v value bits and g guard bits. The number of guard bits follows from the *budget*, the
most vectors that may be added: g = floor(log2 budget) + 1 bits, so no sum within the budget reaches
the next slot. Slots are never negative. There are two kinds of value:

- *signed*: a ring integer x with abs(x) <= largest is stored as x + largest. A sum of c vectors is
  read as the slot minus c * largest, reduced to the ring.
- *whole ring*: any ring word in [0, 2^b), uniform where a pairwise mask was added to it; v = b, and
  the result is the slot modulo 2^b, in which the masks have cancelled.

The count field holds 1 in every plaintext that a client makes. It is inside the encryption, so
the decrypting party subtracts as many offsets as there were vectors, and sees whether all
plaintexts of a vector agree about that number.

In both cases the results equal the sum of the ring words modulo 2^b: the same bits as
a plain sum, a masked sum, or any other order of summation.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import RingArray, WordArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.settings import Settings, Within

_BUDGET_LIMIT = 2**31
_LENGTH_LIMIT = 2**40
_FIELDS = struct.Struct("<BBHIQQ")
# 64 bytes of working memory per value: about 4 MB at a time.
_BATCH_VALUES = 2**16


class SlotLayout(Settings, section="paillier"):
    """How one vector of ring words is cut into plaintexts.

    Args:
        codec: the ring, and the largest magnitude of one signed value.
        length: words in the vector.
        budget: most vectors in one sum (the clients of the cohort).
        whole_ring: a slot holds any ring word instead of a signed value within the clip.

    Raises:
        ConfigError: a field is out of range.
        SumBudgetError: signed values of that many clients could leave the ring.
    """

    codec: FixedPoint
    length: Annotated[int, Within(1, _LENGTH_LIMIT - 1)]
    budget: Annotated[int, Within(1, _BUDGET_LIMIT - 1)]
    whole_ring: bool = False

    def _agree(self) -> None:
        self.codec.require_budget(self.budget)

    @property
    def limit(self) -> int:
        """Largest content of a slot before summation."""
        return 2**self.codec.bits - 1 if self.whole_ring else 2 * self.codec.largest

    @property
    def value_bits(self) -> int:
        """v: bits of one value."""
        return self.limit.bit_length()

    @property
    def guard_bits(self) -> int:
        """g: bits that summation may fill; also the width of the count."""
        return self.budget.bit_length()

    @property
    def slot_bits(self) -> int:
        """Width of a slot."""
        return self.value_bits + self.guard_bits

    def slots(self, key_bits: int) -> int:
        """Slots in one plaintext.

        Raises:
            ConfigError: a plaintext is too small for one slot.
        """
        slots = (key_bits - 1 - self.guard_bits) // self.slot_bits
        if slots < 1:
            raise ConfigError("paillier.bits", key_bits, f"a slot takes {self.slot_bits} bits")
        return slots

    def plaintexts(self, key_bits: int) -> int:
        """Plaintexts, and so ciphertexts, of one vector."""
        return -(-self.length // self.slots(key_bits))

    def to_bytes(self) -> bytes:
        """Canonical form, 24 bytes, little-endian: what messages declare, contexts are bound to.

            u8 kind | u8 ring bits | u16 fraction bits | u32 budget | u64 largest | u64 length

        Both kinds state the whole codec, since a party that reads a sum in other units than the
        clients wrote it reads other reals. The clip is stated as a ring integer.
        """
        kind = 1 if self.whole_ring else 0
        codec = self.codec
        return _FIELDS.pack(
            kind, codec.bits, codec.fraction_bits, self.budget, codec.largest, self.length
        )

    def require_words(self, words: RingArray) -> None:
        """Check the words that a client wants to encrypt.

        Raises:
            EncodingError: wrong shape or dtype, a word outside the ring, or a signed value beyond
                the codec's clip.
        """
        if type(words) is not np.ndarray or words.shape != (self.length,):
            raise EncodingError(f"expected a plain vector of {self.length} ring words")
        if words.dtype != self.codec.dtype:
            raise EncodingError(
                f"ring words of this codec have dtype {np.dtype(self.codec.dtype).name}, "
                f"got {words.dtype.name}"
            )
        if int(words.max()) >= 2**self.codec.bits:
            raise EncodingError(f"a word lies outside the ring of 2^{self.codec.bits}")
        if self.whole_ring:
            return
        signed = self.codec.to_integers(words)
        # Not abs(): the magnitude of the lowest int64 does not fit an int64.
        if int(signed.max()) > self.codec.largest or int(signed.min()) < -self.codec.largest:
            raise EncodingError(f"a value exceeds ring.clip = {self.codec.clip:g}")

    def pack(self, words: RingArray, key_bits: int) -> list[int]:
        """Plaintexts of one vector.

        Args:
            words: [length] ring words of ``codec.dtype``.
            key_bits: length of n.

        Returns:
            Integers below 2^(key_bits - 1), each with a count of 1.

        Raises:
            EncodingError: as ``require_words``.
        """
        self.require_words(words)
        slots = self.slots(key_bits)
        found: list[int] = []
        batch = max(1, _BATCH_VALUES // slots) * slots
        for start in range(0, self.length, batch):
            part = words[start : start + batch]
            contents = part.astype(np.uint64) if self.whole_ring else self._offset(part)
            found.extend(self._pack(contents, slots))
        return found

    def unpack(self, plaintexts: list[int], terms: int, key_bits: int) -> RingArray:
        """Ring words of a sum of vectors.

        Args:
            plaintexts: decrypted sums, in order.
            terms: how many vectors were added.
            key_bits: length of n.

        Returns:
            [length] ring words of ``codec.dtype``.

        Raises:
            ProtocolError: the plaintexts cannot be a sum of ``terms`` vectors of this layout: a
                count that differs, a slot beyond what so many values reach, filled padding.
        """
        if not 1 <= terms <= self.budget:
            raise ProtocolError(f"a sum of {terms} vectors, the budget is {self.budget}")
        if len(plaintexts) != self.plaintexts(key_bits):
            raise ProtocolError(f"{len(plaintexts)} plaintexts do not make up the vector")
        slots = self.slots(key_bits)
        words = np.empty(self.length, dtype=self.codec.dtype)
        group = max(1, _BATCH_VALUES // slots)
        for start in range(0, len(plaintexts), group):
            low, high = self._cut(plaintexts[start : start + group], terms, key_bits)
            place = start * slots
            inside = min(low.size, self.length - place)
            if np.any(low[inside:]) or np.any(high[inside:]):
                raise ProtocolError("a plaintext holds more than the vector's values")
            low, high = low[:inside], high[:inside]
            self._require_reachable(low, high, terms)
            offset = 0 if self.whole_ring else terms * self.codec.largest
            signed = (low - np.uint64(offset)).view(np.int64)
            words[place : place + inside] = self.codec.from_integers(signed)
        return words

    def _offset(self, words: RingArray) -> WordArray:
        shifted = self.codec.to_integers(words) + self.codec.largest
        return shifted.view(np.uint64)

    def _pack(self, contents: WordArray, slots: int) -> Iterator[int]:
        plaintexts = -(-len(contents) // slots)
        padded = np.zeros(plaintexts * slots, dtype="<u8")
        padded[: len(contents)] = contents
        bits = np.unpackbits(padded.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        wide = np.zeros((plaintexts * slots, self.slot_bits), dtype=np.uint8)
        wide[:, : self.value_bits] = bits[:, : self.value_bits]
        whole = np.zeros((plaintexts, self.guard_bits + slots * self.slot_bits), dtype=np.uint8)
        whole[:, 0] = 1  # the count
        whole[:, self.guard_bits :] = wide.reshape(plaintexts, -1)
        for row in np.packbits(whole, axis=1, bitorder="little"):
            yield int.from_bytes(row.tobytes(), "little")

    def _cut(
        self, plaintexts: Iterable[int], terms: int, key_bits: int
    ) -> tuple[WordArray, WordArray]:
        """Slots as (low 64 bits, bits above), after checking counts and the zeros on top."""
        slots = self.slots(key_bits)
        size = key_bits // 8
        data = b"".join(plaintext.to_bytes(size, "little") for plaintext in plaintexts)
        raw = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        bits = np.unpackbits(raw, axis=1, bitorder="little")
        used = self.guard_bits + slots * self.slot_bits
        if np.any(bits[:, used:]):
            raise ProtocolError("a plaintext is larger than its slots")
        counts = _numbers(bits[:, : self.guard_bits])
        if np.any(counts != terms):
            wrong = int(counts[counts != terms][0])
            raise ProtocolError(f"a plaintext counts {wrong} vectors, the sum declares {terms}")
        cells = bits[:, self.guard_bits : used].reshape(-1, self.slot_bits)
        return _numbers(cells[:, :64]), _numbers(cells[:, 64:])

    def _require_reachable(self, low: WordArray, high: WordArray, terms: int) -> None:
        top = terms * self.limit
        top_high, top_low = np.uint64(top >> 64), np.uint64(top & (2**64 - 1))
        if np.any((high > top_high) | ((high == top_high) & (low > top_low))):
            raise ProtocolError(f"a slot is larger than {terms} values can be")


def _numbers(bits: npt.NDArray[np.uint8]) -> WordArray:
    """Rows of at most 64 bits, lowest first, as uint64."""
    whole = np.zeros((len(bits), 64), dtype=np.uint8)
    whole[:, : bits.shape[1]] = bits
    packed = np.packbits(whole, axis=1, bitorder="little")
    return packed.view("<u8")[:, 0].astype(np.uint64)
