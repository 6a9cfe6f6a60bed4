"""Bytes of every message of a masked sum, in the largest case.

The figures are those of the wire format, for a round in which all clients answer. Two counts differ
between clients and are taken at their largest: the seals of the hybrid key agreement (a client
seals to its higher neighbours and opens those of the lower ones), and inclusion paths, which are
shorter for some leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secure_fedrec.fixedpoint import packed_size
from secure_fedrec.protection.masking.config.round_settings import ENCODED_BYTES, MaskingConfig
from secure_fedrec.protection.masking.envelope import SIGNATURE_BYTES, Context, Envelope, Kind
from secure_fedrec.protection.masking.messages.hybrid import PAIR_SEAL_BYTES
from secure_fedrec.protection.masking.messages.key_messages import Advertisement, ShareRecord
from secure_fedrec.protection.masking.messages.keys import TAG_BYTES
from secure_fedrec.protection.masking.messages.shamir import ELEMENT_BYTES

_HASH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSize:
    """One message that each client sends or receives once a round.

    Args:
        step: "R0" to "R6".
        kind: its name on the wire.
        direction: "up" to the server, "down" to the client.
        size: bytes.
        contents: what makes up the size.
    """

    step: str
    kind: str
    direction: Literal["up", "down"]
    size: int
    contents: str


def message_sizes(config: MaskingConfig) -> tuple[MessageSize, ...]:
    """The messages between one client and the server, in the order of the round.

    A curious server asks for no signatures on the survivors.
    """
    no_hash = bytes(_HASH)
    context = Context(
        round_id=bytes(16), config_hash=no_hash, roster_hash=no_hash, cohort_hash=no_hash
    )
    bodies = _bodies(config)
    return tuple(
        MessageSize(
            step=step,
            kind=kind.name,
            direction=direction,
            size=_envelope(context, kind) + bodies[kind],
            contents=contents,
        )
        for step, kind, direction, contents in _ROUND
        if config.agrees or kind not in (Kind.CONFIRM, Kind.QUORUM)
    )


def _envelope(context: Context, kind: Kind) -> int:
    """Bytes of header and proof: a signature, or a MAC if only the server checks it."""
    header = context.prefix(kind, 0, b"")
    return len(header) + len(Envelope.decode(header + bytes(SIGNATURE_BYTES)).proof)


def _bodies(config: MaskingConfig) -> Mapping[Kind, int]:
    """Bytes of head and payload of every message, as ``messages`` and ``messages_sum`` lay out."""
    clients, number, marks = config.clients, 4, (config.clients + 7) // 8
    keys, shares = Advertisement.size(config), ShareRecord.size(config)
    seals = config.neighbours * PAIR_SEAL_BYTES if config.hybrid else 0
    # Earlier messages: four of each client and four of the server; if survivors are signed, also
    # CONFIRM of each signer, and QUORUM.
    leaves = 4 * clients + 4 + ((config.committee or clients) + 1 if config.agrees else 0)

    def records(size: int, count: int = config.neighbours) -> int:
        return number + count * (number + size)

    setup = ENCODED_BYTES + 2 * number  # the epoch has two words
    return {
        Kind.SETUP: setup + number + _HASH + number + clients * number,
        Kind.ADVERTISE: keys,
        Kind.KEYS: marks + _HASH + records(keys + SIGNATURE_BYTES),
        Kind.SHARES: _HASH + records(shares) + seals,
        Kind.BOXES: marks + records(shares) + seals,
        Kind.UPLOAD: 2 * _HASH + SIGNATURE_BYTES + number + packed_size(config.length, config.bits),
        Kind.SURVIVORS: marks + _HASH + records(SIGNATURE_BYTES) + _path(clients),
        Kind.CONFIRM: _HASH,
        Kind.QUORUM: records(SIGNATURE_BYTES, config.quorum),
        Kind.REVEAL: ELEMENT_BYTES + records(ELEMENT_BYTES) + TAG_BYTES,
        Kind.RESULT: 2 * _HASH + 2 * number + _path(leaves),
    }


def _path(leaves: int) -> int:
    """Bytes of the longest inclusion path."""
    return _HASH * (leaves - 1).bit_length()


_Row = tuple[str, Kind, Literal["up", "down"], str]
_ROUND: tuple[_Row, ...] = (
    ("R0", Kind.SETUP, "down", "configuration, cohort list"),
    ("R1", Kind.ADVERTISE, "up", "public keys of the round"),
    ("R1", Kind.KEYS, "down", "k neighbours' signed keys, beacon"),
    ("R2", Kind.SHARES, "up", "k encrypted pairs of shares with their hashes"),
    ("R2", Kind.BOXES, "down", "k neighbours' shares, who shared"),
    ("R3", Kind.UPLOAD, "up", "masked vector of d words of b bits"),
    ("R4", Kind.SURVIVORS, "down", "survivors, k neighbours' signatures, path"),
    ("R4", Kind.CONFIRM, "up", "signature on the survivors, of each signer"),
    ("R4", Kind.QUORUM, "down", "quorum of signatures"),
    ("R5", Kind.REVEAL, "up", "own self-mask seed, one share per neighbour"),
    ("R6", Kind.RESULT, "down", "digest of the sum, transcript root, receipt"),
)
