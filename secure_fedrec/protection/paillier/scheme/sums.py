"""The sum of a cohort's vectors in one call per step, for callers that bring their own messages.

``PaillierSum`` is what a simulation, a collector or a plain training loop needs: clients encrypt,
any party adds, the key holder opens. It neither sends messages nor checks identities; the halves in
``helper`` and ``client.table`` do.
"""

from collections.abc import Iterable

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier.scheme.arithmetic import Arithmetic
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey, PublicKey
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.scheme.vectors import (
    EncryptedVector,
    RunningSum,
    decrypt_vector,
    encrypt_vector,
    vector_bytes,
)


class PaillierSum:
    """Exact sums of ring vectors under one Paillier key.

    Args:
        n_clients: clients of the cohort: the most vectors in a sum.
        length: words of a vector.
        codec: the ring.
        key: public key.
        whole_ring: a slot holds any ring word (a pairwise mask was added) instead of a signed value
            within the clip.
        arithmetic: the engine; the fastest one by default.

    Raises:
        ConfigError: a number is out of range, or the key has no room for one slot.
        SumBudgetError: the ring is too small for the cohort.
    """

    def __init__(
        self,
        *,
        n_clients: int,
        length: int,
        codec: FixedPoint,
        key: PublicKey,
        whole_ring: bool = False,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        self.layout = SlotLayout(
            codec=codec, length=length, budget=n_clients, whole_ring=whole_ring
        )
        self.layout.slots(key.bits)  # refuses a key without room
        self.key = key
        self._arithmetic = arithmetic
        self._encryptor: Encryptor | None = None

    @property
    def bytes_per_vector(self) -> int:
        """Bytes that one client sends."""
        return vector_bytes(self.layout, self.key.bits)

    def encrypt(self, words: RingArray) -> EncryptedVector:
        """A client's step: encrypt [length] ring words.

        Raises:
            EncodingError: the words do not fit the layout.
        """
        if self._encryptor is None:  # made late: adding and decrypting do not need its table
            self._encryptor = Encryptor(self.key, self._arithmetic)
        return encrypt_vector(words, self.layout, self._encryptor)

    def total(self, vectors: Iterable[EncryptedVector]) -> EncryptedVector:
        """The server's step: add vectors, one after the other.

        Raises:
            ProtocolError: there are no vectors, a key or layout differs, or the budget of additions
                is spent.
        """
        running = RunningSum(key=self.key, layout=self.layout, arithmetic=self._arithmetic)
        for vector in vectors:
            running.add(vector)
        return running.vector()

    def decrypt(self, total: EncryptedVector, private: PrivateKey) -> RingArray:
        """The key holder's step: [length] ring words, equal to the sum modulo 2^b.

        Raises:
            ProtocolError: another key or layout, or ciphertexts that are not such a sum.
        """
        if total.layout != self.layout:
            raise ProtocolError("the sum has another layout")
        return decrypt_vector(total, Decryptor(private, self._arithmetic))
