"""All parties of a round in one process: real keys, real onions, real mixes.

For small cohorts. What stands between the halves is the wire of a run; the mix cascade is the line
from clients to denoisers.
"""

import secrets
from collections.abc import Sequence

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.linkage_hardened.client import LinkageClient, Sent
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.rows import RowShare
from secure_fedrec.protection.linkage_hardened.server import LinkageServer
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.routing.onions import address_of
from secure_fedrec.protection.session import Carrier, Node, Parcel, Party, Role, run_in_memory
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.real import Identities
from secure_fedrec.uploads import Aggregate, RowBlock

__all__ = ["RealRound"]


class RealRound:
    """One round.

    Args:
        context: the round.
        identities: everybody's signing keys.
        network: the mix network.
        cells: public number of cells of each client to each denoiser.
        carrier: what stands between the halves, but for the mixes.

    Attributes:
        sent: what each client sent, in the order submitted; of a round that came to its end.
        held: what each denoiser held of them.
    """

    __slots__ = ("_carrier", "_cells", "_clients", "_identities", "_network", "context", "held")

    def __init__(
        self,
        context: RoundContext,
        identities: Identities,
        network: MixNetwork,
        *,
        cells: int,
        carrier: Carrier | None = None,
    ) -> None:
        self.context = context
        self._identities = identities
        self._network = network
        self._cells = cells
        self._carrier = carrier
        self._clients: list[LinkageClient] = []
        self.held: list[list[RowShare]] = []

    @property
    def sent(self) -> list[Sent]:
        """What each client sent, in the order submitted."""
        return [half.sent for half in self._clients if half.sent is not None]

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Load the halves of some clients with their rows."""
        if block.values is None:
            raise ValueError("an upload has values")
        ends = zip(clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True)
        for client, start, stop in ends:
            mine = slice(int(start), int(stop))
            half = LinkageClient(
                self.context,
                client,
                self._identities.clients[client],
                directory=self._network.directory,
                cells=self._cells,
            )
            half.load(block.rows[mine], block.values[mine], virtual[mine])
            self._clients.append(half)

    def close(self) -> Aggregate:
        """Drive the halves to the end; sums and counts of the rated rows of all clients.

        Raises:
            ProtocolError: the round was aborted, or a client is not in the sum.
        """
        numbers = [half.node.number for half in self._clients]
        server = LinkageServer(self.context, cells=self._cells, cohort=numbers)
        denoisers = [
            LinkageDenoiser(self.context, n, key, endpoint=self._network.ends[n], cells=self._cells)
            for n, key in enumerate(self._identities.denoisers)
        ]

        def look(stage: str) -> None:
            if stage != Kind.ROW_SET.name:
                return
            # Senders look for their cells before any denoiser releases its sums.
            noted = [sent.noted for sent in self.sent]
            self._network.require_received(noted, batch=self.context.round)
            if server.heard != frozenset(numbers):
                missing = sorted(set(numbers) - server.heard)
                raise ProtocolError(f"no upload from clients {missing[:5]}")
            self.held = [denoiser.shares for denoiser in denoisers]

        parties: list[Party] = [*denoisers, *self._clients]
        run_in_memory(server, parties, carrier=self._through_mixes, between=look)
        if server.aggregate is None:
            raise ProtocolError("the round ended without sums")
        return server.aggregate

    def _through_mixes(self, sent: Sequence[Parcel]) -> list[Parcel]:
        """Cells go through the mixes, all of a round as one batch; the rest goes as it goes."""
        rest = [parcel for parcel in sent if parcel.stage != "CELL"]
        arrived = list(rest if self._carrier is None else self._carrier(rest))
        cells = [parcel.data for parcel in sent if parcel.stage == "CELL"]
        if cells:
            secrets.SystemRandom().shuffle(cells)
            last = self._network.mixes[-1].node
            arrived += [
                Parcel(last, Node(Role.DENOISER, address_of(cell).node), "CELL", cell)
                for cell in self._network.carry(cells)
            ]
        return arrived
