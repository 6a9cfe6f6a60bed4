"""A client's state between two messages, at rest: sealed, single-use, behind the journal.

A host that is started anew for every message has to keep the client's half somewhere. ``park``
writes it to a file for its owner alone and records a ticket in the journal before anything is
written; ``MaskingClient.resume`` holds the state against what the new half was given, strikes the
ticket, erases the file, and only then goes on. A refused state stays unchanged. A copy of the file
is refused at every step: its ticket was struck, or another one is recorded. The half that was saved
cannot be used any more either. After a crash in between, this client cannot finish the round, as
after a crash without a saved state.

It is not a message and must not travel: a party with file, key and journal can act as the client.

Layout of a file, version 3: "SFMS" | u8 version | 16 round id | 32 salt | AES-256-GCM box of the
state under a key that HKDF-SHA256 derives from the client's own key, salt and round id; the bytes
before it are authenticated. The ticket is SHA-256 of the whole file. State, little-endian: u8 kind
awaited | 4 x 32 secrets | records u32 size, bytes: SETUP, KEYS, SURVIVORS as they came (empty where
they have not) | 32 leaf of the upload | sharers (u32 size, bitmap) | records (u32 count, each
u32 client, 64 shares) | u32 beacons x (u64 epoch, 32) | 2 x 32 digest of the statement and what is
revealed for once, zeros for none | vector (u32 bits, u32 clients, 32 layout, u32 size, packed
words; size 0 for none).
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError, ProtocolError, RefusalError
from secure_fedrec.fixedpoint import pack, packed_size, unpack
from secure_fedrec.protection.masking.config.policy import EncodedVector
from secure_fedrec.protection.masking.envelope import Kind
from secure_fedrec.protection.masking.messages.keys import fresh_key, open_box, seal_box
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.reader import Reader, encode_marks
from secure_fedrec.protection.session.roster import read_private
from secure_fedrec.protection.session.statement import Agreed

_HEAD = struct.Struct("<4sB16s32s")
_MAGIC, _VERSION = b"SFMS", 3
_TOLD = (Kind.SETUP, Kind.KEYS, Kind.SURVIVORS)
AWAITED = frozenset({Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM})
"""Kinds before which a state can be saved; after its reveal a client does not hold secrets."""

NO_SHARERS: BoolArray = np.zeros(0, dtype=np.bool_)
"""The sharers of a client that has not been told of any yet."""
_FILE_KEY = "masking.state_file"
_INFO = b"secure-fedrec|v1|masking|saved-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """What a client needs to go on.

    Args:
        awaits: kind of message.
        secrets: roots of the round's keys, 32 bytes each.
        told: SETUP, KEYS and SURVIVORS as they came, so far.
        leaf: leaf of the upload, once there is one.
        shared: bool[n], the sharers it was told; none before BOXES.
        shares: what it holds of its neighbours, 64 bytes by number.
        beacons: observed so far.
        vector: the vector to be uploaded; None afterwards, or if it was not loaded.
        agreed: what the vector was computed from; None if nothing is stated, or not known yet.
    """

    awaits: Kind
    secrets: tuple[bytes, ...]
    told: Mapping[Kind, bytes]
    leaf: bytes
    shared: BoolArray
    shares: Mapping[int, bytes]
    beacons: Mapping[int, bytes]
    vector: EncodedVector | None
    agreed: Agreed | None

    def beacons_with(self, observed: Mapping[int, bytes]) -> dict[int, bytes]:
        """The beacons, and those that were observed since.

        Raises:
            ProtocolError: two values of an epoch differ.
        """
        for epoch, value in self.beacons.items():
            if observed.get(epoch, value) != value:
                raise RefusalError(f"the beacon of epoch {epoch} is not that of the saved state")
        return {**self.beacons, **observed}

    def encode(self) -> bytes:
        """The layout of the module's description."""
        parts = [bytes([self.awaits]), *self.secrets]
        parts += [_sized(self.told.get(kind, b"")) for kind in _TOLD]
        parts += [self.leaf or bytes(32), len(self.shared).to_bytes(4, "little")]
        parts += [encode_marks(self.shared), len(self.shares).to_bytes(4, "little")]
        parts += [n.to_bytes(4, "little") + both for n, both in sorted(self.shares.items())]
        parts.append(len(self.beacons).to_bytes(4, "little"))
        parts += [epoch.to_bytes(8, "little") + value for epoch, value in self.beacons.items()]
        parts += self.agreed or (bytes(32), bytes(32))
        if self.vector is None:
            parts.append(bytes(44))
        else:
            vector = self.vector
            sizes = vector.bits, vector.clients
            parts += [struct.pack("<II", *sizes), vector.layout_hash]
            parts.append(len(vector.words).to_bytes(4, "little") + pack(vector.words, vector.bits))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "SavedState":
        """Inverse of ``encode``.

        Raises:
            ProtocolError: anything else.
        """
        with Reader(data, "saved state") as reader:
            awaits = reader.number(1)
            if awaits not in AWAITED:
                raise ProtocolError("saved state: awaits no message of a round in progress")
            secrets = tuple(reader.take(32) for _ in range(4))
            told = {kind: reader.take(reader.number(4)) for kind in _TOLD}
            leaf, shared = reader.take(32), reader.marks(reader.number(4))
            shares = reader.records(64)
            beacons = {reader.number(8): reader.take(32) for _ in range(reader.number(4))}
            agreed = Agreed(reader.take(32), reader.take(32))
            bits, clients, layout = reader.number(4), reader.number(4), reader.take(32)
            length, vector = reader.number(4), None
            if length:
                if not 1 <= bits <= 64:
                    raise ProtocolError("saved state: unknown ring")
                words = unpack(reader.take(packed_size(length, bits)), length, bits).copy()
                vector = EncodedVector(words=words, bits=bits, layout_hash=layout, clients=clients)
        return cls(
            awaits=Kind(awaits),
            secrets=secrets,
            told={kind: message for kind, message in told.items() if message},
            leaf=leaf,
            shared=shared,
            shares=shares,
            beacons=beacons,
            vector=vector,
            agreed=agreed if any(agreed.digest) else None,
        )


def park(path: Path, state: SavedState, *, key: bytes, round_id: bytes, journal: Journal) -> None:
    """Record a state's ticket, then write it.

    Args:
        path: path of the file.
        state: the state.
        key: 32 bytes of the client's own, from a key store apart from the file.
        round_id: of the round in progress.
        journal: the client's.

    Raises:
        ConfigError: the key has another size.
        ProtocolError: the round is over for the journal, or something was revealed in it.
        CheckpointError, OSError: journal or file cannot be written; what was written cannot be
            used.
    """
    head = _HEAD.pack(_MAGIC, _VERSION, round_id, fresh_key())
    sealed = head + seal_box(_box_key(key, head), state.encode(), head)
    journal.park(round_id, sha256(sealed).digest())
    try:
        replace_file(path, sealed, private=True, durable=True)
    except BaseException:
        # The half in memory continues, so a file already written is invalidated.
        journal.park(round_id, b"")
        raise


class Parked:
    """A state in its file, opened and not yet redeemed: no message of it may be sent.

    Args:
        path: path of the file.
        key: what sealed it.
        journal: the client's.
        owner: number of the client.

    Raises:
        ConfigError: the file cannot be read or erased, or others may read it, or the key has
            another size.
        ProtocolError: it is malformed or sealed under another key; or the journal has no ticket
            for it (a copy, or an old state), or is another client's. Nothing has changed.
    """

    def __init__(self, path: Path, *, key: bytes, journal: Journal, owner: int) -> None:
        sealed = read_private(path, _FILE_KEY)
        if len(sealed) < _HEAD.size:
            raise ProtocolError(f"{path}: no saved state of a client")
        head, box = sealed[: _HEAD.size], sealed[_HEAD.size :]
        magic, version, round_id, _ = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise ProtocolError(f"{path}: no saved state of version {_VERSION}")
        try:
            self.state = SavedState.decode(open_box(_box_key(key, head), box, head))
        except ProtocolError as damage:
            raise ProtocolError(f"{path}: not a state that this key sealed: {damage}") from None
        self._path, self._journal, self._owner = path.resolve(), journal, owner
        self._ticket = round_id, sha256(sealed).digest()
        journal.require_ticket(*self._ticket, owner=owner)
        effective = os.access in os.supports_effective_ids
        if not os.access(self._path.parent, os.W_OK | os.X_OK, effective_ids=effective):
            raise ConfigError(_FILE_KEY, str(path), "cannot be erased: its folder is read-only")

    def redeem(self) -> None:
        """Strike the ticket, then erase the file; in another order a state could be used twice.

        Raises:
            ConfigError: the file cannot be erased; the state is of no more use.
            ProtocolError: the ticket has been struck meanwhile.
            CheckpointError: the journal cannot be written; nothing has changed.
        """
        self._journal.redeem(*self._ticket, owner=self._owner)
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            problem = f"was taken up and cannot be erased: {error.strerror}"
            raise ConfigError(_FILE_KEY, str(self._path), problem) from None


def _box_key(key: bytes, head: bytes) -> bytes:
    if len(key) != 32:
        raise ConfigError("masking.state_key", f"({len(key)} bytes)", "must have 32 bytes")
    return HKDF(algorithm=SHA256(), length=32, salt=head, info=_INFO).derive(key)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data
