"""R0 to R2, setup, keys and shares: encoding and strict decoding (R3 to R6: ``messages_sum``).

The table gives head | payload of each; sizes in bytes, n clients in the cohort, k neighbours.

    SETUP      configuration | u64 epoch | u32 roster version | 32 channel key | u32 n | n x u32
    ADVERTISE  u64 epoch | u64 generation of the journal | 32 mask key | 32 channel key
               [| 1216 mask KEM | 1216 channel KEM]
    KEYS       n/8 who advertised | 32 beacon
               | payload: records (its ADVERTISE head | 64 signature)
    SHARES     32 commitment | records (box | 2 x 32 share hashes)
               [| 1168 sealed pair secret, 32 its hash, for each listed client of a higher number]
    BOXES      n/8 who shared | payload: records (box | 2 x 32 share hashes)
               [| 1168 sealed pair secret, 32 its hash, from each listed client of a lower number]

Records stand behind a u32 count, each after the u32 number of its client, numbers ascending. A box
is 64 + 16 bytes (share of the mask seed, share of the self-mask seed, tag); with the hybrid
key agreement 1168 bytes of sealed channel secret stand before it. Associated data of a box: the
header and round of its SHARES | u32 receiver | 2 x 32 share hashes [| SHA-256 of the sealed pair
secret, if one goes to the receiver].
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.agreed.config import MaskingConfig
from secure_fedrec.protection.masking.agreed.formats import (
    SERVER,
    SIGNATURE_BYTES,
    Context,
    encode_ids,
    labelled_hash,
)
from secure_fedrec.protection.masking.round.hybrid import (
    PAIR_SEAL_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
)
from secure_fedrec.protection.masking.round.keys import TAG_BYTES
from secure_fedrec.protection.masking.round.shamir import (
    ELEMENT_BYTES,
    decode_element,
    encode_element,
)

_HASH = 32
_BOX = 2 * ELEMENT_BYTES + TAG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """R0: what the round is about."""

    config: MaskingConfig
    epoch: int
    roster_version: int
    channel_public: bytes
    cohort: IntArray

    def head(self) -> bytes:
        """Encode the head."""
        return b"".join(
            (
                self.config.encode(),
                self.epoch.to_bytes(8, "little"),
                self.roster_version.to_bytes(4, "little"),
                self.channel_public,
                len(self.cohort).to_bytes(4, "little"),
                encode_ids(self.cohort),
            )
        )

    @classmethod
    def decode(cls, head: bytes) -> "Setup":
        """Decode a head."""
        with Reader(head, "SETUP") as reader:
            config = MaskingConfig.decode(reader.take(MaskingConfig.encoded_size()))
            epoch, version, channel = reader.number(8), reader.number(4), reader.take(_HASH)
            cohort = reader.ids(reader.number(4))
        if len(cohort) != config.clients:
            raise ProtocolError(f"SETUP: {len(cohort)} clients, configured {config.clients}")
        return cls(
            config=config,
            epoch=epoch,
            roster_version=version,
            channel_public=channel,
            cohort=cohort,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertisement:
    """R1: a client's public keys; the KEM keys are empty without the hybrid agreement.

    ``generation`` counts the rounds that the client's journal has begun, this one included.
    """

    epoch: int
    generation: int
    mask_public: bytes
    channel_public: bytes
    mask_kem: bytes = b""
    channel_kem: bytes = b""

    def head(self) -> bytes:
        """Encode the head."""
        keys = self.mask_public + self.channel_public + self.mask_kem + self.channel_kem
        numbers = self.epoch.to_bytes(8, "little") + self.generation.to_bytes(8, "little")
        return numbers + keys

    @staticmethod
    def size(config: MaskingConfig) -> int:
        """Bytes of the head."""
        return 16 + 2 * _HASH + (2 * PUBLIC_BYTES if config.hybrid else 0)

    @classmethod
    def decode(cls, head: bytes, config: MaskingConfig) -> "Advertisement":
        """Decode a head; public keys must be reduced, so that equal keys have equal bytes."""
        with Reader(head, "ADVERTISE") as reader:
            epoch, generation = reader.number(8), reader.number(8)
            mask, channel = reader.take(_HASH), reader.take(_HASH)
            kem = PUBLIC_BYTES if config.hybrid else 0
            mask_kem, channel_kem = reader.take(kem), reader.take(kem)
        for key in (mask, channel):
            decode_element(key)
        return cls(
            epoch=epoch,
            generation=generation,
            mask_public=mask,
            channel_public=channel,
            mask_kem=mask_kem,
            channel_kem=channel_kem,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """R1 to a client: who advertised, and its neighbours' signed heads.

    Args:
        advertised: bool[n].
        beacon: public randomness of the epoch; zeros on the complete graph.
        records: head and signature of each neighbour that advertised, by number.
    """

    advertised: BoolArray
    beacon: bytes
    records: Mapping[int, bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return encode_marks(self.advertised) + self.beacon

    def payload(self) -> bytes:
        """Encode the payload."""
        return encode_records(self.records)

    @classmethod
    def decode(cls, head: bytes, payload: memoryview, config: MaskingConfig) -> "Keys":
        """Decode head and payload."""
        with Reader(head, "KEYS") as reader:
            advertised, beacon = reader.marks(config.clients), reader.take(_HASH)
        with Reader(payload, "KEYS") as reader:
            records = reader.records(Advertisement.size(config) + SIGNATURE_BYTES)
        return cls(advertised=advertised, beacon=beacon, records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRecord:
    """What one client sends to one neighbour, beside the pair seal.

    Args:
        channel_seal: sealed channel secret; empty without the hybrid agreement.
        box: encrypted share of the mask seed and share of the self-mask seed.
        mask_hash: hash of the first.
        self_hash: hash of the second.
    """

    channel_seal: bytes
    box: bytes
    mask_hash: bytes
    self_hash: bytes

    @staticmethod
    def size(config: MaskingConfig) -> int:
        """Bytes of a record."""
        return _BOX + 2 * _HASH + (SEALED_BYTES if config.hybrid else 0)

    def encode(self) -> bytes:
        """Encode the record."""
        return self.channel_seal + self.box + self.mask_hash + self.self_hash

    @classmethod
    def decode(cls, record: bytes) -> "ShareRecord":
        """Decode a record of the right size."""
        seal = len(record) - _BOX - 2 * _HASH
        return cls(
            channel_seal=record[:seal],
            box=record[seal : seal + _BOX],
            mask_hash=record[-2 * _HASH : -_HASH],
            self_hash=record[-_HASH:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """R2: commitment to the self-mask seed, a record per neighbour, a seal per higher neighbour."""

    commitment: bytes
    records: Mapping[int, bytes]
    seals: Mapping[int, bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return self.commitment + encode_records(self.records) + b"".join(self.seals.values())

    @classmethod
    def decode(cls, head: bytes, sender: int, config: MaskingConfig) -> "Shares":
        """Decode a head."""
        with Reader(head, "SHARES") as reader:
            commitment = reader.take(_HASH)
            records = reader.records(ShareRecord.size(config))
            sealed = [client for client in records if client > sender] if config.hybrid else []
            seals = {client: reader.take(PAIR_SEAL_BYTES) for client in sealed}
        return cls(commitment=commitment, records=records, seals=seals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """R2 to a client: who shared (bool[n]), and what its neighbours sent it."""

    shared: BoolArray
    records: Mapping[int, bytes]
    seals: Mapping[int, bytes]

    def head(self) -> bytes:
        """Encode the head."""
        return encode_marks(self.shared)

    def payload(self) -> bytes:
        """Encode the payload."""
        return encode_records(self.records) + b"".join(self.seals.values())

    @classmethod
    def decode(
        cls, head: bytes, payload: memoryview, receiver: int, config: MaskingConfig
    ) -> "Boxes":
        """Decode head and payload."""
        with Reader(head, "BOXES") as reader:
            shared = reader.marks(config.clients)
        with Reader(payload, "BOXES") as reader:
            records = reader.records(ShareRecord.size(config))
            sealed = [client for client in records if client < receiver] if config.hybrid else []
            seals = {client: reader.take(PAIR_SEAL_BYTES) for client in sealed}
        return cls(shared=shared, records=records, seals=seals)


def share_hash(context: Context, purpose: str, sender: int, receiver: int, share: bytes) -> bytes:
    """Hash by which a sharer is bound to a share; the share's 255 bits of entropy hide it."""
    ends = sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")
    return labelled_hash(f"share-{purpose}", context.round_id, ends, share)


def commitment_to(context: Context, owner: int, element: int) -> bytes:
    """Hash by which a client is bound to its self-mask seed."""
    return labelled_hash(
        "self-mask", context.round_id, owner.to_bytes(4, "little"), encode_element(element)
    )


def encode_marks(marks: BoolArray) -> bytes:
    """A bitmap over the cohort, least significant bit first, padded with zeros."""
    return np.packbits(marks, bitorder="little").tobytes()


def encode_records(records: Mapping[int, bytes]) -> bytes:
    """A count, and each record behind its client's number (``Reader.records``).

    Args:
        records: by client.

    Raises:
        ValueError: they are not all of one size, which a reader could not tell.
    """
    sizes = set(map(len, records.values())) or {0}
    if len(sizes) > 1:
        raise ValueError(f"records of {sorted(sizes)} bytes in one list")
    layout = "<I" + f"I{sizes.pop()}s" * len(records)
    return struct.pack(layout, len(records), *chain.from_iterable(records.items()))


class Reader:
    """Reads a fixed layout from front to back, all of it, and refuses what does not fit it."""

    __slots__ = ("_at", "_data", "_name")

    def __init__(self, data: bytes | memoryview, name: str) -> None:
        self._data = memoryview(data)
        self._name = name
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError(f"{self._name}: truncated")
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def number(self, size: int) -> int:
        """An unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def ids(self, count: int) -> IntArray:
        """Client numbers, strictly ascending, none of them the server's."""
        ids = np.frombuffer(self.take(4 * count), dtype="<u4").astype(np.int64)
        if count and ((ids[1:] <= ids[:-1]).any() or ids[-1] == SERVER):
            raise ProtocolError(f"{self._name}: client numbers must ascend")
        return ids

    def records(self, size: int) -> dict[int, bytes]:
        """A count, and so many records of ``size`` bytes, each behind its client's number."""
        block = self.take(self.number(4) * (4 + size))
        numbered = list(struct.iter_unpack(f"<I{size}s", block))
        records = dict(numbered)
        # Repeated numbers are fewer records, and others must be in order.
        if len(records) != len(numbered) or list(records) != sorted(records) or SERVER in records:
            raise ProtocolError(f"{self._name}: client numbers must ascend")
        return records

    def marks(self, count: int) -> BoolArray:
        """A bitmap of ``count`` bits with zero padding."""
        raw = np.frombuffer(self.take((count + 7) // 8), dtype=np.uint8)
        bits = np.unpackbits(raw, bitorder="little").astype(np.bool_)
        if bits[count:].any():
            raise ProtocolError(f"{self._name}: the padding of a bitmap must be zero")
        return bits[:count]

    def rest(self) -> memoryview:
        """All that is left."""
        rest, self._at = self._data[self._at :], len(self._data)
        return rest

    def finish(self) -> None:
        """Check that nothing is left."""
        left = len(self._data) - self._at
        if left:
            raise ProtocolError(f"{self._name}: {left} bytes too many")
