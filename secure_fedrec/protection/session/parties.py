"""One interface for every half of a protocol, and the driver that runs them through a round.

A half is a ``Party``: ``step`` takes the messages that came for it and gives those that it sends,
bytes in and bytes out. It owns no socket, thread or clock. The server's half is the ``Hub``: it
says what it awaits and when it is done, and continues with the parties that answered when the
host's timeout is over.

The driver (``drive``) knows neither a protocol nor where the others are. It hands what the hub
sends to a ``Channel`` and what comes back to the hub. ``MemoryChannel`` has all other parties in
this process; an engine whose clients are elsewhere brings a channel of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.session.nodes import SERVER, Node

Content = TypeVar("Content")


class Parcel(NamedTuple):
    """One message on its way. Only ``data`` is evidence; the rest is what the carrier claims.

    Args:
        sender: the party that sends it.
        receiver: the party that is to get it.
        stage: its kind, in capitals, as its protocol names it.
        data: the bytes; empty in a prompt, which only says that it is the receiver's turn.
    """

    sender: Node
    receiver: Node
    stage: str
    data: bytes


class Party(Protocol):
    """One half of a protocol."""

    @property
    def node(self) -> Node:
        """Who it is."""

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Take messages, give messages.

        Args:
            inbox: messages that came since the last step, in order, without prompts.

        Raises:
            ProtocolError, WireError: no message in it lets the party continue; nothing is sent.
        """


class Hub(Party, Protocol):
    """The half that coordinates a round."""

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take all messages, each as it comes, and give messages (``Party.step``)."""

    @property
    def stage(self) -> str:
        """The kind of message that it awaits, or "DONE"."""

    @property
    def finished(self) -> bool:
        """Whether it has its result; messages of its last step may still have to be sent."""


class Channel(Protocol):
    """Reaches every party but the hub."""

    def exchange(
        self, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Iterable[bytes]:
        """Send messages, and wait for what comes back to the hub.

        Parties may work only when answers are read, and answers need not be kept. Messages between
        parties are passed on and arrive at the receiver's next step.

        Args:
            stage: the stage that the hub awaits.
            messages: from the hub.
            timeout: seconds to wait for the slowest; None as long as it takes.

        Returns:
            Messages to the hub, as they came: some may be missing, repeated, altered or late.
        """


Carrier = Callable[[Sequence[Parcel]], Sequence[Parcel]]
"""Gives those of the sent messages that arrive."""


class MemoryChannel:
    """All parties but the hub, in this process.

    A party that refuses what it is sent is silent, and ``refused`` says why. Without a carrier the
    hub gets one party's answer before the next party works, so only one is in memory.

    Args:
        parties: the halves.
        carrier: delivers messages; by default all of them arrive.
        passes: which messages are not lost before that; by default all.
    """

    def __init__(
        self,
        parties: Iterable[Party],
        carrier: Carrier | None = None,
        passes: Callable[[Parcel], bool] | None = None,
    ) -> None:
        self._parties = {party.node: party for party in parties}
        self._carrier = carrier
        self._passes = passes
        self._waiting: dict[Node, list[bytes]] = {}
        self._refused: dict[Node, str] = {}

    @property
    def refused(self) -> Mapping[Node, str]:
        """Why parties sent nothing, by node; the last reason of each."""
        return MappingProxyType(self._refused)

    def exchange(
        self, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Iterator[bytes]:
        """Send messages; parties answer as answers are read (``Channel.exchange``)."""
        for _ in self._delivered(messages):
            pass
        inboxes, self._waiting = self._waiting, {}
        yield from self._delivered(self._answers(inboxes))

    def _answers(self, inboxes: Mapping[Node, Sequence[bytes]]) -> Iterator[Parcel]:
        for node in filter(inboxes.__contains__, self._parties):
            try:
                yield from self._parties[node].step([data for data in inboxes[node] if data])
            except (ProtocolError, WireError) as error:
                self._refused[node] = str(error)

    def _delivered(self, sent: Iterable[Parcel]) -> Iterator[bytes]:
        """Deliver messages to their receivers, and give those for the server."""
        kept = filter(self._passes, sent) if self._passes is not None else sent
        for parcel in kept if self._carrier is None else self._carrier(list(kept)):
            if parcel.receiver in self._parties:
                self._waiting.setdefault(parcel.receiver, []).append(parcel.data)
            elif parcel.receiver == SERVER:
                yield parcel.data


def from_server(nodes: Iterable[Node], stage: str, *messages: bytes) -> list[Parcel]:
    """The same messages of the server to every node; b"" prompts it."""
    return [Parcel(SERVER, node, stage, data) for node in nodes for data in messages]


def replies_to(
    inbox: Sequence[bytes],
    handle: Callable[[bytes], Sequence[bytes]],
    *,
    gone: Callable[[], bool] = lambda: False,
) -> list[bytes]:
    """Replies to messages of which some may be refused: repeated, late, not the sender's.

    Args:
        inbox: the messages.
        handle: gives the replies to one, or refuses it.
        gone: whether a refusal has ended the round for this party.

    Raises:
        ProtocolError, WireError: all were refused, or the round has ended: the last refusal.
    """
    replies: list[bytes] = []
    refusals: list[ProtocolError | WireError] = []
    for data in inbox:
        try:
            replies += handle(data)
        except (ProtocolError, WireError) as refusal:
            refusals.append(refusal)
    if refusals and (gone() or len(refusals) == len(inbox)):
        raise refusals[-1]
    return replies


def refusals_of(inbox: Iterable[bytes], receive: Callable[[bytes], None]) -> str:
    """Take messages of which some may be refused; clauses with the reasons."""
    reasons = []
    for data in inbox:
        try:
            receive(data)
        except (ProtocolError, WireError) as refusal:
            reasons.append(f"; {refusal}")
    return "".join(dict.fromkeys(reasons))


def one_of_each(
    inbox: Iterable[bytes],
    read: Callable[[bytes], tuple[Node, Content]],
    due: Sequence[Node],
    kind: str,
) -> dict[Node, Content]:
    """The contents of one message of each of some parties, in their order.

    Args:
        inbox: the messages.
        read: sender and content of one, or refuses it.
        due: the parties that must answer.
        kind: name of the awaited message, for error messages.

    Raises:
        ProtocolError: a message is missing; the error says what was refused.
    """
    found: dict[Node, Content] = {}

    def take(data: bytes) -> None:
        sender, content = read(data)
        if sender not in due or sender in found:
            raise ProtocolError(f"no {kind} of {sender} is awaited")
        found[sender] = content

    why = refusals_of(inbox, take)
    missing = [node for node in due if node not in found]
    if missing:
        raise ProtocolError(f"no {kind} of {missing[0]}{why}")
    return {node: found[node] for node in due}


def run_in_memory(
    hub: Hub,
    parties: Iterable[Party],
    *,
    carrier: Carrier | None = None,
    between: Callable[[str], None] | None = None,
) -> Mapping[Node, str]:
    """Run a round whose parties are all in this process (arguments: ``drive``).

    Returns:
        Why parties sent nothing, by node (``MemoryChannel.refused``).

    Raises:
        ProtocolError: the round was aborted; the message says what the other parties refused.
    """
    channel = MemoryChannel(parties, carrier)
    try:
        drive(hub, channel, between=between)
    except (ProtocolError, WireError) as error:
        why = "".join(f"; {node}: {reason}" for node, reason in channel.refused.items())
        raise ProtocolError(f"{error}{why}") from None
    return channel.refused


def drive(
    hub: Hub,
    channel: Channel,
    *,
    timeout: float | None = None,
    between: Callable[[str], None] | None = None,
) -> None:
    """Run a round to its end.

    Args:
        hub: the server's half, not started.
        channel: reaches the others.
        timeout: seconds for each exchange.
        between: called with a stage once all answers to it are there, before the hub goes on, for
            what a host does then, such as making a beacon known.

    Raises:
        ProtocolError: the round was aborted; there is no partial result.
    """
    inbox: Iterable[bytes] = ()
    while True:
        outbox = hub.step(inbox)
        answers = channel.exchange(hub.stage, outbox, timeout)
        if hub.finished:
            for _ in answers:
                pass
            return
        inbox = _heard(answers, hub.stage, between)


def _heard(
    answers: Iterable[bytes], stage: str, between: Callable[[str], None] | None
) -> Iterator[bytes]:
    yield from answers
    if between is not None:
        between(stage)
