"""Rounds of shared uploads whose parties are elsewhere (``protection.hosting``).

A denoiser is at the host of the client that was recruited for it. Contexts are made alike on every
host: a round's id is the hash of federation and attempt.
"""

from hashlib import sha256
from typing import TYPE_CHECKING

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.hosting import Standing, joined_clients
from secure_fedrec.protection.session import Identity, Node, Role
from secure_fedrec.protection.shared_upload.client import SharingClient
from secure_fedrec.protection.shared_upload.context import DOMAIN, RoundContext
from secure_fedrec.protection.shared_upload.denoiser import SharingDenoiser
from secure_fedrec.protection.shared_upload.server import SharingServer
from secure_fedrec.uploads import Aggregate, RowBlock

if TYPE_CHECKING:
    from secure_fedrec.protection.masking import Journal
    from secure_fedrec.protection.shared_upload.collector import SharedUpload


class HostedSharedSum:
    """The server's side of one attempt.

    Args:
        hub: the server's half.
    """

    def __init__(self, hub: SharingServer) -> None:
        self.hub = hub

    def aggregate(self) -> Aggregate:
        """Sums and counts of the clients that all holders agreed on.

        Raises:
            ProtocolError: the round has not come to its end.
        """
        if self.hub.aggregate is None:
            raise ProtocolError("the round ended without sums")
        return self.hub.aggregate

    def heard(self) -> IntArray:
        """int64[k]: those clients."""
        return joined_clients(self.hub.members)


class HostedShares:
    """Halves of rounds of shared uploads.

    Args:
        collector: whose rounds they are.
    """

    def __init__(self, collector: "SharedUpload") -> None:
        self._collector = collector

    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedSharedSum:
        """The server's side (``hosting.Hosting``)."""
        return HostedSharedSum(SharingServer(self._context(at), identity.key, at.clients.tolist()))

    def half(
        self,
        at: Standing,
        identity: Identity,
        journal: "Journal",
        block: RowBlock,
        virtual: BoolArray,
    ) -> SharingClient:
        """A client's half (``hosting.Hosting``).

        Raises:
            WireError: its rows have no values.
        """
        if block.values is None:
            raise WireError("rows without values cannot be shared")
        client = SharingClient(self._context(at), identity.number, identity.key)
        client.load(block.rows, block.values, ~virtual)
        return client

    def helpers(self) -> dict[Node, int]:
        """The denoisers."""
        recruited = enumerate(self._collector.denoisers.tolist())
        return {Node(Role.DENOISER, number): client for number, client in recruited}

    def helper(self, at: Standing, identity: Identity) -> SharingDenoiser:
        """A denoiser's half."""
        return SharingDenoiser(self._context(at), identity.node.number, identity.key)

    def _context(self, at: Standing) -> RoundContext:
        collector = self._collector
        attempt = at.series + at.state + at.serial.to_bytes(8, "little")
        return RoundContext(
            codec=collector.codec,
            n_items=collector.n_items,
            width=collector.width,
            floor=collector.config.floor,
            roster=at.roster,
            round=at.round,
            round_id=sha256(DOMAIN + b"|hosted|" + attempt).digest()[:16],
            kem=collector.config.kem,
        )
