"""Rows that clients give each other before they train, sealed from host to host.

An algorithm whose clients exchange rows (``algorithms.base.Exchanging``) has two exchanges more in
front of every round: clients make keys of the attempt, and seal what they give to each other. The
server forwards boxes, and sees how many bytes each client gives to which other; a round with a
missing client is aborted. Magic "SFPE", then an envelope of the family ``PEERS``; bodies,
little-endian:

    KEY    the public key
    GIVEN  u32 number of the receiver | box of the rows as ``wire.encode_rows`` writes them
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from typing_extensions import override

from secure_fedrec.engines.peer_exchange import joined_rows
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.folding import encode_block
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.routing import KEMS, OpeningKey, SealingKey
from secure_fedrec.protection.routing.hosted import course_context
from secure_fedrec.protection.session import (
    SERVER,
    Hub,
    Identity,
    Node,
    Parcel,
    Party,
    Role,
    from_server,
    one_of_each,
)
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.uploads import PeerBlock, RowBlock
from secure_fedrec.wire import Step, decode_rows, encode_rows

_MAGIC = b"SFPE"
_KEM = KEMS["x25519"]


class _Kind(IntEnum):
    KEY = 1
    GIVEN = 2


@dataclass(frozen=True, slots=True, eq=False)
class PeerContext:
    """The facts that all clients of an attempt agree on.

    Args:
        at: the attempt.
        codec: the ring in which rows are given.
    """

    at: Standing
    codec: FixedPoint

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The clients."""
        return tuple(Node(Role.CLIENT, number) for number in self.at.clients.tolist())

    @property
    def context(self) -> bytes:
        """The context to which messages are bound."""
        return course_context(self.at, b"peers", self.at.clients)

    @property
    def _messages(self) -> SignedMessages:
        return SignedMessages(Family.PEERS, _Kind, self.at.roster, self.at.serial, self.context)

    def seal(self, kind: _Kind, body: bytes, by: Identity) -> bytes:
        """Sign a message."""
        return _MAGIC + self._messages.seal(kind, body, by)

    def open_each(
        self, inbox: Iterable[bytes], kind: _Kind, due: Sequence[Node]
    ) -> dict[Node, bytes]:
        """Bodies of one message of each of some clients.

        Raises:
            ProtocolError: one is missing; the message says what was refused.
        """

        def read(data: bytes) -> tuple[Node, bytes]:
            return self._messages.open(data.removeprefix(_MAGIC), kind)

        return one_of_each(inbox, read, due, kind.name)

    def info(self, sender: Node, receiver: Node) -> bytes:
        """The facts that a box is bound to besides its key."""
        ends = b"".join(node.number.to_bytes(4, "little") for node in (sender, receiver))
        return self.context + ends


class PeerHub(Hub):
    """A hub whose clients first give each other rows.

    Args:
        hub: the hub that continues from there.
        peers: the clients.
    """

    node = SERVER

    def __init__(self, hub: Hub, peers: PeerContext) -> None:
        self._hub = hub
        self._peers = peers
        self._stage = "CREATED"

    @property
    @override
    def stage(self) -> str:
        return self._stage or self._hub.stage

    @property
    @override
    def finished(self) -> bool:
        return not self._stage and self._hub.finished

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Request keys, distribute them, then act as the other hub (``Hub.step``).

        Raises:
            ProtocolError: a client's key is missing, or the other hub refuses.
        """
        peers = self._peers
        if self._stage == "CREATED":
            self._stage = "PEER-KEYS"
            return from_server(peers.nodes, _Kind.KEY.name, b"")
        if self._stage == "PEER-KEYS":
            keys = list(inbox)
            peers.open_each(keys, _Kind.KEY, peers.nodes)
            self._stage = "PEERS"
            return from_server(peers.nodes, _Kind.KEY.name, *keys)
        if self._stage == "PEERS":
            for _ in inbox:
                pass
            self._stage = ""
            return self._hub.step(())
        return self._hub.step(inbox)


class PeerParty:
    """A client that exchanges rows before its work (a ``Party``).

    Args:
        peers: the clients.
        identity: its key.
        give: makes the rows that it gives to others.
        work: makes its half of the following rounds from the rows it was given.
    """

    def __init__(
        self,
        peers: PeerContext,
        identity: Identity,
        give: Callable[[], PeerBlock],
        work: Callable[[PeerBlock], Party],
    ) -> None:
        self.node = identity.node
        self._peers = peers
        self._identity = identity
        self._give = give
        self._work = work
        self._key: OpeningKey | None = None
        self._given = False
        self._half: Party | None = None

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Answer with a key, after all keys with boxes, then as the half (``Party.step``).

        Raises:
            ProtocolError, WireError: something is missing or refused.
        """
        if self._half is not None:
            return self._half.step(inbox)
        peers = self._peers
        if self._key is None:
            self._key = OpeningKey.generate(_KEM)
            sealed = peers.seal(_Kind.KEY, self._key.public.data, self._identity)
            return [Parcel(self.node, SERVER, _Kind.KEY.name, sealed)]
        if not self._given:
            keys = peers.open_each(inbox, _Kind.KEY, peers.nodes)
            self._given = True
            return self._boxes(keys)
        mine = [data for data in inbox if data[: len(_MAGIC)] == _MAGIC]
        self._half = self._work(self._opened(mine, self._key))
        return self._half.step([data for data in inbox if data[: len(_MAGIC)] != _MAGIC])

    def _boxes(self, keys: Mapping[Node, bytes]) -> list[Parcel]:
        given, peers = self._give(), self._peers
        sent = []
        words = encode_block(given.block, peers.codec)
        for number, block in zip(given.receivers.tolist(), words.split(), strict=True):
            to = Node(Role.CLIENT, number)
            if to not in keys:
                raise ProtocolError(f"{to}, which is to be given to, takes no part")
            rows = encode_rows(block, round_=peers.at.round, step=Step.PEER, codec=peers.codec)
            box = SealingKey(_KEM, keys[to]).seal(rows, peers.info(self.node, to))
            body = number.to_bytes(4, "little") + box
            data = peers.seal(_Kind.GIVEN, body, self._identity)
            sent.append(Parcel(self.node, to, _Kind.GIVEN.name, data))
        return sent

    def _opened(self, inbox: Sequence[bytes], key: OpeningKey) -> PeerBlock:
        """The rows that every other client gave, by sender.

        Raises:
            ProtocolError, WireError: a message is missing, for another client, or of another round.
        """
        peers = self._peers
        others = [node for node in peers.nodes if node != self.node]
        blocks: list[RowBlock] = []
        for sender, body in peers.open_each(inbox, _Kind.GIVEN, others).items():
            if body[:4] != self.node.number.to_bytes(4, "little"):
                raise ProtocolError(f"the rows that {sender} gives are for another client")
            rows = key.open(body[4:], peers.info(sender, self.node))
            round_, step, block = decode_rows(rows, codec=peers.codec, n_rows=2**31 - 1)
            if (round_, step) != (peers.at.round, Step.PEER) or block.values is None:
                raise WireError(f"{sender} gives rows of another round")
            blocks.append(replace(block, values=peers.codec.decode(block.values)))
        return PeerBlock(
            senders=np.array([node.number for node in others]),
            receivers=np.full(len(others), self.node.number),
            block=joined_rows(blocks),
        )
