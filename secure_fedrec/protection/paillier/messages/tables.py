"""Encrypted tables at rest: how one is opened, and how it is checked to be the agreed one.

A table is u8[32] digest | encrypted vector. The digest is an HMAC-SHA256 of round and words under a
key that follows from the private key, and that plans of one key, roster, layout and series have in
common (``Plan.table_context``).
"""

import hmac
from collections.abc import Sequence

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey
from secure_fedrec.protection.paillier.scheme.vectors import EncryptedVector, decrypt_vector
from secure_fedrec.protection.paillier.scheme.words import write_words

DIGEST_BYTES = 32
"""Bytes of a table's digest."""

_DIGEST_INFO = b"secure-fedrec|v1|paillier|table-digest"


class TableReader:
    """A holder of the clients' key: opens tables and checks their digests.

    Args:
        plan: the agreement.
        private: the clients' key.
        decryptor: with the same key; made here if absent.

    Raises:
        ConfigError: it is another key than the plan's, or the plan has no table.
    """

    def __init__(self, plan: Plan, private: PrivateKey, decryptor: Decryptor | None = None) -> None:
        self._plan = plan
        self._layout = plan.table_layout
        self._decryptor = Decryptor(private) if decryptor is None else decryptor
        if {private.public, self._decryptor.key} != {plan.key}:
            raise ConfigError("paillier.private_key", private, "is not the key of the plan")
        derive = HKDF(algorithm=SHA256(), length=32, salt=plan.table_context, info=_DIGEST_INFO)
        size = private.public.bits // 16
        # The secret that only the clients share, in a fixed length.
        primes = private.p.to_bytes(size, "little") + private.q.to_bytes(size, "little")
        self._key = derive.derive(primes)

    def open(self, table: bytes, round_: int) -> RingArray:
        """Ring words of the table of a round.

        Raises:
            WireError: the bytes are not such a table.
            ProtocolError: it is not the one that the two who made it vouched for.
        """
        digest, vector = split_table(table, self._plan)
        words = decrypt_vector(vector, self._decryptor)
        if not hmac.compare_digest(digest, self.digest(words, round_)):
            raise ProtocolError(f"round {round_}: the table differs from its digest")
        return words

    def digest(self, words: RingArray, round_: int) -> bytes:
        """Digest that the table of a round must match; unreadable without the private key."""
        message = round_.to_bytes(8, "little") + write_words([words], [self._layout])
        return hmac.digest(self._key, message, "sha256")


def updaters(clients: Sequence[int], round_: int) -> tuple[int, int]:
    """The two clients of a cohort that make the table after a round; they take turns."""
    count = len(clients)
    return clients[2 * round_ % count], clients[(2 * round_ + 1) % count]


def split_table(table: bytes, plan: Plan) -> tuple[bytes, EncryptedVector]:
    """Digest and ciphertexts.

    Raises:
        WireError: the bytes are not a table, or under another key or layout than the plan's.
    """
    if len(table) < DIGEST_BYTES:
        raise WireError(f"a table of {len(table)} bytes is shorter than its digest")
    digest, data = table[:DIGEST_BYTES], table[DIGEST_BYTES:]
    return digest, EncryptedVector.from_bytes(data, key=plan.key, layout=plan.table_layout)
