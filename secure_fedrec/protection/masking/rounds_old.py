"""The masking protocol itself as the way a round's uploads are hidden: for small cohorts.

Every client of the round gets an identity, the roster is the cohort, and all bytes of the two
halves of ``masking`` go over the run's wire: what is lost, late, repeated or altered there is so
for the protocol. The server's view shows the masked vectors as they arrived.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.core.packing import packed_size, unpack
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.dense import DenseWords
from secure_fedrec.protection.base.hidden_sum import HiddenSession, RealSum
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.config.layouts import EncodedVector
from secure_fedrec.protection.masking.config.policy import Expected, SitePolicy
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.federation import Federation, run_round
from secure_fedrec.protection.masking.messages.keys import fresh_key
from secure_fedrec.wire import Step


class MaskedRounds:
    """One federation of a round's clients, for all sums that the round takes.

    Args:
        session: whose round it is.
        policy: the conditions of every client.
    """

    def __init__(self, session: HiddenSession, policy: SitePolicy) -> None:
        self._session = session
        self._federation = Federation(session.order.tolist(), policy=policy)
        self.halves: dict[int, MaskingClient] = {}
        self.packed = b""

    def encode(
        self, parts: Sequence[DenseWords], config: MaskingConfig
    ) -> dict[int, EncodedVector]:
        """Dense words as vectors to be masked, by client."""
        return {
            number: EncodedVector(
                words=words,
                bits=config.bits,
                layout_hash=config.layout_hash,
                clients=config.clients,
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
        real = RealSum(self._session, step, layout)
        epoch = int(config.needs_beacon)  # of a federation that lives for one round
        beacon = fresh_key() if epoch else None
        server = self._federation.open_server(config, self._session.order, epoch=epoch)
        self.halves = {
            number: self._federation.open_client(
                number, expected if isinstance(expected, Expected) else expected[number]
            )
            for number in vectors
        }
        with self._session.in_round():
            outcome = run_round(
                server, self.halves, vectors, carrier=real.line, epoch=epoch, beacon=beacon
            )
        self._require_everybody(outcome.survivors)
        total: RingArray = np.roll(outcome.words, -shift)
        real.check(total, parts, "the masking protocol's sum")
        self.packed = server.packed_result
        size, bits = packed_size(layout.length, config.bits), config.bits
        real.show(lambda data: np.roll(unpack(data[-size:], layout.length, bits), -shift))
        return total

    def _require_everybody(self, survivors: IntArray) -> None:
        """Check that nobody is left out of what the whole round is trained on."""
        number, missing = self._session.round, np.setdiff1d(self._session.order, survivors)
        if len(missing):
            raise ProtocolError(
                f"round {number}: the sum is without {len(missing)} clients, the first is "
                f"client {missing[0]}; the round is abandoned"
            )
