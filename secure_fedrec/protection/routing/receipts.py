"""Receipts: a sender must find its cells in one public list of their receiver, or ends the round.

A box authenticates no sender, so a mix can keep a cell and forward one of its own in its place: the
receiver cannot tell. Its sender can. Every cell carries 128 random bits (the message id of its
fragment); once a batch is in, its receiver signs *one* list for all senders, of a salted hash of
every fragment, and each sender looks for its own. To other parties an entry is a random number.

A list, version 1, little-endian:

    u8 version | u8 0 | u16 recipient | u32 epoch | u32 batch | u32 entries
    32 bytes directory digest | 16 bytes salt | 8 bytes entry [entries]
    64 bytes Ed25519 signature over all before it

    entry = first 8 bytes of SHA-256(domain, head, salt, SHA-256(domain, fragment))

Entries ascend, so their order tells nothing, and none occurs twice: every list has one encoding,
and other bytes are refused. All senders read whole lists, so entries are short: the salt is drawn
when all cells are in, and a missing cell of one among n is overlooked with odds n / 2^64, at most
2^-42 for the cells that a key opens.

Shown: a cell that was dropped, altered or replaced, to its sender, dummies included. *Not* shown: a
cell that was put in besides (where the number of cells is public, counting them shows it), and that
a receiver which signs for a cell also used it. A receiver could give each sender a list of its own
with one entry left out, and see by the one who complains whose cell that was: hence one list for
all. Senders compare digests (``receipt_digest``) over a path that the receiver does not control;
two signed lists for one batch prove its misconduct (``equivocates``). That path, the signing keys
and the directory must be authentic. With a list that leaves out one entry for all senders, the
receiver still learns the sender from the complaint, and the round is lost; so complaints should be
sent through the mixes, too.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from secrets import token_bytes

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.sealing import labelled
from secure_fedrec.protection.session.roster import signed_by

_VERSION = 1
_HEAD = struct.Struct("<BBHIII32s")
_SALT_BYTES = 16
_ENTRY_BYTES = 8
_SIGNATURE_BYTES = 64
_DOMAIN = b"secure-fedrec|routing-receipts|v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A list whose form, but not its signature, has been checked.

    Args:
        recipient: number of the recipient.
        epoch: number of the directory.
        batch: number of the batch within the epoch.
        directory: digest of the directory.
        salt: 16 random bytes.
        entries: salted hashes, ascending.
    """

    recipient: int
    epoch: int
    batch: int
    directory: bytes
    salt: bytes
    entries: tuple[bytes, ...]

    @classmethod
    def decode(cls, data: bytes) -> "Receipt":
        """Read a list, accepting exactly what ``sign_receipt`` writes.

        Raises:
            WireError: anything else.
        """
        if len(data) < receipt_bytes(0):
            raise WireError(f"a list of receipts of {len(data)} bytes is too short")
        version, zero, recipient, epoch, batch, count, digest = _HEAD.unpack_from(data)
        if version != _VERSION or zero:
            raise WireError("a list of receipts of an unknown version")
        if len(data) != receipt_bytes(count):
            raise WireError(f"a list of receipts of {len(data)} bytes declares {count} entries")
        place = _HEAD.size + _SALT_BYTES
        numbers = np.frombuffer(data, ">u8", count, place)
        if not np.all(numbers[1:] > numbers[:-1]):
            raise WireError("entries of a list of receipts must ascend")
        entries = range(place, place + count * _ENTRY_BYTES, _ENTRY_BYTES)
        return cls(
            recipient=recipient,
            epoch=epoch,
            batch=batch,
            directory=digest,
            salt=data[_HEAD.size : place],
            entries=tuple(data[at : at + _ENTRY_BYTES] for at in entries),
        )


def new_identity() -> Ed25519PrivateKey:
    """A signing key for a receiver, from the operating system's generator."""
    return Ed25519PrivateKey.generate()


def receipt_bytes(cells: int) -> int:
    """Size of a list over so many cells."""
    return _HEAD.size + _SALT_BYTES + cells * _ENTRY_BYTES + _SIGNATURE_BYTES


def receipt_digest(receipt: bytes) -> bytes:
    """32 bytes that senders compare to see that they hold one list."""
    return sha256(labelled(_DOMAIN, b"list", receipt)).digest()


def fragment_digest(fragment: bytes) -> bytes:
    """Digest of an encoded fragment that both ends keep until its batch is signed for."""
    return sha256(labelled(_DOMAIN, b"fragment", fragment)).digest()


def sign_receipt(
    fragments: Iterable[bytes],
    *,
    recipient: int,
    batch: int,
    directory: Directory,
    identity: Ed25519PrivateKey,
) -> bytes:
    """The list over the fragments of a batch, given by their digests, under a fresh salt.

    A sender that hands in one fragment twice stands in it once.

    Raises:
        ProtocolError: a number does not fit its field.
    """
    if not (0 <= recipient < 2**16 and 0 <= batch < 2**32):
        raise ProtocolError(f"recipient {recipient}, batch {batch}: no number of a list")
    salt = token_bytes(_SALT_BYTES)
    place = _place(recipient, batch, directory)
    entries = sorted({_entry(place, salt, fragment) for fragment in fragments})
    body = _place(recipient, batch, directory, len(entries)) + salt + b"".join(entries)
    return body + identity.sign(labelled(_DOMAIN, b"signed", body))


def equivocates(first: bytes, second: bytes, signer: bytes) -> bool:
    """Whether two lists, both signed with one key, are different lists of one batch.

    Args:
        first: a list.
        second: another one.
        signer: Ed25519 public key of the receiver.

    Raises:
        WireError: a list is malformed.
        ProtocolError: a list is not signed with that key.
    """
    one, other = Receipt.decode(first), Receipt.decode(second)
    for data in (first, second):
        _require_signed(data, signer)
    places = [(each.recipient, each.epoch, each.batch, each.directory) for each in (one, other)]
    return places[0] == places[1] and not compare_digest(first, second)


class SentCells:
    """The cells that one sender handed in for a batch; give it to ``send``.

    Args:
        directory: keys of the epoch.
        batch: number of the batch within the epoch.
    """

    def __init__(self, directory: Directory, *, batch: int) -> None:
        self._directory = directory
        self._batch = batch
        self._fragments: dict[int, list[bytes]] = {}

    def add(self, recipient: int, fragments: Iterable[bytes]) -> None:
        """Record encoded fragments that were sent to a recipient."""
        held = self._fragments.setdefault(recipient, [])
        held += [fragment_digest(fragment) for fragment in fragments]

    def require_received(
        self, receipts: Sequence[bytes], *, signers: Sequence[bytes], published: Sequence[bytes]
    ) -> None:
        """Check that every cell of this sender stands in the list of its recipient.

        All entries are searched before an error is raised, and the error is the same whichever is
        missing: it names neither cell nor recipient.

        Args:
            receipts: lists of all recipients, in any order.
            signers: Ed25519 public key of every recipient, by number.
            published: ``receipt_digest`` of the lists that all senders hold.

        Raises:
            ProtocolError: a cell is missing, or a list that is due; or a list is of another
                directory or batch, unsigned, one of two of a recipient, or not the published one.
            WireError: a malformed list.
        """
        lists = self._read(receipts, signers, published)
        missing = 0
        for recipient, fragments in self._fragments.items():
            found = lists.get(recipient)
            if found is None:
                missing += len(fragments)
                continue
            place, held = _place(recipient, self._batch, self._directory), set(found.entries)
            missing += sum(_entry(place, found.salt, each) not in held for each in fragments)
        if missing:
            raise ProtocolError("a cell of this sender was not received as it was sent")

    def _read(
        self, receipts: Sequence[bytes], signers: Sequence[bytes], published: Sequence[bytes]
    ) -> dict[int, Receipt]:
        lists: dict[int, Receipt] = {}
        for data in receipts:
            receipt = Receipt.decode(data)
            fits = (receipt.epoch, receipt.batch) == (self._directory.epoch, self._batch)
            if not (fits and compare_digest(receipt.directory, self._directory.digest)):
                raise ProtocolError("a list of receipts is of another directory or batch")
            if receipt.recipient >= len(signers):
                raise ProtocolError(f"a list of receipts names recipient {receipt.recipient}")
            _require_signed(data, signers[receipt.recipient])
            digest = receipt_digest(data)
            if not any(compare_digest(digest, each) for each in published):
                raise ProtocolError("a list of receipts is not the one that was published")
            if receipt.recipient in lists:
                raise ProtocolError(f"two lists of receipts of recipient {receipt.recipient}")
            lists[receipt.recipient] = receipt
        return lists


def _require_signed(data: bytes, signer: bytes) -> None:
    body, signature = data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
    if not signed_by(signer, labelled(_DOMAIN, b"signed", body), signature):
        raise ProtocolError("a list of receipts is not signed by its recipient")


def _place(recipient: int, batch: int, directory: Directory, entries: int = 0) -> bytes:
    """The head of a list; entries are hashed with that of an empty one."""
    return _HEAD.pack(_VERSION, 0, recipient, directory.epoch, batch, entries, directory.digest)


def _entry(place: bytes, salt: bytes, fragment: bytes) -> bytes:
    return sha256(labelled(_DOMAIN, b"entry", place, salt, fragment)).digest()[:_ENTRY_BYTES]
