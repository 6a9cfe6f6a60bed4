"""R3 to R6, upload, agreement, unmasking and result: encoding and strict decoding.

Head | payload of each kind; n clients in the cohort (R0 to R2 and records: ``messages``):

    UPLOAD     32 hash of who shared and of the statement | 64 signature over it | 32 digest
               | u32 count | count x u32 disputed | payload: the packed masked vector
    SURVIVORS  n/8 survivors | 32 root over their uploads
               | payload: records (64 signature of a surviving neighbour over who shared)
               | inclusion path (count x 32)
    CONFIRM    32 hash of what is confirmed (of members of the committee, where there is one)
    QUORUM     records (64 signature of its CONFIRM)
    REVEAL     box of (32 own self-mask seed | records (32 share))
    RESULT     32 digest of the sum | 32 root of the transcript | u32 leaves
               | payload: u32 leaf | inclusion path

A client puts on a mask for each neighbour that it was told had shared. A server that tells clients
of different sharers decides with whom each of them masks, so a client signs the set that it masked
by (UPLOAD), its neighbours get that signature (SURVIVORS), and they help to take off its self mask
only if it is over their own set (``topology.share_due``). With the set it signs what
the round agrees on (``session.statement``), so that no sum holds vectors of two statements. Signed:
a label of its own | header of the client's UPLOAD with a head of 32 bytes | the hash.

Merkle trees over the messages of a round have the tree hash of RFC 9162, section 2.1. The server
commits to the uploads before anything is unmasked, and to the whole round with the result. A client
checks that its own upload is under the root; two clients that compare roots outside the protocol
know whether they were told the same.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import SIGNATURE_BYTES, Context, Kind, encode_ids
from secure_fedrec.protection.masking.messages.shamir import ELEMENT_BYTES
from secure_fedrec.protection.session.reader import (
    encode_marks,
    encode_records,
    first_records,
    read_listed,
    read_marks,
    read_records,
)
from secure_fedrec.protection.session.roster import Identity, signed_by
from secure_fedrec.protection.session.statement import labelled_hash


def leaf_hash(proven: bytes) -> bytes:
    """Leaf of a message (header, head and signature or MAC)."""
    return sha256(b"\x00" + proven).digest()


class MerkleTree:
    """The tree over some leaf hashes, at least one."""

    __slots__ = ("_levels",)

    def __init__(self, leaves: Sequence[bytes]) -> None:
        # A node without a sibling moves up unchanged: the tree of RFC 9162, level by level.
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            above = [_node(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)]
            if len(below) % 2:
                above.append(below[-1])
            self._levels.append(above)

    @property
    def root(self) -> bytes:
        """Root hash."""
        return self._levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """Sibling hashes from a leaf up to the root."""
        path = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            index >>= 1
        return path


def require_included(
    root: bytes, leaf: bytes, *, index: int, leaves: int, path: Sequence[bytes]
) -> None:
    """Check an inclusion path.

    Args:
        root: the root.
        leaf: hash of the leaf.
        index: its place.
        leaves: leaves of the tree.
        path: what ``MerkleTree.path`` gave.

    Raises:
        ProtocolError: the path does not lead from the leaf to the root.
    """
    node, rest = leaf, list(path)
    valid = 0 <= index < leaves
    while valid and leaves > 1:
        if index ^ 1 < leaves:
            valid = bool(rest)
            if valid:
                sibling = rest.pop(0)
                node = _node(sibling, node) if index & 1 else _node(node, sibling)
        index, leaves = index >> 1, (leaves + 1) >> 1
    if not valid or rest or not compare_digest(node, root):
        raise ProtocolError("an inclusion path does not lead to the root")


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


_HASH = 32
_SHARERS = b"secure-fedrec|v1|masking|sharers|"
_UPLOAD = struct.Struct(f"<{_HASH}s{SIGNATURE_BYTES}s{_HASH}sI")
_RESULT = struct.Struct(f"<{_HASH}s{_HASH}sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """R3 without the vector.

    Args:
        shared_hash: hash of the sharers, as the client was told, and of the public state that the
            vector was computed from (``hash_of_sharers``).
        shared_signature: the client's signature over it.
        digest: SHA-256 of the packed masked vector, by which the transcript binds both sides to
            it. The server relies on the MAC, and checks the digest only in a dispute.
        disputed: neighbours whose shares did not open or did not match their hashes.
    """

    shared_hash: bytes
    shared_signature: bytes
    digest: bytes
    disputed: IntArray

    def head(self) -> bytes:
        """Encode the head."""
        parts = self.shared_hash, self.shared_signature, self.digest, len(self.disputed)
        return _UPLOAD.pack(*parts) + encode_ids(self.disputed)

    @classmethod
    def decode(cls, head: bytes) -> "Upload":
        """Decode a head."""
        shared, signature, digest, disputed = read_listed(_UPLOAD, head, "UPLOAD")
        return cls(shared_hash=shared, shared_signature=signature, digest=digest, disputed=disputed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """R4 to a client.

    Args:
        survivors: bool[n], the clients whose vectors are in the sum.
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
        survivors = read_marks(head[:-_HASH], config.clients, "SURVIVORS")
        signatures, rest = first_records(payload, SIGNATURE_BYTES, "SURVIVORS")
        return cls(
            survivors=survivors,
            root=head[-_HASH:],
            shared_signatures=signatures,
            path=_hashes(rest, "SURVIVORS"),
        )


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
        return cls(signatures=read_records(head, SIGNATURE_BYTES, "QUORUM"))


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
        shares = read_records(message[ELEMENT_BYTES:], ELEMENT_BYTES, "REVEAL")
        return cls(self_seed=message[:ELEMENT_BYTES], shares=shares)


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
        return _RESULT.pack(self.digest, self.root, self.leaves)

    def payload(self) -> bytes:
        """Encode the payload."""
        return self.index.to_bytes(4, "little") + b"".join(self.path)

    @classmethod
    def decode(cls, head: bytes, payload: memoryview) -> "Result":
        """Decode head and payload."""
        if len(head) != _RESULT.size or len(payload) < 4:
            raise ProtocolError(f"RESULT: {len(head)} and {len(payload)} bytes")
        digest, root, leaves = _RESULT.unpack(head)
        index = int.from_bytes(payload[:4], "little")
        path = _hashes(payload[4:], "RESULT")
        return cls(digest=digest, root=root, leaves=leaves, index=index, path=path)


def hash_of_sharers(shared: BoolArray, stated: bytes) -> bytes:
    """What a client signs with its upload.

    Args:
        shared: bool[n], the clients of the cohort that shared: all of them, not neighbours alone.
        stated: digest of the statement that the vector was computed from.
    """
    return labelled_hash("shared", encode_marks(shared), stated)


def sign_sharers(identity: Identity, context: Context, shared_hash: bytes) -> bytes:
    """A client's signature (64 bytes) over the sharers that it masked by in this round."""
    return identity.key.sign(_signed_sharers(context, identity.number, shared_hash))


def signed_sharers(
    public_key: bytes, context: Context, client: int, shared_hash: bytes, signature: bytes
) -> bool:
    """Whether a client signed in this round that it masked by these sharers.

    Args:
        public_key: the client's key on the roster.
        context: the round.
        client: its number.
        shared_hash: the sharers asked about.
        signature: its alleged signature.
    """
    return signed_by(public_key, _signed_sharers(context, client, shared_hash), signature)


def _signed_sharers(context: Context, client: int, shared_hash: bytes) -> bytes:
    return _SHARERS + context.prefix(Kind.UPLOAD, client, shared_hash)


def confirmed_hash(survivors: BoolArray, shared_hash: bytes, root: bytes, seed: bytes) -> bytes:
    """What clients sign in R4: H(survivors | sharers' hash | root over uploads | graph seed)."""
    return labelled_hash("survivors", encode_marks(survivors), shared_hash, root, seed)


def _hashes(payload: memoryview, name: str) -> list[bytes]:
    if len(payload) % _HASH:
        raise ProtocolError(f"{name}: an inclusion path is a list of {_HASH}-byte hashes")
    return [bytes(payload[at : at + _HASH]) for at in range(0, len(payload), _HASH)]
