"""What a collector provides for rounds whose parties run elsewhere: the half of each party.

In a simulation a collector has all parties of a round at hand. In a distributed round the server's
host has only the hub, and every client's host its own half, loaded with that client's rows. Both
hosts build the collector from the same configuration, so what parties must agree on beforehand
follows from it, and from what ``Standing`` says of the round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.protection.session import Hub, Identity, Node, Party, Roster
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.statement import Later, Statement
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Wire

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Held:
    """The server's part of a public state that clients keep secret from it (``StateHidden``).

    Args:
        words: how many words of 64 bits the state has.
        table: the encrypted state after the round before; b"" before round 1, whose state is
            public.
    """

    words: int
    table: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """One attempt at a round, as one host sees it.

    Args:
        round: the round, from 1.
        serial: number of the attempt: greater than that of every earlier one.
        clients: int64[P], ascending: who is invited.
        statement: this host's statement of the inputs of uploads; ``Later`` where keys are agreed
            on before it is known.
        series: 16 bytes, by which two federations of the same roster differ.
        roster: keys of all parties.
        keys: what all hosts hold of a layer's own keys (``SharedKeys``); b"" without any.
        epoch: epoch of the beacon from which graph and committee are drawn, where one is due.
        present: int64[k], ascending: who takes part, according to the server, of those invited; all
            of them where every client that is heard takes part.
        held: the public state, if clients keep it secret from the server; otherwise None.
    """

    round: int
    serial: int
    clients: IntArray
    present: IntArray
    statement: Statement | Later
    series: bytes
    roster: Roster
    keys: bytes = b""
    epoch: int = 0
    held: Held | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedKeys:
    """Keys of a layer in addition to those on the roster, made once for a federation.

    Args:
        public: for all hosts.
        private: for the host of one party only, by party.
    """

    public: bytes = b""
    private: Mapping[Node, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Desk:
    """The objects that a helper finds at its host.

    Args:
        wire: wire of a record of what it reads, whose round it completes; None keeps none.
        journal: record of what the helper has committed to.
        secret: its private key of the layer; b"" where it has none.
        own: the rows that the client of this host sends, one segment, if it takes part.
        completes: whether the record's round is complete once the helper has read what it is sent.
    """

    wire: Wire | None = None
    journal: Journal
    secret: bytes = b""
    own: RowBlock | None = None
    completes: bool = True


class HostedSum(Protocol):
    """The server's side of one attempt.

    Attributes:
        hub: the half that forwards all messages.
    """

    hub: Hub

    def aggregate(self) -> Aggregate:
        """Sums and counts, once the hub has finished."""

    def heard(self) -> IntArray:
        """int64[k], ascending: the clients in the sum."""

    def rows_in(self, stage: str, sizes: IntArray) -> tuple[Step, IntArray] | None:
        """Purpose of messages of a stage, and their rows by number of bytes; None for others.

        By default None for all: rounds of the engine count messages themselves.
        """
        return None

    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Record what the server read of the clients' rows, once the hub has finished.

        Args:
            wire: wire of the record.
            arrived: every message that came to the hub.
            aggregate: what the server holds now.
        """


class EveryRowSum(HostedSum):
    """Base of the server's side where an upload has every row of the table."""

    _collector: TableCollector

    def rows_in(self, stage: str, sizes: IntArray) -> tuple[Step, IntArray] | None:
        """An upload has every row."""
        if stage != Step.UPLOAD.name:
            return None
        return Step.UPLOAD, np.full_like(sizes, self._collector.n_items)


class Hosting(Protocol):
    """Halves of a collector's rounds.

    Attributes:
        uploads: stage in which clients send what is summed.
        opens: first stage in which a sum can be read.
        last_stage: the stage that clients answer only once per public state, in any attempt; empty
            if attempts are not limited.
        whole: whether a sum needs every client of an attempt; a repeated attempt is of the
            connected clients.
        drops: whether, in that case, the rules of the sums still count absent invited clients as
            drop-outs.
        unrecorded: why recordings of hosts cannot be joined to one run; empty if they can.
        takes_beacons: whether rounds may be drawn by public randomness.
        anonymous: whether messages reach their readers without senders.
    """

    uploads: str
    opens: str
    last_stage: str
    whole: bool
    drops: bool
    unrecorded: str
    takes_beacons: bool
    anonymous: bool

    def shared_keys(self) -> SharedKeys:
        """New keys of the layer's own, for one federation."""

    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> HostedSum:
        """The server's side.

        Args:
            at: the attempt.
            identity: the server's key.
            generations: what the server remembers of clients' journals; brought up to date.
        """

    def half(self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows) -> Party:
        """A client's half, loaded.

        Args:
            at: the attempt.
            identity: the client's key.
            journal: record of what the client has committed to.
            rows: the rows that it sends.
        """

    def exempt(self, client: int) -> bool:
        """Whether no cloak covers what a client sends."""

    def helpers(self) -> dict[Node, Node]:
        """Parties other than clients and server, each with the client that hosts it (or itself)."""

    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """The half of such a party.

        Args:
            at: the attempt.
            identity: its key.
            desk: what it finds at its host.
        """


@runtime_checkable
class StateHidden(Protocol):
    """Capability of a ``Hosting``: clients keep the public state from the server, which holds it.

    Parties among them that open the sums take the algorithm's step in the server's place, by what
    the collector was given to ``keep`` (``base.StateKeeper``); a sum leaves the next state
    (``Left``).
    """

    def require_key(self, keys: bytes, secret: bytes) -> None:
        """Check that a client's host has the clients' key, before it takes part.

        Args:
            keys: what all hosts hold of it.
            secret: what this host holds.

        Raises:
            ConfigError: the key is missing, damaged, or a different one.
        """

    def read(self, at: Standing, identity: Identity, secret: bytes) -> WordArray | None:
        """uint64[L], the bits of the state that an attempt begins with, at a client.

        None in round 1, whose state is public.

        Args:
            at: the attempt.
            identity: the client's key.
            secret: the clients' private key.

        Raises:
            ProtocolError, WireError: the key is missing, or it is not the state of this round.
        """


@runtime_checkable
class Left(Protocol):
    """Capability of a ``HostedSum``: all that the server has after it is the next ``Held``."""

    @property
    def left(self) -> bytes:
        """The table of the next round, encrypted."""


@runtime_checkable
class DrawnByBeacon(Protocol):
    """Capability of a hub: its round is drawn by public randomness, once advertisements are in."""

    beacon: bytes | None

    @property
    def beacon_due(self) -> int:
        """Epoch of the beacon that the hub awaits; 0 for none."""


@runtime_checkable
class ObservesBeacon(Protocol):
    """Capability of a client's half: it accepts public facts from any party."""

    def observe_beacon(self, epoch: int, value: bytes) -> None:
        """Process the value of an epoch."""


class NoHelpers(Hosting):
    """Base of a ``Hosting`` whose only parties are clients and server."""

    uploads = "UPLOAD"
    opens = "DONE"
    last_stage = ""
    whole = False
    drops = False
    unrecorded = ""
    takes_beacons = False
    anonymous = False

    def shared_keys(self) -> SharedKeys:
        """None."""
        return SharedKeys()

    def exempt(self, client: int) -> bool:
        """No client: helpers are cloaked like other clients."""
        return False

    def helpers(self) -> dict[Node, Node]:
        """None."""
        return {}

    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """There is none.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("node", str(identity.node), "has no part in these rounds")


def read_each(
    arrived: Iterable[bytes], read: Callable[[bytes], tuple[int, Read] | None]
) -> list[tuple[int, int, Read]]:
    """Sender, size and content of each sender's first message of a kind, by sender.

    Args:
        arrived: messages of all kinds, and what a hub has refused.
        read: sender and content of a message; None, or a refusal, if it is not such a message.
    """
    found: dict[int, tuple[int, int, Read]] = {}
    for data in arrived:
        try:
            message = read(data)
        except (ProtocolError, WireError):
            continue
        if message is not None:
            found.setdefault(message[0], (message[0], len(data), message[1]))
    return [found[sender] for sender in sorted(found)]


def require_recorded(hosting: Hosting) -> None:
    """Refuse to record hosts whose records cannot be joined to one run.

    Raises:
        ConfigError: for instance if receivers do not know the senders of messages, since attacks
            could then not be scored.
    """
    if hosting.unrecorded:
        raise ConfigError("--record", True, hosting.unrecorded)


def helpers_at(hosting: Hosting, host: Node) -> list[Node]:
    """The helpers at a host."""
    return [node for node, place in hosting.helpers().items() if place == host]


def joined_clients(numbers: Sequence[int]) -> IntArray:
    """Client numbers as int64[k], ascending."""
    return np.array(sorted(numbers), dtype=np.int64)


def rotation_seed(at: Standing) -> bytes:
    """32 bytes: public seed of an attempt's rotation, unknown before its public state is."""
    attempt = at.series + at.serial.to_bytes(8, "little") + at.statement.digest
    return sha256(b"secure-fedrec|v1|hosted-rotation|" + attempt).digest()
