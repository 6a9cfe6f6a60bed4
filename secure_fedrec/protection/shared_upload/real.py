"""All parties of a round in one process, with real keys, real bytes and real signatures.

For small cohorts. What stands between the halves is the caller's, such as the wire of a run.
"""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Carrier, Roster, run_in_memory
from secure_fedrec.protection.shared_upload.client import SharingClient
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.denoiser import SharingDenoiser
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.server import SharingServer
from secure_fedrec.uploads import Aggregate, RowBlock

__all__ = ["Held", "Identities", "RealRound"]


@dataclass(frozen=True, slots=True, repr=False)
class Identities:
    """Signing keys of all parties, and the roster that lists them; see ``draw``."""

    server: Ed25519PrivateKey
    denoisers: tuple[Ed25519PrivateKey, ...]
    clients: tuple[Ed25519PrivateKey, ...]
    roster: Roster

    @classmethod
    def draw(cls, *, clients: int, denoisers: int) -> "Identities":
        """Fresh keys, listed by an operator whose own is forgotten."""
        make = Ed25519PrivateKey.generate
        server = make()
        helpers, members = (tuple(make() for _ in range(many)) for many in (denoisers, clients))
        roster = Roster.sign(
            make(),
            version=1,
            server=_public(server),
            denoisers=dict(enumerate(map(_public, helpers))),
            clients=dict(enumerate(map(_public, members))),
        )
        return cls(server, helpers, members, roster)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


Held = list[tuple[IndexArray, RingArray]]
"""What one holder knows of each client's rows: numbers, and uniform words [n, d + 1]."""


class RealRound:
    """One round.

    Args:
        context: the round.
        identities: everybody's keys.
        carrier: what stands between the halves.

    Attributes:
        held: what the server and then every denoiser holds, by client in the order submitted; of
            a round that has come to its end.
    """

    __slots__ = ("_carrier", "_clients", "_identities", "context", "held")

    def __init__(
        self, context: RoundContext, identities: Identities, carrier: Carrier | None = None
    ) -> None:
        self.context = context
        self._identities = identities
        self._carrier = carrier
        self._clients: list[SharingClient] = []
        self.held: list[Held] = []

    def submit(self, clients: IntArray, block: RowBlock, rated: BoolArray) -> None:
        """Load the halves of some clients with their rows."""
        if block.values is None:
            raise ValueError("an upload has values")
        ends = zip(clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True)
        for client, start, stop in ends:
            mine = slice(int(start), int(stop))
            half = SharingClient(self.context, client, self._identities.clients[client])
            half.load(block.rows[mine], block.values[mine], rated[mine])
            self._clients.append(half)

    def close(self) -> Aggregate:
        """Drive the halves to the end; sums and counts over all clients.

        Raises:
            ProtocolError: the round was aborted, or a client is not in the sum.
        """
        context, keys = self.context, self._identities
        numbers = [half.node.number for half in self._clients]
        server = SharingServer(context, keys.server, numbers)
        denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(keys.denoisers)]

        def look(stage: str) -> None:
            if stage == Kind.CONSENT.name:  # all is held still, and the set is agreed on
                if server.members != tuple(sorted(numbers)):
                    raise ProtocolError(f"the sum would be without clients: {server.left_out}")
                holders: list[SharingServer | SharingDenoiser] = [server, *denoisers]
                self.held = [[each.share_of(number) for number in numbers] for each in holders]

        run_in_memory(server, [*denoisers, *self._clients], carrier=self._carrier, between=look)
        if server.aggregate is None:
            raise ProtocolError("the round ended without sums")
        return server.aggregate
