"""Bags of the embedded engine whose halves carry a round out, with all hosts in this process.

The clients' vectors go through mixes with their own keys, beside a plain sum without rows, and the
resulting bags must equal those of the simulation.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.protection.bags.embedded import LayeredBags
from secure_fedrec.protection.bags.hosted_mixes import mixed_hosting
from secure_fedrec.protection.bags.mixed_client import MixedGiver
from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.bags.mixed_server import MixedBagHub
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.base.carried_out import MemoryHosts
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.plain.embedded import DirectSum
from secure_fedrec.protection.plain.hosted import HostedPlain
from secure_fedrec.protection.session import SERVER, OverWire, Role, run_in_memory
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Wire


class MixedBagsInMemory:
    """Hosts of clients and mixes.

    Args:
        mixes: the layer.
        n_clients: clients of the federation.
    """

    def __init__(self, mixes: Mixes, n_clients: int) -> None:
        self._mixes = mixes
        self._nothing = DirectSum(n_clients=n_clients, n_items=1, width=1, codec=mixes.codec)
        halves = mixed_hosting(mixes, HostedPlain(self._nothing))
        self._hosts = MemoryHosts(halves, n_clients)

    def carry_out(
        self,
        round_: int,
        given: Mapping[int, Sequence[bytes]],
        bags: Mapping[str, RingArray],
        wire: Wire,
    ) -> None:
        """Run a round's halves (``embedded.Carried``).

        Raises:
            ProtocolError: it was aborted, as it is where a sender does not find its cell.
            LosslessnessError: other bags come out.
        """
        if not given:
            return
        hosts, clients = self._hosts, np.array(sorted(given), dtype=np.int64)
        at = hosts.attempt(round_, clients, sha256(b"").digest(), None)
        attempt, server = BagAttempt(self._mixes, at), hosts.identities[SERVER]
        total = hosts.halves.hub(at, server, {})
        hub = MixedBagHub(total.hub, attempt, server, hosts.halves)
        nothing = RowBlock(
            indptr=np.zeros(2, dtype=np.int64),
            rows=np.zeros(0, dtype=np.int32),
            values=np.zeros((0, 1), dtype=self._nothing.codec.dtype),
        )
        rows = dict.fromkeys(clients.tolist(), ClientRows(nothing, np.zeros(0, dtype=bool)))
        parties = [
            MixedGiver(half, attempt, hosts.identities[half.node], given[half.node.number])
            if half.node.role is Role.CLIENT
            else half
            for half in hosts.parties(at, rows, None)
        ]
        try:
            run_in_memory(hub, parties, carrier=OverWire(wire, round=round_, rows=None))
            found = hub.bags(clients)
        except ProtocolError as error:
            raise ProtocolError(f"round {round_}: {error}") from None
        decode = self._mixes.codec.decode
        if any(not np.array_equal(found[name], decode(words)) for name, words in bags.items()):
            raise LosslessnessError(f"round {round_}: the mixes changed or lost a vector")


def carried_out(channel: LayeredBags) -> None:
    """Have rounds of bags behind mixes carried out by halves from now on."""
    if channel.mixes is not None:
        channel.carried = MixedBagsInMemory(channel.mixes, channel.n_clients).carry_out
