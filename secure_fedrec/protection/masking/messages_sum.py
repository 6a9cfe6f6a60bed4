"""R3 to R6, upload, agreement, unmasking and result: encoding and strict decoding.

Head | payload of each kind; n clients in the cohort (R0 to R2 and records: ``messages``):

    UPLOAD     32 hash of who shared | 32 digest | u32 count | count x u32 disputed
               | payload: the packed masked vector
    SURVIVORS  n/8 survivors | 32 root over their uploads | payload: inclusion path (count x 32)
    CONFIRM    32 statement
    QUORUM     records (64 signature of its CONFIRM)
    REVEAL     box of (32 own self-mask seed | records (32 share))
    RESULT     32 digest of the sum | 32 root of the transcript | u32 leaves
               | payload: u32 leaf | inclusion path
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedrec.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.config import MaskingConfig
from secure_fedrec.protection.masking.formats import (
    SIGNATURE_BYTES,
    Reader,
    encode_ids,
    encode_marks,
    encode_records,
    labelled_hash,
)
from secure_fedrec.protection.masking.shamir import ELEMENT_BYTES

__all__ = ["Quorum", "Result", "Reveal", "Survivors", "Upload", "statement_of"]

_HASH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """R3 without the vector.

    Args:
        shared_hash: hash of who shared, as the client was told.
        digest: SHA-256 of the packed masked vector, by which the transcript binds both sides to
            it. The server relies on the MAC, and checks the digest only if there is a quarrel.
        disputed: neighbours whose shares did not open or did not match their hashes.
    """

    shared_hash: bytes
    digest: bytes
    disputed: IntArray

    def head(self) -> bytes:
        """Encode the head."""
        count = len(self.disputed).to_bytes(4, "little")
        return self.shared_hash + self.digest + count + encode_ids(self.disputed)

    @classmethod
    def decode(cls, head: bytes) -> "Upload":
        """Decode a head."""
        reader = Reader(head, "UPLOAD")
        shared, digest = reader.take(_HASH), reader.take(_HASH)
        disputed = reader.ids(reader.number(4))
        reader.finish()
        return cls(shared_hash=shared, digest=digest, disputed=disputed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """R4 to a client: whose vectors are in the sum (bool[n]), the root over their uploads."""

    survivors: BoolArray
    root: bytes
    path: Sequence[bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return encode_marks(self.survivors) + self.root

    def payload(self) -> bytes:
        """Encode the payload."""
        return b"".join(self.path)

    @classmethod
    def decode(cls, head: bytes, payload: memoryview, config: MaskingConfig) -> "Survivors":
        """Decode head and payload."""
        reader = Reader(head, "SURVIVORS")
        survivors, root = reader.marks(config.clients), reader.take(_HASH)
        reader.finish()
        return cls(survivors=survivors, root=root, path=_hashes(payload, "SURVIVORS"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """R4 to a client: signatures of the statement by number."""

    signatures: Mapping[int, bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return encode_records(self.signatures)

    @classmethod
    def decode(cls, head: bytes) -> "Quorum":
        """Decode a head."""
        reader = Reader(head, "QUORUM")
        signatures = reader.records(SIGNATURE_BYTES)
        reader.finish()
        return cls(signatures=signatures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """R5 inside its box: the own self-mask seed, and one share per neighbour."""

    self_seed: bytes
    shares: Mapping[int, bytes]

    def encode(self) -> bytes:
        """Encode the message that is then encrypted."""
        return self.self_seed + encode_records(self.shares)

    @classmethod
    def decode(cls, message: bytes) -> "Reveal":
        """Decode the decrypted message."""
        reader = Reader(message, "REVEAL")
        seed, shares = reader.take(ELEMENT_BYTES), reader.records(ELEMENT_BYTES)
        reader.finish()
        return cls(self_seed=seed, shares=shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """R6: digest of the packed sum, root of the transcript, place and path of the own upload."""

    digest: bytes
    root: bytes
    leaves: int
    index: int
    path: Sequence[bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return self.digest + self.root + self.leaves.to_bytes(4, "little")

    def payload(self) -> bytes:
        """Encode the payload."""
        return self.index.to_bytes(4, "little") + b"".join(self.path)

    @classmethod
    def decode(cls, head: bytes, payload: memoryview) -> "Result":
        """Decode head and payload."""
        reader = Reader(head, "RESULT")
        digest, root, leaves = reader.take(_HASH), reader.take(_HASH), reader.number(4)
        reader.finish()
        index = Reader(payload, "RESULT").number(4)
        path = _hashes(payload[4:], "RESULT")
        return cls(digest=digest, root=root, leaves=leaves, index=index, path=path)


def statement_of(*, survivors: BoolArray, shared: BoolArray, root: bytes, seed: bytes) -> bytes:
    """What clients sign in R4: H(survivors | who shared | root over the uploads | graph seed)."""
    marks = encode_marks(survivors), encode_marks(shared)
    return labelled_hash("survivors", *marks, root, seed)


def _hashes(payload: memoryview, name: str) -> list[bytes]:
    if len(payload) % _HASH:
        raise ProtocolError(f"{name}: an inclusion path is a list of {_HASH}-byte hashes")
    return [bytes(payload[at : at + _HASH]) for at in range(0, len(payload), _HASH)]
