"""The masking protocol itself as the way a round's uploads are hidden: for small cohorts.

Every client of the round gets an identity, the roster is the cohort, and all bytes pass through the
two halves of ``masking``. What the server is sent, masked vectors included, is kept for its view.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.hidden_sums.beside import Beside
from secure_fedrec.protection.hidden_sums.dense import DenseLayout, DenseWords
from secure_fedrec.protection.masking import (
    EncodedVector,
    Expected,
    Federation,
    Kind,
    MaskingClient,
    MaskingConfig,
    MaskingServer,
    SitePolicy,
    run_round,
)
from secure_fedrec.protection.masking.round.packing import packed_size, unpack
from secure_fedrec.protection.masking.round.server_steps import Outgoing

__all__ = ["Protocol", "ProtocolMasks", "layout_hash", "round_config"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProtocolMasks:
    """A finished round of the protocol, as a way of hiding.

    Args:
        masked: client number -> [length] masked words, as the server was sent them.
        total: [length] words of the sum.
        size: bytes of an upload.
        beside: what was sent and received besides.
    """

    masked: Mapping[int, RingArray]
    total: RingArray
    size: int
    beside: Beside

    def hide(self, part: DenseWords) -> RingArray:
        """What the clients sent."""
        return np.stack([self.masked[number] for number in part.clients.tolist()])

    def open(self, total: RingArray) -> RingArray:
        """The protocol's result: its masks cancel in part, the others are restored from shares."""
        del total
        return self.total


def round_config(
    clients: int,
    *,
    length: int,
    layout_hash: bytes,
    public_state: bytes,
    codec: FixedPoint,
    policy: SitePolicy,
    roster: int,
) -> MaskingConfig:
    """The protocol's settings for one sum.

    Args:
        clients: clients of the round.
        length: ring words of a client.
        layout_hash: what they stand for.
        public_state: hash of what they are computed from.
        codec: the ring.
        policy: the conditions of every client.
        roster: clients from which the round's were drawn; the share of corrupt ones is theirs.

    Raises:
        ConfigError: no safe parameters for so few clients.
    """
    config = MaskingConfig.for_cohort(
        clients,
        bits=codec.bits,
        length=length,
        layout_hash=layout_hash,
        corrupt=policy.corrupt,
        dropout=policy.dropout,
        adversary=policy.adversary,
        roster=roster if roster > clients else None,
        public_state=public_state,
    )
    return replace(config, min_survivors=max(config.min_survivors, policy.min_survivors))


class Protocol:
    """The parties of a round: one federation of its clients, for all sums that the round takes.

    Args:
        clients: int64[n], ascending.
        codec: the ring.
        policy: the conditions of every client.
    """

    def __init__(self, clients: IntArray, *, codec: FixedPoint, policy: SitePolicy) -> None:
        self._clients = clients
        self._codec = codec
        self._federation = Federation(clients.tolist(), policy=policy)
        self.halves: dict[int, MaskingClient] = {}
        self.packed = b""

    def encode(
        self, parts: Iterable[DenseWords], config: MaskingConfig
    ) -> dict[int, EncodedVector]:
        """Dense words as vectors to be masked, by client."""
        return {
            number: EncodedVector(
                words=words,
                bits=self._codec.bits,
                layout_hash=config.layout_hash,
                clients=len(self._clients),
            )
            for part in parts
            for number, words in zip(part.clients.tolist(), part.words, strict=True)
        }

    def sum(
        self,
        parts: Iterable[DenseWords],
        vectors: Mapping[int, EncodedVector],
        *,
        config: MaskingConfig,
        expected: Mapping[int, Expected] | Expected,
        shift: int = 0,
    ) -> ProtocolMasks:
        """Run one round and compare its result with the plain sum of the words.

        Args:
            parts: the clients' words, as they would be summed without the protocol.
            vectors: what each client uploads: its words, in the protocol's order.
            config: the protocol's settings.
            expected: what the clients must insist on, of each or of all.
            shift: places by which words of the protocol come before those of ``parts``.

        Raises:
            ProtocolError: the round aborted.
            LosslessnessError: the protocol's sum differs from the plain one.
        """
        server = _Recording(
            identity=self._federation.server,
            roster=self._federation.roster,
            config=config,
            cohort=self._clients,
            round_number=self._next_round(),
            generations=self._federation.generations,
        )
        self.halves = {
            number: self._federation.open_client(
                number, expected if isinstance(expected, Expected) else expected[number]
            )
            for number in vectors
        }
        outcome = run_round(server, self.halves, vectors)
        total: RingArray = np.roll(outcome.words, -shift)
        plain: RingArray = np.concatenate([part.words for part in parts]).sum(
            axis=0, dtype=self._codec.dtype
        )
        if not np.array_equal(total, self._codec.reduce(plain)):
            raise LosslessnessError("the masking protocol's sum differs from the plain sum")
        self.packed = server.packed_result
        masked = server.masked(config.length, self._codec.bits)
        return ProtocolMasks(
            masked={number: np.roll(words, -shift) for number, words in masked.items()},
            total=total,
            size=server.upload_size,
            beside=server.beside(),
        )

    def _next_round(self) -> int:
        self._federation.rounds += 1
        return self._federation.rounds


class _Recording(MaskingServer):
    """A server half that keeps the masked vectors it is sent, and the sizes of all messages."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._seen: dict[int, bytes] = {}
        self._received: list[tuple[int, int]] = []
        self._sent: list[tuple[int, int]] = []

    @property
    def upload_size(self) -> int:
        """Bytes of an upload; all have the same."""
        (size,) = {len(message) for message in self._seen.values()}
        return size

    def start(self) -> list[Outgoing]:
        """Note what leaves."""
        return self._noted(super().start())

    def close_step(self, *, beacon: bytes | None = None) -> list[Outgoing]:
        """Note what leaves."""
        return self._noted(super().close_step(beacon=beacon))

    def receive(self, data: bytes) -> None:
        """Keep an upload as it came, note the size of anything else, then do what a server does."""
        (sender,) = struct.unpack_from("<I", data, 2)
        if Kind(data[1]) is Kind.UPLOAD:
            self._seen[sender] = data
        else:
            self._received.append((sender, len(data)))
        super().receive(data)

    def masked(self, length: int, bits: int) -> dict[int, RingArray]:
        """Masked words by sender: the payload at the end of each upload."""
        size = packed_size(length, bits)
        return {
            number: unpack(message[-size:], length, bits) for number, message in self._seen.items()
        }

    def beside(self) -> Beside:
        """All messages but uploads."""
        ups, downs = (
            np.array(noted, dtype=np.int64).reshape(-1, 2) for noted in (self._received, self._sent)
        )
        return Beside(
            senders=ups[:, 0], sent=ups[:, 1], receivers=downs[:, 0], received=downs[:, 1]
        )

    def _noted(self, outgoing: list[Outgoing]) -> list[Outgoing]:
        self._sent += [(number, len(message)) for number, message in outgoing]
        return outgoing


def layout_hash(layout: DenseLayout, codec: FixedPoint) -> bytes:
    """Identity of a dense layout in a ring."""
    head = struct.pack("<HHI", codec.bits, codec.fraction_bits, layout.width)
    return sha256(b"secure-fedrec|v1|hidden-sum|" + head + layout.items.tobytes()).digest()
