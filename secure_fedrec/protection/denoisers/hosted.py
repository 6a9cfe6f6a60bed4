"""Rounds of denoisers behind mixes whose parties are elsewhere (``base.hosting``).

A denoiser is at the host of the client that it is, a mix has a host of its own. Exchanges of an
attempt, with L mixes:

    KEYS      mixes and denoisers make keys of the attempt               (routing.hosted)
    UPLOADS   every ordinary client: its rows to the server, and its virtual ones in cells
    MIX-0 ... each mix in turn, once it has the cells of all
    RECEIPTS  denoisers open their cells, and sign lists of what came
    SEEN      every client looks for its cells in all lists, and signs which lists it has seen
    SUMS      denoisers that see every client's signature, and one set of lists: their sums

No sum is released while a client misses a cell: so a mix that replaces the cells of all but one
client learns nothing. The sum is over all clients of the attempt, or the attempt fails.

A denoiser sums one public state once, by its journal: over other clients, or in another round, the
difference would be of the few that are in one of the two. After a loss in transit, the same clients
are summed in a later attempt.
"""

from hashlib import sha256

from typing_extensions import override

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.answer_once import Once
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import Desk, NoHelpers, Standing
from secure_fedrec.protection.denoisers.client import RoutedClient
from secure_fedrec.protection.denoisers.embedded_mixes import RoutedDenoisers
from secure_fedrec.protection.denoisers.helper import RoutedDenoiser
from secure_fedrec.protection.denoisers.messages import Named, RoutedAttempt
from secure_fedrec.protection.denoisers.server import RoutedServer
from secure_fedrec.protection.routing.hosted import UNSIGNED, HostedMix, mixes_of
from secure_fedrec.protection.session import Identity, Node, Party, Role
from secure_fedrec.protection.session.journal import Journal

_DOMAIN = b"secure-fedrec|v1|denoisers behind mixes|summed|"


class HostedDenoisers(NoHelpers):
    """Halves of rounds of denoisers behind mixes.

    Args:
        collector: collector of the round or rounds.
    """

    whole = True
    unrecorded = UNSIGNED
    anonymous = True

    def __init__(self, collector: RoutedDenoisers) -> None:
        self._collector = collector

    @override
    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> RoutedServer:
        """The server's side.

        Raises:
            ProtocolError: its batch would hold the cells of one sender only, or no cells.
        """
        attempt = RoutedAttempt(self._collector, at)
        if not len(attempt.senders):
            raise ProtocolError("no client is connected together with its denoiser")
        self._collector.require_senders(at.round, len(attempt.senders))
        return RoutedServer(attempt)

    @override
    def half(self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows) -> Party:
        attempt = RoutedAttempt(self._collector, at)
        self._collector.require_senders(at.round, len(attempt.senders))
        half = RoutedClient(attempt, identity, rows)
        return Once(half, journal, at)

    @override
    def exempt(self, client: int) -> bool:
        """Denoisers draw no virtual items: their rows reach the server only inside sums."""
        return bool(self._collector.binding.is_denoiser[client])

    @override
    def helpers(self) -> dict[Node, Node]:
        """The denoisers at their clients' hosts, and the mixes on their own."""
        recruited = enumerate(self._collector.binding.denoisers.tolist())
        found = {Node(Role.DENOISER, number): Node(Role.CLIENT, at) for number, at in recruited}
        return found | {mix: mix for mix in mixes_of(self._collector.routing.routing)}

    @override
    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """The half of a mix or of a denoiser.

        Raises:
            ProtocolError: a denoiser whose client takes no part.
        """
        attempt = RoutedAttempt(self._collector, at)
        if identity.node.role is Role.MIX:
            return HostedMix(attempt.course, identity)
        if desk.own is None:
            raise ProtocolError(f"the client that {identity.node} is takes no part")
        half = RoutedDenoiser(attempt, identity, desk.own)
        same = sha256(_DOMAIN + at.clients.astype("<u4").tobytes()).digest()[:8]
        return Once(half, desk.journal, at, same=lambda _: same, stage=Named.SUMS.name)
