"""Encrypted vectors: packed ciphertexts with their key, layout and number of additions.

The layout of an encrypted vector, version 2, little-endian:

    "SFPV" | u8 version | u8 0 | u16 bits | key id [32] | slot layout [24] | u32 terms
    ciphertexts [bits / 4 each], as many as the layout needs

``terms`` counts the vectors in the sum. It is public, like the number of clients, and the count
fields inside the ciphertexts must agree with it when the sum is opened.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.paillier.scheme.arithmetic import Arithmetic, default_arithmetic
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PublicKey
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout

_MAGIC = b"SFPV"
_VERSION = 2
_HEAD = struct.Struct("<4sBBH32s24sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedVector:
    """One vector of ring words, or a sum of such vectors, under Paillier.

    Args:
        key: the key that they are encrypted under.
        layout: how the words are packed.
        terms: vectors in the sum, 1 for a fresh one.
        ciphertexts: units modulo n^2, in order.

    Raises:
        ProtocolError: the budget of additions is overspent.
        WireError: the number of ciphertexts is wrong, or one is not a unit modulo n^2.
    """

    key: PublicKey
    layout: SlotLayout
    terms: int
    ciphertexts: tuple[int, ...]

    def __post_init__(self) -> None:
        _require_budget(self.terms, self.layout)
        _require_units(self.ciphertexts, self.key, self.layout)

    def __add__(self, other: "EncryptedVector") -> "EncryptedVector":
        """The encrypted sum.

        Raises:
            ProtocolError: another key or layout, or the budget of additions is spent.
        """
        total = RunningSum(key=self.key, layout=self.layout)
        total.add(self)
        total.add(other)
        return total.vector()

    def to_bytes(self) -> bytes:
        """The layout above."""
        key, layout = self.key, self.layout.to_bytes()
        head = _HEAD.pack(_MAGIC, _VERSION, 0, key.bits, key.key_id, layout, self.terms)
        width = key.ciphertext_bytes
        return head + b"".join(int(c).to_bytes(width, "little") for c in self.ciphertexts)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: PublicKey, layout: SlotLayout) -> "EncryptedVector":
        """Read a vector under the agreed key and layout, exactly as ``to_bytes`` writes it.

        Raises:
            WireError: anything else: wrong version, length or layout, another key, a number that is
                no ciphertext, more terms than the budget.
        """
        size = vector_bytes(layout, key.bits)
        if len(data) != size:
            raise WireError(f"encrypted vector of {len(data)} bytes, expected {size}")
        magic, version, zero, bits, key_id, declared, terms = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != _VERSION or zero:
            raise WireError("encrypted vector: unknown format or version")
        if bits != key.bits or key_id != key.key_id:
            raise WireError("encrypted vector: made under another key")
        if declared != layout.to_bytes():
            raise WireError("encrypted vector: packed in another layout")
        if not 1 <= terms <= layout.budget:
            raise WireError(f"encrypted vector: {terms} terms, the budget is {layout.budget}")
        width = key.ciphertext_bytes
        numbers = tuple(
            int.from_bytes(data[start : start + width], "little")
            for start in range(_HEAD.size, len(data), width)
        )
        return cls(key=key, layout=layout, terms=terms, ciphertexts=numbers)


class RunningSum:
    """A sum to which vectors are added one by one.

    Args:
        key: the key that they are encrypted under.
        layout: layout of every vector.
        arithmetic: the engine; the fastest one by default.
    """

    def __init__(
        self, *, key: PublicKey, layout: SlotLayout, arithmetic: Arithmetic | None = None
    ) -> None:
        self.key = key
        self.layout = layout
        self.terms = 0
        self._engine = default_arithmetic() if arithmetic is None else arithmetic
        self._n_squared = self._engine.number(key.n**2)
        self._products: list[int] = []

    def add(self, vector: EncryptedVector) -> None:
        """Add a vector.

        Raises:
            ProtocolError: another key or layout, or the budget of additions is spent.
        """
        if vector.key != self.key:
            raise ProtocolError("a vector under another key cannot be added")
        if vector.layout != self.layout:
            raise ProtocolError("a vector in another layout cannot be added")
        _require_budget(self.terms + vector.terms, self.layout)
        numbers = map(self._engine.number, vector.ciphertexts)
        if not self.terms:
            self._products = list(numbers)
        else:
            modulus = self._n_squared
            self._products = [
                left * right % modulus for left, right in zip(self._products, numbers, strict=True)
            ]
        self.terms += vector.terms

    def vector(self) -> EncryptedVector:
        """The sum so far.

        Raises:
            ProtocolError: nothing was added.
        """
        if not self.terms:
            raise ProtocolError("a sum needs at least one vector")
        return EncryptedVector(
            key=self.key,
            layout=self.layout,
            terms=self.terms,
            ciphertexts=tuple(map(int, self._products)),
        )


def encrypt_vector(words: RingArray, layout: SlotLayout, encryptor: Encryptor) -> EncryptedVector:
    """Pack and encrypt ring words.

    Raises:
        EncodingError: the words do not fit the layout; nothing is encrypted then.
    """
    numbers = encryptor.encrypt(layout.pack(words, encryptor.key.bits))
    return EncryptedVector(
        key=encryptor.key, layout=layout, terms=1, ciphertexts=tuple(map(int, numbers))
    )


def decrypt_vector(vector: EncryptedVector, decryptor: Decryptor) -> RingArray:
    """Ring words of a sum, those of adding the terms modulo 2^b.

    Raises:
        ProtocolError: another key, or ciphertexts that are not a sum of ``vector.terms`` vectors.
    """
    if vector.key != decryptor.key:
        raise ProtocolError("the vector was made under another key")
    plaintexts = decryptor.decrypt(vector.ciphertexts)
    return vector.layout.unpack(plaintexts, vector.terms, vector.key.bits)


def split_vectors(
    data: bytes, *, key: PublicKey, layouts: Sequence[SlotLayout]
) -> tuple[EncryptedVector, ...]:
    """Read concatenated encrypted vectors, one per layout.

    Raises:
        WireError: as ``EncryptedVector.from_bytes``, or another total length.
    """
    sizes = [vector_bytes(layout, key.bits) for layout in layouts]
    if len(data) != sum(sizes):
        raise WireError(f"encrypted vectors of {len(data)} bytes, expected {sum(sizes)}")
    found, place = [], 0
    for layout, size in zip(layouts, sizes, strict=True):
        part = data[place : place + size]
        found.append(EncryptedVector.from_bytes(part, key=key, layout=layout))
        place += size
    return tuple(found)


def vector_bytes(layout: SlotLayout, key_bits: int) -> int:
    """Bytes of an encrypted vector under any key of that length."""
    return _HEAD.size + layout.plaintexts(key_bits) * (key_bits // 4)


def _require_budget(terms: int, layout: SlotLayout) -> None:
    if not 1 <= terms <= layout.budget:
        raise ProtocolError(
            f"a sum of {terms} vectors: the slots have room for {layout.budget}; the budget of "
            "additions is spent"
        )


def _require_units(ciphertexts: Iterable[int], key: PublicKey, layout: SlotLayout) -> None:
    engine = default_arithmetic()
    n, n_squared = engine.number(key.n), engine.number(key.n**2)
    product, count = engine.number(1), 0
    for ciphertext in ciphertexts:
        if not 0 < ciphertext < n_squared:
            raise WireError("a ciphertext lies outside (0, n^2)")
        # One gcd for all of them: a product is a unit exactly if every factor is.
        product = product * (ciphertext % n) % n
        count += 1
    if count != layout.plaintexts(key.bits):
        raise WireError(f"{count} ciphertexts, the layout has {layout.plaintexts(key.bits)}")
    if engine.gcd(product, n) != 1:
        raise WireError("a ciphertext is not a unit modulo n")
