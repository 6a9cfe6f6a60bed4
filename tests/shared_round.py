"""All parties of a round in one process, with real keys, real bytes and real signatures.

For small cohorts. What stands between the halves is the caller's, such as the wire of a run.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Carrier, Party, run_in_memory
from secure_fedrec.protection.shared_upload import Identities
from secure_fedrec.protection.shared_upload.client import SharingClient
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.halves import HubHalf
from secure_fedrec.protection.shared_upload.helper import SharingDenoiser
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.server import SharingServer
from secure_fedrec.uploads import Aggregate, RowBlock

Held = list[tuple[IndexArray, RingArray]]
"""What one holder knows of each client's rows: numbers, and uniform words [n, d + 1]."""


class _ClientHalf(Party, Protocol):
    def load(self, rows: IndexArray, words: RingArray, marks: BoolArray, /) -> None: ...


_Client = TypeVar("_Client", bound=_ClientHalf)


class HalvesInMemory(Generic[_Client]):
    """One round of clients, denoisers and server.

    Args:
        context: the round.
        identities: everybody's keys.
        carrier: what stands between the halves.
    """

    def __init__(
        self, context: RoundContext, identities: Identities, carrier: Carrier | None = None
    ) -> None:
        self.context = context
        self._identities = identities
        self._carrier = carrier
        self._clients: list[_Client] = []

    @property
    def _numbers(self) -> list[int]:
        return [half.node.number for half in self._clients]

    def submit(self, clients: IntArray, block: RowBlock, marks: BoolArray) -> None:
        """Load the halves of some clients with their rows and the marks of these."""
        if block.values is None:
            raise ValueError("an upload has values")
        ends = zip(clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True)
        for client, start, stop in ends:
            mine = slice(int(start), int(stop))
            half = self._half(client, self._identities.clients[client])
            half.load(block.rows[mine], block.values[mine], marks[mine])
            self._clients.append(half)

    def _half(self, client: int, identity: Ed25519PrivateKey) -> _Client:
        raise NotImplementedError

    def _drive(
        self, server: HubHalf, denoisers: Sequence[Party], look: Callable[[str], None]
    ) -> Aggregate:
        parties: list[Party] = [*denoisers, *self._clients]
        run_in_memory(server, parties, carrier=self._carrier, between=look)
        if server.aggregate is None:
            raise ProtocolError("the round ended without sums")
        return server.aggregate


class RealRound(HalvesInMemory[SharingClient]):
    """One round (arguments: ``HalvesInMemory``); clients are given which of their rows are rated.

    Attributes:
        held: what the server and then every denoiser holds, by client in the order submitted; of
            a round that has come to its end.
    """

    held: Sequence[Held] = ()

    def _half(self, client: int, identity: Ed25519PrivateKey) -> SharingClient:
        return SharingClient(self.context, client, identity)

    def close(self) -> Aggregate:
        """Drive the halves to the end; sums and counts over all clients.

        Raises:
            ProtocolError: the round was aborted, or a client is not in the sum.
        """
        context, keys = self.context, self._identities
        numbers = self._numbers
        server = SharingServer(context, keys.server, numbers)
        denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(keys.denoisers)]

        def look(stage: str) -> None:
            if stage == Kind.CONSENT.name:  # all is held still, and the set is agreed on
                if server.members != tuple(sorted(numbers)):
                    raise ProtocolError(f"the sum would be without clients: {server.left_out}")
                holders: list[SharingServer | SharingDenoiser] = [server, *denoisers]
                self.held = [[each.share_of(number) for number in numbers] for each in holders]

        return self._drive(server, denoisers, look)
