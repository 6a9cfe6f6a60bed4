"""Masks whose keys are agreed on before the public state is known."""

from typing import Protocol, runtime_checkable

from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import HostedSum, Standing
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.server.half import MaskingServer
from secure_fedrec.protection.session import Identity
from secure_fedrec.protection.session.journal import Journal


@runtime_checkable
class KeysAhead(Protocol):
    """Capability of a ``Hosting``: its masks' keys are agreed on before the public state is known.

    So they can be while the round before is summed (``masking.pipeline``).
    """

    def open_server(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> MaskingServer:
        """The server's half, before it has the public state (``hub``)."""

    def summed_by(self, at: Standing, server: MaskingServer) -> HostedSum:
        """Give the server's half the public state of the attempt."""

    def open_client(self, at: Standing, identity: Identity, journal: Journal) -> MaskingClient:
        """A client's half, before its upload is loaded (``half``)."""

    def load(self, at: Standing, client: MaskingClient, rows: ClientRows) -> None:
        """Load the client's upload, computed from the public state, which is known now."""
