"""All parties of a round of shared uploads in one process, with real keys and signatures."""

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Carrier, Party, run_in_memory
from secure_fedrec.protection.shared_upload import (
    Identities,
    RoundContext,
    SharingClient,
    SharingDenoiser,
    SharingServer,
)
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.uploads import Aggregate, RowBlock


class SharedRound:
    """One round of clients, denoisers and server, whose messages a carrier takes."""

    def __init__(
        self, context: RoundContext, identities: Identities, carrier: Carrier | None = None
    ) -> None:
        self._context = context
        self._identities = identities
        self._carrier = carrier
        self._clients: list[SharingClient] = []

    def submit(self, clients: IntArray, block: RowBlock, rated: BoolArray) -> None:
        """Load the halves of some clients with their rows."""
        ends = zip(clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True)
        for client, start, stop in ends:
            assert block.values is not None
            mine = slice(int(start), int(stop))
            half = SharingClient(self._context, client, self._identities.clients[client])
            half.load(block.rows[mine], block.values[mine], rated[mine])
            self._clients.append(half)

    def close(self) -> Aggregate:
        """Drive the halves to the end; sums and counts over all clients."""
        context, keys = self._context, self._identities
        numbers = [half.node.number for half in self._clients]
        server = SharingServer(context, keys.server, numbers)
        denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(keys.denoisers)]

        def look(stage: str) -> None:
            if stage == Kind.CONSENT.name and server.members != tuple(sorted(numbers)):
                raise ProtocolError(f"the sum would be without clients: {server.left_out}")

        parties: list[Party] = [*denoisers, *self._clients]
        run_in_memory(server, parties, carrier=self._carrier, between=look)
        assert server.aggregate is not None
        return server.aggregate
