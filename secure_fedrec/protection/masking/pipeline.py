"""Two rounds at once: keys of the next one are agreed on while a round is summed.

Nothing up to SHARES depends on a vector, so these messages of the next round travel with those of
the round before it, and a round costs three exchanges against an active server, two against a
curious one:

    active   UPLOAD + ADVERTISE of the next | CONFIRM + SHARES of the next | REVEAL
    curious  UPLOAD + ADVERTISE of the next | REVEAL + SHARES of the next

The first round has two exchanges more before it. Only exchanges are shared: every round has keys,
shares, context and beacon of its own, so what is revealed in one reveals nothing of another. The
halves are those of single rounds (``client``, ``server``), begun with ``Later``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.masking.envelope import round_number
from secure_fedrec.protection.masking.server.half import MaskingServer, ServerState
from secure_fedrec.protection.session.nodes import SERVER, Node
from secure_fedrec.protection.session.parties import Parcel, Party, refusals_of

_SUMMING = (ServerState.UPLOAD, ServerState.CONFIRM, ServerState.REVEAL)
_AGREEING = (ServerState.CREATED, ServerState.ADVERTISE)


class PipelinedServer:
    """The server of a round, and of the keys of the next (a ``Hub``).

    Args:
        current: the round that is to be summed; not started, or with its keys agreed on.
        following: the next round, not started; None after the last round.
    """

    node = SERVER

    def __init__(self, current: MaskingServer, following: MaskingServer | None) -> None:
        self._current = current
        self._following = following
        self._ahead_number = 0 if following is None else following.round_number

    @property
    def stage(self) -> str:
        """What the round awaits."""
        return self._current.stage

    @property
    def finished(self) -> bool:
        """Whether the round has a result."""
        return self._current.finished

    @property
    def agreed(self) -> MaskingServer | None:
        """The next round, once clients have shared its keys; None before, or if it was lost."""
        following = self._following
        if following is None or following.state is not ServerState.SHARES:
            return None
        return following if len(following.sharers) else None

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take what clients answered in either round, and go on with both (``Hub.step``).

        If too few clients advertised for the next round, it is given up; this one goes on.

        Raises:
            ProtocolError: this round is aborted, or over.
        """
        refusals_of(inbox, self._receive)
        return self._current.step(()) + self._ahead()

    def take_beacons(self, published: Callable[[int], bytes]) -> None:
        """Take the beacons of rounds with advertisements, before ``step`` closes them.

        Args:
            published: gives the value of an epoch, or refuses.

        Raises:
            ProtocolError: that of this round is not published; without that of the next, the next
                is given up.
        """
        if self._current.stage == ServerState.ADVERTISE.name and self._current.beacon_due:
            self._current.beacon = published(self._current.beacon_due)
        following = self._following
        if following is None or following.state is not ServerState.ADVERTISE:
            return
        if following.beacon_due:
            try:
                following.beacon = published(following.beacon_due)
            except ProtocolError as missing:
                self._give_up(following, missing)

    def _give_up(self, following: MaskingServer, why: ProtocolError) -> None:
        following.abort(str(why))
        self._following = None

    def _receive(self, data: bytes) -> None:
        following = self._following if round_number(data) == self._ahead_number else None
        (following or self._current).receive(data)

    def _ahead(self) -> list[Parcel]:
        following = self._following
        if following is None or self._current.state not in _SUMMING:
            return []
        if following.state not in _AGREEING:
            return []
        try:
            return following.step(())
        except ProtocolError as failed:
            self._give_up(following, failed)
            return []


class PipelinedClient:
    """A client's halves of two rounds (a ``Party``).

    Args:
        node: the client.
        halves: its halves, by number of their round.
    """

    def __init__(self, node: Node, halves: Mapping[int, Party]) -> None:
        self.node = node
        self._halves = dict(halves)
        self._refusals: list[ProtocolError | WireError] = []

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Let each half take the messages of its round (``Party.step``).

        Raises:
            ProtocolError, WireError: a message is of no round here, or a half refuses, and no
                other half has taken anything.
        """
        answers: list[Parcel] = []
        refusals: list[ProtocolError | WireError] = []
        inboxes: dict[int, list[bytes]] = {}
        for data in inbox:
            inboxes.setdefault(round_number(data), []).append(data)
        for number, own in sorted(inboxes.items()):
            try:
                if number not in self._halves:
                    raise ProtocolError(f"{self.node} is not in round {number}")
                answers += self._halves[number].step(own)
            except (ProtocolError, WireError) as refusal:
                refusals.append(refusal)
        if refusals and len(refusals) == len(inboxes):
            raise refusals[0]
        self._refusals += refusals
        return answers

    def told(self) -> list[ProtocolError | WireError]:
        """What one half has refused while the other answered, since the last call."""
        refusals, self._refusals = self._refusals, []
        return refusals
