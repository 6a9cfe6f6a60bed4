"""R0 to R2, setup, keys and shares: encoding and strict decoding (R3 to R6: ``messages_sum``).

The table gives head | payload of each; sizes in bytes, n clients in the cohort, k neighbours.

    SETUP      configuration | u64 epoch | u32 roster version | 32 channel key | u32 n | n x u32
    ADVERTISE  u64 epoch | u64 generation of the journal | 32 mask key | 32 channel key
               [| 1216 mask KEM | 1216 channel KEM]
    KEYS       n/8 advertisers | 32 beacon
               | payload: records (its ADVERTISE head | 64 signature)
    SHARES     32 commitment | records (box | 2 x 32 share hashes)
               [| 1168 sealed pair secret, 32 its hash, for each listed client of a higher number]
    BOXES      n/8 sharers | payload: records (box | 2 x 32 share hashes)
               [| 1168 sealed pair secret, 32 its hash, from each listed client of a lower number]

Records stand behind a u32 count, each after the u32 number of its client, numbers ascending. A box
is 64 + 16 bytes (share of the mask seed, share of the self-mask seed, tag); with the hybrid
key agreement 1168 bytes of sealed channel secret stand before it. Associated data of a box: the
header and round of its SHARES | u32 receiver | 2 x 32 share hashes [| SHA-256 of the sealed pair
secret, if one goes to the receiver].
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.config.round_settings import ENCODED_BYTES, MaskingConfig
from secure_fedrec.protection.masking.envelope import SIGNATURE_BYTES, Context, encode_ids
from secure_fedrec.protection.masking.messages.hybrid import (
    PAIR_SEAL_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
)
from secure_fedrec.protection.masking.messages.keys import TAG_BYTES
from secure_fedrec.protection.masking.messages.shamir import (
    ELEMENT_BYTES,
    encode_element,
    require_elements,
)
from secure_fedrec.protection.session.reader import (
    encode_marks,
    encode_records,
    first_records,
    read_listed,
    read_marks,
    read_records,
)
from secure_fedrec.protection.session.statement import labelled_hash

_HASH = 32


_BOX = 2 * ELEMENT_BYTES + TAG_BYTES
_SETUP = struct.Struct(f"<{ENCODED_BYTES}sQI{_HASH}sI")
_ADVERTISED = {
    hybrid: struct.Struct(f"<QQ{_HASH}s{_HASH}s{kem}s{kem}s")
    for hybrid, kem in ((False, 0), (True, PUBLIC_BYTES))
}
"""Layout of an advertisement, by whether the agreement is hybrid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """R0: the settings of the round."""

    config: MaskingConfig
    epoch: int
    roster_version: int
    channel_public: bytes
    cohort: IntArray

    def head(self) -> bytes:
        """Encode the head."""
        numbers = self.epoch, self.roster_version, self.channel_public, len(self.cohort)
        return _SETUP.pack(self.config.encoded, *numbers) + encode_ids(self.cohort)

    @classmethod
    def decode(cls, head: bytes, known: MaskingConfig | None = None) -> "Setup":
        """Decode a head; a configuration that is known is not made again from the same bytes."""
        encoded, epoch, version, channel, cohort = read_listed(_SETUP, head, "SETUP")
        same = known and known.encoded == encoded
        config = known if known and same else MaskingConfig.decode(encoded)
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
        return _ADVERTISED[config.hybrid].size

    @classmethod
    def decode(cls, head: bytes, config: MaskingConfig) -> "Advertisement":
        """Decode a head; public keys must be reduced, so that equal keys have equal bytes."""
        layout = _ADVERTISED[config.hybrid]
        if len(head) != layout.size:
            raise ProtocolError(f"ADVERTISE: {len(head)} bytes, not {layout.size}")
        epoch, generation, mask, channel, mask_kem, channel_kem = layout.unpack(head)
        require_elements(mask, channel)
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
    """R1 to a client: the advertisers, and its neighbours' signed heads.

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
        advertised = read_marks(head[:-_HASH], config.clients, "KEYS")
        size = Advertisement.size(config) + SIGNATURE_BYTES
        records = read_records(payload, size, "KEYS")
        return cls(advertised=advertised, beacon=head[-_HASH:], records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRecord:
    """The record that one client sends to one neighbour, beside the pair seal.

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
        records, seals = _sealed_records("SHARES", head[_HASH:], config, lambda to: to > sender)
        return cls(commitment=head[:_HASH], records=records, seals=seals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """R2 to a client: the sharers (bool[n]), and what its neighbours sent it."""

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
        shared = read_marks(head, config.clients, "BOXES")
        records, seals = _sealed_records("BOXES", payload, config, lambda by: by < receiver)
        return cls(shared=shared, records=records, seals=seals)


def _sealed_records(
    name: str, data: bytes | memoryview, config: MaskingConfig, sealed: Callable[[int], bool]
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Records of shares, and behind them a sealed pair secret of some of their clients."""
    records, rest = first_records(data, ShareRecord.size(config), name)
    clients = list(filter(sealed, records)) if config.hybrid else []
    if len(rest) != len(clients) * PAIR_SEAL_BYTES:
        raise ProtocolError(f"{name}: {len(rest)} bytes for the seals of {len(clients)} clients")
    chunks = (bytes(each) for (each,) in struct.iter_unpack(f"{PAIR_SEAL_BYTES}s", rest))
    return records, dict(zip(clients, chunks, strict=True))


def share_hash(context: Context, purpose: str, sender: int, receiver: int, share: bytes) -> bytes:
    """Hash by which a sharer is bound to a share; the share's 255 bits of entropy hide it."""
    ends = sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")
    return labelled_hash(f"share-{purpose}", context.round_id, ends, share)


def share_hashes(
    context: Context, sender: int, receiver: int, mask_share: bytes, self_share: bytes
) -> tuple[bytes, bytes]:
    """Both hashes of the shares that a client sends to a neighbour."""
    return (
        share_hash(context, "mask", sender, receiver, mask_share),
        share_hash(context, "self", sender, receiver, self_share),
    )


def commitment_to(context: Context, owner: int, element: int) -> bytes:
    """Hash by which a client is bound to its self-mask seed."""
    return labelled_hash(
        "self-mask", context.round_id, owner.to_bytes(4, "little"), encode_element(element)
    )
