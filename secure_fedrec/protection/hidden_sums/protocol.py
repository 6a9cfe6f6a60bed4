"""The masking protocol itself as the way a round's uploads are hidden: for small cohorts.

Every client of the round gets an identity, the roster is the cohort, and all bytes pass through the
two halves of ``masking``. What the server is sent, masked vectors included, is kept for its view.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from secure_fedrec.arrays import RingArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.hidden_sums.dense import DenseLayout, DenseWords
from secure_fedrec.protection.masking import (
    EncodedVector,
    Expected,
    Federation,
    Kind,
    MaskingConfig,
    MaskingServer,
    SitePolicy,
    run_round,
)
from secure_fedrec.protection.masking.packing import packed_size, unpack

__all__ = ["ProtocolMasks", "run_protocol"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProtocolMasks:
    """A finished round of the protocol, as a way of hiding.

    Args:
        masked: client number -> [length] masked words, as the server was sent them.
        total: [length] words of the sum.
        size: mean bytes that a client sent, all messages of the round together.
    """

    masked: Mapping[int, RingArray]
    total: RingArray
    size: int

    def hide(self, part: DenseWords) -> RingArray:
        """What the clients sent."""
        return np.stack([self.masked[number] for number in part.clients.tolist()])

    def open(self, total: RingArray) -> RingArray:
        """The protocol's result: its masks cancel in part, the others are restored from shares."""
        del total
        return self.total


def run_protocol(
    parts: Iterable[DenseWords],
    *,
    layout: DenseLayout,
    codec: FixedPoint,
    policy: SitePolicy,
    roster: int,
) -> ProtocolMasks:
    """Run one round and compare its result with the plain sum of the words.

    Args:
        parts: the clients' words.
        layout: what they stand for.
        codec: the ring.
        policy: the conditions of every client.
        roster: clients from which the round's were drawn; the share of corrupt ones is theirs.

    Raises:
        ConfigError: no safe parameters for so few clients.
        ProtocolError: the round aborted.
        LosslessnessError: the protocol's sum differs from the plain one.
    """
    vectors: dict[int, RingArray] = {}
    for part in parts:
        vectors.update(zip(part.clients.tolist(), part.words, strict=True))
    clients = np.array(sorted(vectors), dtype=np.int64)
    layout_hash = _layout_hash(layout, codec)
    config = MaskingConfig.for_cohort(
        len(clients),
        bits=codec.bits,
        length=layout.length,
        layout_hash=layout_hash,
        corrupt=policy.corrupt,
        dropout=policy.dropout,
        adversary=policy.adversary,
        roster=roster if roster > len(clients) else None,
    )
    least = max(config.min_survivors, policy.min_survivors)
    config = replace(config, min_survivors=least)
    federation = Federation(clients.tolist(), policy=policy)
    server = _Recording(
        identity=federation.server,
        roster=federation.roster,
        config=config,
        cohort=clients,
        round_number=1,
    )
    expected = Expected(layout_hash=layout_hash, public_state=config.public_state)
    outcome = run_round(
        server,
        {number: federation.open_client(number, expected) for number in vectors},
        {
            number: EncodedVector(
                words=words, bits=codec.bits, layout_hash=layout_hash, clients=len(clients)
            )
            for number, words in vectors.items()
        },
    )
    plain: RingArray = np.stack(list(vectors.values())).sum(axis=0, dtype=codec.dtype)
    if not np.array_equal(outcome.words, codec.reduce(plain)):
        raise LosslessnessError("the masking protocol's sum differs from the plain sum")
    return ProtocolMasks(
        masked=server.masked(layout.length, codec.bits),
        total=outcome.words,
        size=outcome.sent // len(clients),
    )


class _Recording(MaskingServer):
    """A server half that keeps the masked vectors it is sent."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._seen: dict[int, bytes] = {}

    def receive(self, message: bytes) -> None:
        """Keep an upload as it came, then do what the server does."""
        if Kind(message[1]) is Kind.UPLOAD:
            (sender,) = struct.unpack_from("<I", message, 2)
            self._seen[sender] = message
        super().receive(message)

    def masked(self, length: int, bits: int) -> dict[int, RingArray]:
        """Masked words by sender: the payload at the end of each upload."""
        size = packed_size(length, bits)
        return {
            number: unpack(message[-size:], length, bits) for number, message in self._seen.items()
        }


def _layout_hash(layout: DenseLayout, codec: FixedPoint) -> bytes:
    head = struct.pack("<HHI", codec.bits, codec.fraction_bits, layout.width)
    return sha256(b"secure-fedrec|v1|hidden-sum|" + head + layout.items.tobytes()).digest()
