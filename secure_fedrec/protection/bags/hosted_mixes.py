"""Halves of rounds of sums beside bags behind mixes (``base.hosting``)."""

from hashlib import sha256

from typing_extensions import override

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.base.answer_once import Once
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    Desk,
    HostedSum,
    Hosting,
    NoHelpers,
    SharedKeys,
    Standing,
)
from secure_fedrec.protection.masking import MaskingClient, MaskingServer
from secure_fedrec.protection.masking.keys_ahead import KeysAhead
from secure_fedrec.protection.routing.directory import LEAST_SENDERS
from secure_fedrec.protection.routing.hosted import UNSIGNED, HostedMix, Kind, mixes_of
from secure_fedrec.protection.session import Identity, Node, Party, Role
from secure_fedrec.protection.session.journal import Journal

_DOMAIN = b"secure-fedrec|v1|batch of a mix|"


class HostedMixedBags(NoHelpers):
    """Halves of rounds of sums beside bags behind mixes.

    Args:
        mixes: the layer.
        sums: halves of the sums alone.
    """

    whole = True
    unrecorded = UNSIGNED

    def __init__(self, mixes: Mixes, sums: Hosting) -> None:
        self._mixes = mixes
        self._sums = sums
        self.uploads, self.opens = sums.uploads, sums.opens
        self.last_stage = sums.last_stage
        self.takes_beacons = sums.takes_beacons
        self.anonymous = sums.anonymous
        self.drops = not sums.whole

    @override
    def shared_keys(self) -> SharedKeys:
        """The shared keys of the sums."""
        return self._sums.shared_keys()

    @override
    def exempt(self, client: int) -> bool:
        return self._sums.exempt(client)

    @override
    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> HostedSum:
        _require_others(at)
        return self._sums.hub(at, identity, generations)

    @override
    def half(self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows) -> Party:
        _require_others(at)
        return self._sums.half(at, identity, journal, rows)

    @override
    def helpers(self) -> dict[Node, Node]:
        """The parties of the sums, and the mixes on hosts of their own."""
        return self._sums.helpers() | {mix: mix for mix in mixes_of(self._mixes.routing)}

    @override
    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """A mix's half: for one public state, it forwards only the cells of the same clients.

        With two bags over one state, vectors that are in only one of them could be assigned to a
        client.
        """
        if identity.node.role is not Role.MIX:
            return self._sums.helper(at, identity, desk)
        _require_others(at)
        half = HostedMix(BagAttempt(self._mixes, at).course, identity)
        batch = at.statement.digest + at.present.astype("<u4").tobytes()
        same = sha256(_DOMAIN + batch).digest()[:8]
        return Once(half, desk.journal, at, same=lambda _: same, stage=Kind.CELLS.name)


class MixedBagsAhead(HostedMixedBags, KeysAhead):
    """The same over masks, whose keys are agreed on ahead (``hosting.KeysAhead``).

    Args:
        mixes: the layer.
        sums: halves of the sums alone.
        ahead: the same, with that capability.
    """

    def __init__(self, mixes: Mixes, sums: Hosting, ahead: KeysAhead) -> None:
        super().__init__(mixes, sums)
        self._ahead = ahead

    @override
    def open_server(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> MaskingServer:
        return self._ahead.open_server(at, identity, generations)

    @override
    def summed_by(self, at: Standing, server: MaskingServer) -> HostedSum:
        return self._ahead.summed_by(at, server)

    @override
    def open_client(self, at: Standing, identity: Identity, journal: Journal) -> MaskingClient:
        return self._ahead.open_client(at, identity, journal)

    @override
    def load(self, at: Standing, client: MaskingClient, rows: ClientRows) -> None:
        self._ahead.load(at, client, rows)


def _require_others(at: Standing) -> None:
    """Check the clients that take part according to the server.

    Raises:
        ProtocolError: there is only one client, which no mix could hide.
    """
    if len(at.present) < LEAST_SENDERS:
        raise ProtocolError(
            f"{len(at.present)} client is there, mixes hide {LEAST_SENDERS} or more"
        )


def mixed_hosting(mixes: Mixes, sums: Hosting) -> HostedMixedBags:
    """Halves of rounds of sums beside bags behind mixes.

    Args:
        mixes: the layer.
        sums: halves of the sums alone.
    """
    if isinstance(sums, KeysAhead):
        return MixedBagsAhead(mixes, sums, sums)
    return HostedMixedBags(mixes, sums)
