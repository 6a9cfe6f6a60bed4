"""Bytes of every message of a masked sum, in the largest case.

Each message is built for a round in which everybody answers and measured, so the figures are those
of the wire format. Two counts differ between clients and are taken at their largest: the seals of
the hybrid key agreement (a client seals to its higher neighbours and opens those of the lower
ones), and inclusion paths, which are shorter for some leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secure_fedrec.core.packing import packed_size
from secure_fedrec.protection.masking.agreed.config import MaskingConfig
from secure_fedrec.protection.masking.agreed.formats import SIGNATURE_BYTES, Context, Envelope, Kind
from secure_fedrec.protection.masking.round.hybrid import PAIR_SEAL_BYTES
from secure_fedrec.protection.masking.round.keys import TAG_BYTES
from secure_fedrec.protection.masking.round.messages import (
    Advertisement,
    Boxes,
    Keys,
    Setup,
    ShareRecord,
    Shares,
)
from secure_fedrec.protection.masking.round.messages_sum import (
    Quorum,
    Result,
    Reveal,
    Survivors,
    Upload,
)
from secure_fedrec.protection.masking.round.shamir import ELEMENT_BYTES

__all__ = ["MessageSize", "message_sizes"]

_HASH = bytes(32)


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
    """The messages between one client and the server, in the order of the round."""
    context = Context(round_id=bytes(16), config_hash=_HASH, roster_hash=_HASH, cohort_hash=_HASH)
    return tuple(
        MessageSize(
            step=step,
            kind=kind.name,
            direction=direction,
            size=_envelope(context, kind) + build(config),
            contents=contents,
        )
        for step, kind, direction, build, contents in _ROUND
    )


def _envelope(context: Context, kind: Kind) -> int:
    """Bytes of header and proof: a signature, or a MAC where the server alone is concerned."""
    header = context.prefix(kind, 0, b"")
    return len(header) + len(Envelope.decode(header + bytes(SIGNATURE_BYTES)).proof)


def _setup(config: MaskingConfig) -> int:
    setup = Setup(
        config=config,
        epoch=0,
        roster_version=0,
        channel_public=_HASH,
        cohort=np.arange(config.clients, dtype=np.int64),
    )
    return len(setup.head())


def _keys(config: MaskingConfig) -> int:
    record = Advertisement.size(config) + SIGNATURE_BYTES
    keys = Keys(advertised=_marks(config), beacon=_HASH, records=_records(config, record))
    return len(keys.head()) + len(keys.payload())


def _shares(config: MaskingConfig) -> int:
    shares = Shares(
        commitment=_HASH, records=_records(config, ShareRecord.size(config)), seals=_seals(config)
    )
    return len(shares.head())


def _boxes(config: MaskingConfig) -> int:
    boxes = Boxes(
        shared=_marks(config),
        records=_records(config, ShareRecord.size(config)),
        seals=_seals(config),
    )
    return len(boxes.head()) + len(boxes.payload())


def _upload(config: MaskingConfig) -> int:
    upload = Upload(
        shared_hash=_HASH,
        shared_signature=bytes(SIGNATURE_BYTES),
        digest=_HASH,
        disputed=np.empty(0, dtype=np.int64),
    )
    return len(upload.head()) + packed_size(config.length, config.bits)


def _survivors(config: MaskingConfig) -> int:
    survivors = Survivors(
        survivors=_marks(config),
        root=_HASH,
        shared_signatures=_records(config, SIGNATURE_BYTES),
        path=_path(config.clients),
    )
    return len(survivors.head()) + len(survivors.payload())


def _quorum(config: MaskingConfig) -> int:
    signatures = {number: bytes(SIGNATURE_BYTES) for number in range(config.quorum)}
    return len(Quorum(signatures=signatures).head())


def _reveal(config: MaskingConfig) -> int:
    reveal = Reveal(self_seed=_HASH, shares=_records(config, ELEMENT_BYTES))
    return len(reveal.encode()) + TAG_BYTES


def _result(config: MaskingConfig) -> int:
    # Leaves are the messages before: five of each client, five of the server.
    leaves = 5 * config.clients + 5
    result = Result(digest=_HASH, root=_HASH, leaves=leaves, index=0, path=_path(leaves))
    return len(result.head()) + len(result.payload())


def _marks(config: MaskingConfig) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(config.clients, dtype=np.bool_)


def _records(config: MaskingConfig, size: int) -> Mapping[int, bytes]:
    return {number: bytes(size) for number in range(config.neighbours)}


def _seals(config: MaskingConfig) -> Mapping[int, bytes]:
    return _records(config, PAIR_SEAL_BYTES) if config.hybrid else {}


def _path(leaves: int) -> list[bytes]:
    return [_HASH] * (leaves - 1).bit_length()


_Row = tuple[str, Kind, Literal["up", "down"], Callable[[MaskingConfig], int], str]
_ROUND: tuple[_Row, ...] = (
    ("R0", Kind.SETUP, "down", _setup, "configuration, cohort list"),
    ("R1", Kind.ADVERTISE, "up", Advertisement.size, "public keys of the round"),
    ("R1", Kind.KEYS, "down", _keys, "k neighbours' signed keys, beacon"),
    ("R2", Kind.SHARES, "up", _shares, "k encrypted pairs of shares with their hashes"),
    ("R2", Kind.BOXES, "down", _boxes, "k neighbours' shares, who shared"),
    ("R3", Kind.UPLOAD, "up", _upload, "masked vector of d words of b bits"),
    ("R4", Kind.SURVIVORS, "down", _survivors, "survivors, k neighbours' signatures, path"),
    ("R4", Kind.CONFIRM, "up", lambda _: len(_HASH), "signature on the survivors"),
    ("R4", Kind.QUORUM, "down", _quorum, "quorum of signatures"),
    ("R5", Kind.REVEAL, "up", _reveal, "own self-mask seed, one share per neighbour"),
    ("R6", Kind.RESULT, "down", _result, "digest of the sum, transcript root, receipt"),
)
