"""All parties of a round in one process: real keys, real onions, real mixes.

For small cohorts. What stands between the halves is the wire of a run; the mix cascade is the line
from clients to denoisers.
"""

import secrets
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.linkage_hardened.client import LinkageClient, Sent
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.rows import RowShare
from secure_fedrec.protection.linkage_hardened.server import LinkageServer
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.routing.onions import address_of
from secure_fedrec.protection.session import Carrier, Node, Parcel, Role
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.real import HalvesInMemory, Identities
from secure_fedrec.uploads import Aggregate


class RealRound(HalvesInMemory[LinkageClient]):
    """One round; clients are given which of their rows are virtual.

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

    def __init__(
        self,
        context: RoundContext,
        identities: Identities,
        network: MixNetwork,
        *,
        cells: int,
        carrier: Carrier | None = None,
    ) -> None:
        super().__init__(context, identities, self._through_mixes)
        self._network = network
        self._cells = cells
        self._rest = carrier
        self.held: list[list[RowShare]] = []

    @property
    def sent(self) -> list[Sent]:
        """What each client sent, in the order submitted."""
        return [half.sent for half in self._clients if half.sent is not None]

    def _half(self, client: int, identity: Ed25519PrivateKey) -> LinkageClient:
        directory = self._network.directory
        return LinkageClient(self.context, client, identity, directory=directory, cells=self._cells)

    def close(self) -> Aggregate:
        """Drive the halves to the end; sums and counts of the rated rows of all clients.

        Raises:
            ProtocolError: the round was aborted, or a client is not in the sum.
        """
        numbers = self._numbers
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

        return self._drive(server, denoisers, look)

    def _through_mixes(self, sent: Sequence[Parcel]) -> list[Parcel]:
        """Cells go through the mixes, all of a round as one batch; the rest goes as it goes."""
        rest = [parcel for parcel in sent if parcel.stage != "CELL"]
        arrived = list(rest if self._rest is None else self._rest(rest))
        cells = [parcel.data for parcel in sent if parcel.stage == "CELL"]
        if cells:
            secrets.SystemRandom().shuffle(cells)
            last = self._network.mixes[-1].node
            arrived += [
                Parcel(last, Node(Role.DENOISER, address_of(cell).node), "CELL", cell)
                for cell in self._network.carry(cells)
            ]
        return arrived
