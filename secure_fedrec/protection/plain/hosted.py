"""Rounds without protection whose clients are elsewhere (``base.hosting``).

Every client sends its rows under its name and signature. Body of the one message, little-endian:
u32 rows | rows x i32, ascending | the words, packed to the ring's bits, row by row.
"""

from typing_extensions import override

from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import NoHelpers, Standing
from secure_fedrec.protection.base.table import ServerSum, TableCollector
from secure_fedrec.protection.plain.client import PlainClient
from secure_fedrec.protection.plain.server import PlainServer
from secure_fedrec.protection.session import Identity
from secure_fedrec.protection.session.journal import Journal


class HostedPlain(NoHelpers):
    """Halves of rounds without protection.

    Args:
        collector: collector of the round or rounds.
    """

    def __init__(self, collector: TableCollector) -> None:
        self._collector = collector

    @override
    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> PlainServer:
        total = ServerSum(self._collector, at.round, at.clients)
        return PlainServer(self._collector, at, total)

    @override
    def half(
        self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows
    ) -> PlainClient:
        return PlainClient(self._collector, at, identity, rows.block)
