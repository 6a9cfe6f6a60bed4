"""The masking protocol itself as the way a round's uploads are hidden: for small cohorts.

Every client of the round gets an identity, the roster is the cohort, and all bytes of the two
halves of ``masking`` go over the run's wire: what is lost, late, repeated or altered there is so
for the protocol. The server's view shows the masked vectors as they arrived.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.core.packing import packed_size, unpack
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.hidden_sums.dense import (
    DenseLayout,
    DenseWords,
    require_plain_sum,
    show_uploads,
)
from secure_fedrec.protection.masking import (
    EncodedVector,
    Expected,
    Federation,
    Kind,
    MaskingClient,
    MaskingConfig,
    SitePolicy,
    run_round,
)
from secure_fedrec.protection.session import OverWire
from secure_fedrec.wire import Step, Wire

__all__ = ["MaskedRounds", "layout_hash", "round_config"]

_UPLOAD = Kind.UPLOAD.name


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


class MaskedRounds:
    """One federation of a round's clients, for all sums that the round takes.

    Args:
        clients: int64[n], ascending.
        round_: of the run.
        wire: carries what the halves send.
        codec: the ring.
        policy: the conditions of every client.
    """

    def __init__(
        self, clients: IntArray, *, round_: int, wire: Wire, codec: FixedPoint, policy: SitePolicy
    ) -> None:
        self._clients = clients
        self._round = round_
        self._wire = wire
        self._codec = codec
        self._federation = Federation(clients.tolist(), policy=policy)
        self.halves: dict[int, MaskingClient] = {}
        self.packed = b""

    def encode(
        self, parts: Sequence[DenseWords], config: MaskingConfig
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
        step: Step,
        parts: Sequence[DenseWords],
        vectors: Mapping[int, EncodedVector],
        *,
        config: MaskingConfig,
        expected: Mapping[int, Expected] | Expected,
        shift: int = 0,
    ) -> RingArray:
        """Run one round; ring words of the sum, [length].

        Args:
            step: what the uploads are for.
            parts: the clients' words.
            vectors: what each client uploads: its words, in the protocol's order.
            config: the protocol's settings.
            expected: what the clients must insist on, of each or of all.
            shift: places by which words of the protocol come before those of ``parts``.

        Raises:
            ProtocolError: the round aborted, or a client is not in the sum.
            LosslessnessError: the sum is not that of the clients' words.
        """
        layout = parts[0].layout
        rows = {_UPLOAD: lambda sizes: np.full_like(sizes, len(layout.items))}
        line = OverWire(self._wire, round_=self._round, steps={_UPLOAD: step}, rows=rows)
        server = self._federation.open_server(config, self._clients)
        self.halves = {
            number: self._federation.open_client(
                number, expected if isinstance(expected, Expected) else expected[number]
            )
            for number in vectors
        }
        try:
            outcome = run_round(server, self.halves, vectors, carrier=line)
        except ProtocolError as error:
            raise ProtocolError(f"round {self._round}: {error}") from None
        self._require_everybody(outcome.survivors)
        total: RingArray = np.roll(outcome.words, -shift)
        require_plain_sum(total, parts, self._codec, "the masking protocol's sum")
        self.packed = server.packed_result
        size, bits = packed_size(layout.length, self._codec.bits), self._codec.bits
        show_uploads(
            self._wire,
            line.delivered[_UPLOAD],
            lambda data: np.roll(unpack(data[-size:], layout.length, bits), -shift),
            round_=self._round,
            step=step,
            layout=layout,
            codec=self._codec,
        )
        return total

    def _require_everybody(self, survivors: IntArray) -> None:
        """Check that nobody is left out of what the whole round is trained on."""
        missing = np.setdiff1d(self._clients, survivors)
        if len(missing):
            raise ProtocolError(
                f"round {self._round}: the sum is without {len(missing)} clients, the first is "
                f"client {missing[0]}; the round is abandoned"
            )


def layout_hash(layout: DenseLayout, codec: FixedPoint) -> bytes:
    """Identity of a dense layout in a ring."""
    head = struct.pack("<HHI", codec.bits, codec.fraction_bits, layout.width)
    return sha256(b"secure-fedrec|v1|hidden-sum|" + head + layout.items.tobytes()).digest()
