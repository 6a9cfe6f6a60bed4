"""R3 to R6, upload, agreement, unmasking and result: encoding and strict decoding.

Head | payload of each kind; n clients in the cohort (R0 to R2 and records: ``messages``):

    UPLOAD     32 hash of who shared and of the public state | 64 signature over it | 32 digest
               | u32 count | count x u32 disputed | payload: the packed masked vector
    SURVIVORS  n/8 survivors | 32 root over their uploads
               | payload: records (64 signature of a surviving neighbour over who shared)
               | inclusion path (count x 32)
    CONFIRM    32 statement (of members of the committee, where there is one)
    QUORUM     records (64 signature of its CONFIRM)
    REVEAL     box of (32 own self-mask seed | records (32 share))
    RESULT     32 digest of the sum | 32 root of the transcript | u32 leaves
               | payload: u32 leaf | inclusion path
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import SIGNATURE_BYTES, encode_ids
from secure_fedrec.protection.masking.messages.shamir import ELEMENT_BYTES
from secure_fedrec.protection.session.public_state import labelled_hash
from secure_fedrec.protection.session.reader import Reader, encode_marks, encode_records

_HASH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """R3 without the vector.

    Args:
        shared_hash: hash of who shared, as the client was told, and of the public state that the
            vector was computed from (``sharers``).
        shared_signature: the client's signature over it.
        digest: SHA-256 of the packed masked vector, by which the transcript binds both sides to
            it. The server relies on the MAC, and checks the digest only if there is a quarrel.
        disputed: neighbours whose shares did not open or did not match their hashes.
    """

    shared_hash: bytes
    shared_signature: bytes
    digest: bytes
    disputed: IntArray

    def head(self) -> bytes:
        """Encode the head."""
        count = len(self.disputed).to_bytes(4, "little")
        bound = self.shared_hash + self.shared_signature + self.digest
        return bound + count + encode_ids(self.disputed)

    @classmethod
    def decode(cls, head: bytes) -> "Upload":
        """Decode a head."""
        with Reader(head, "UPLOAD") as reader:
            shared, signature = reader.take(_HASH), reader.take(SIGNATURE_BYTES)
            digest = reader.take(_HASH)
            disputed = reader.ids(reader.number(4))
        return cls(shared_hash=shared, shared_signature=signature, digest=digest, disputed=disputed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """R4 to a client.

    Args:
        survivors: bool[n], whose vectors are in the sum.
        root: root over their uploads.
        shared_signatures: of the client's neighbours among them, each over the sharers that it was
            told; one may be missing.
        path: from the client's own upload to the root.
    """

    survivors: BoolArray
    root: bytes
    shared_signatures: Mapping[int, bytes]
    path: Sequence[bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return encode_marks(self.survivors) + self.root

    def payload(self) -> bytes:
        """Encode the payload."""
        return encode_records(self.shared_signatures) + b"".join(self.path)

    @classmethod
    def decode(cls, head: bytes, payload: memoryview, config: MaskingConfig) -> "Survivors":
        """Decode head and payload."""
        with Reader(head, "SURVIVORS") as reader:
            survivors, root = reader.marks(config.clients), reader.take(_HASH)
        reader = Reader(payload, "SURVIVORS")
        signatures = reader.records(SIGNATURE_BYTES)
        path = _hashes(reader.rest(), "SURVIVORS")
        return cls(survivors=survivors, root=root, shared_signatures=signatures, path=path)


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
        with Reader(head, "QUORUM") as reader:
            signatures = reader.records(SIGNATURE_BYTES)
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
        with Reader(message, "REVEAL") as reader:
            seed, shares = reader.take(ELEMENT_BYTES), reader.records(ELEMENT_BYTES)
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
        with Reader(head, "RESULT") as reader:
            digest, root, leaves = reader.take(_HASH), reader.take(_HASH), reader.number(4)
        index = Reader(payload, "RESULT").number(4)
        path = _hashes(payload[4:], "RESULT")
        return cls(digest=digest, root=root, leaves=leaves, index=index, path=path)


def statement_of(survivors: BoolArray, shared_hash: bytes, root: bytes, seed: bytes) -> bytes:
    """What clients sign in R4: H(survivors | ``sharers`` | root over the uploads | graph seed)."""
    return labelled_hash("survivors", encode_marks(survivors), shared_hash, root, seed)


def _hashes(payload: memoryview, name: str) -> list[bytes]:
    if len(payload) % _HASH:
        raise ProtocolError(f"{name}: an inclusion path is a list of {_HASH}-byte hashes")
    return [bytes(payload[at : at + _HASH]) for at in range(0, len(payload), _HASH)]
