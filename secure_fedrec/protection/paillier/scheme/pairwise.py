"""Pairwise masks inside the slots: only the sum over the whole cohort can be read.

Each client makes an X25519 key for one round. Every pair derives one AES-256-CTR key per vector
from its shared secret; the client with the lower number adds the key stream to its ring words, the
other one subtracts it (Bonawitz et al., "Practical secure aggregation", CCS 2017, without the
recovery of dropped clients: here every client of the cohort takes part or the round ends).
"""

import struct
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.routing.sealing import labelled

MASK_KEY_BYTES = 32
_PURPOSE = b"secure-fedrec|v1|paillier|pairwise-mask"
_VECTOR_PURPOSE = b"secure-fedrec|v1|paillier|pairwise-mask-of-vector"


class PairwiseMask:
    """One client's half of all its masks of one round.

    Args:
        client: its number.
        round_: the round.
        context: hash of the agreement.
    """

    __slots__ = ("_client", "_context", "_key", "_round")

    def __init__(self, *, client: int, round_: int, context: bytes) -> None:
        self._client = client
        self._round = round_
        self._context = context
        self._key = X25519PrivateKey.generate()

    @property
    def public(self) -> bytes:
        """The public key that the other clients need."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, keys: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Secrets shared with every other client.

        Args:
            keys: public key of each client of the cohort, this one included.

        Returns:
            32 bytes per other client.

        Raises:
            ProtocolError: this client's key was replaced, two clients show one key, or a key is of
                low order and would make the secret public.
        """
        if keys.get(self._client) != self.public:
            raise ProtocolError(f"the mask key of client {self._client} was replaced")
        if len(set(keys.values())) != len(keys):
            raise ProtocolError("two clients show one mask key")
        secrets: dict[int, bytes] = {}
        for peer, key in keys.items():
            if peer == self._client:
                continue
            try:
                shared = self._key.exchange(X25519PublicKey.from_public_bytes(key))
            except ValueError:
                raise ProtocolError(f"the mask key of client {peer} is of low order") from None
            secrets[peer] = self._derive(peer, key, shared)
        return secrets

    def _derive(self, peer: int, key: bytes, shared: bytes) -> bytes:
        low, high = sorted(((self._client, self.public), (peer, key)))
        parts = (_PURPOSE, struct.pack("<QII", self._round, low[0], high[0]), low[1], high[1])
        return _hkdf(shared, salt=self._context, parts=parts)

    def apply(
        self, words: RingArray, vector: int, secrets: Mapping[int, bytes], codec: FixedPoint
    ) -> RingArray:
        """Ring words with this client's masks on them.

        Args:
            words: [length] ring words.
            vector: position of the vector in the upload; each has masks of its own.
            secrets: as ``agree`` returned them.
            codec: the ring.

        Returns:
            New ring words, uniform to a party that lacks one of the secrets.
        """
        total = words.copy()
        add: list[bytes] = []
        subtract: list[bytes] = []
        for peer, secret in secrets.items():
            key = _hkdf(
                secret, salt=self._context, parts=(_VECTOR_PURPOSE, vector.to_bytes(4, "little"))
            )
            (add if self._client < peer else subtract).append(key)
        expander = MaskExpander()
        expander.apply(total, add=add, subtract=subtract)
        expander.wipe()
        # Masks span the whole word; the low b bits of their sum are masks of the ring.
        return codec.from_integers(codec.to_integers(total))


def _hkdf(secret: bytes, *, salt: bytes, parts: tuple[bytes, ...]) -> bytes:
    info = labelled(*parts)
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)
