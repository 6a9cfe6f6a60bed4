"""Bags of rounds whose clients are elsewhere: each client's vectors in one signed message.

They travel beside the client's first message to the hub, so they cost no exchange of their own, and
those of a client that is not in the sum are left out of the bags as well. The message: "SFBG", then
an envelope (``session.envelope``, family ``BAGS``) whose body is, for every bag in order,
u32 vectors | their words, packed to the ring's bits; little-endian.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.packing import pack, packed_size, unpack
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.bags.arrivals import Arrivals
from secure_fedrec.protection.bags.channel import LayeredBags
from secure_fedrec.protection.bags.mixed_hosted import BagAttempt, MixedBagHub, MixedGiver
from secure_fedrec.protection.bags.shapes import require_bags
from secure_fedrec.protection.base import BagChannel
from secure_fedrec.protection.hosting import Hosting, Standing
from secure_fedrec.protection.plain import client_messages
from secure_fedrec.protection.session import SERVER, Hub, Identity, Node, Parcel, Party, Role
from secure_fedrec.protection.session.envelope import Family, open_envelope, seal
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Step, Wire, set_sizes

_MAGIC = b"SFBG"
_DOMAIN = b"secure-fedrec|v1|bags|"


class _Kind(IntEnum):
    VECTORS = 1


def bags_of(channel: BagChannel | None) -> LayeredBags | None:
    """The bags of a stack, where clients elsewhere can give to them.

    Raises:
        ConfigError: they are somebody's own.
    """
    if channel is None or isinstance(channel, LayeredBags):
        return channel
    problem = "runs in the embedded engine only: clients elsewhere cannot give to it"
    raise ConfigError("bag_protection", type(channel).__name__, problem)


class Giver:
    """A client's half that sends its vectors beside its first message (a ``Party``).

    Args:
        half: the half.
        at: the attempt.
        identity: the client's key.
        channel: the bags.
        given: float64 vectors by bag, one segment.

    Raises:
        WireError: a bag is missing or unknown, or its vectors do not fit its sizes.
        EncodingError: a value cannot be encoded.
    """

    def __init__(
        self,
        half: Party,
        at: Standing,
        identity: Identity,
        channel: LayeredBags,
        given: Mapping[str, SetBlock],
    ) -> None:
        require_bags(given, channel.bags, 1)
        self.node = half.node
        self._half = half
        body = b"".join(_encoded(channel, name, given[name]) for name in channel.bags)
        self._message = _MAGIC + seal(
            Family.BAGS,
            _Kind.VECTORS,
            body,
            sender=identity.node,
            key=identity.key,
            round_=at.serial,
            context=_context(at),
        )

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half, and once the vectors (``Party.step``)."""
        parcels = self._half.step(inbox)
        if self._message:
            parcels.append(Parcel(self.node, SERVER, _Kind.VECTORS.name, self._message))
            self._message = b""
        return parcels


class BagHub:
    """A hub that keeps the clients' vectors, and leaves all other messages to another one.

    Args:
        hub: the other one.
        at: the attempt.
        channel: the bags.
    """

    node = SERVER

    def __init__(self, hub: Hub, at: Standing, channel: LayeredBags) -> None:
        self._hub = hub
        self._at = at
        self._channel = channel
        self._given: dict[int, dict[str, SetBlock]] = {}

    @property
    def stage(self) -> str:
        """What the other one awaits."""
        return self._hub.stage

    @property
    def finished(self) -> bool:
        """Whether the other one has."""
        return self._hub.finished

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take vectors out, and pass the rest on (``Hub.step``)."""
        return self._hub.step(self._others(inbox))

    def show(self, wire: Wire) -> None:
        """Record every client's vectors, of those that are not in the sum as well."""
        for name in self._channel.bags:
            for client in sorted(self._given):
                sent = self._sent(client, name)
                wire.show(sent, origins=sent.senders.ids)

    def bags(self, clients: IntArray) -> dict[str, FloatArray]:
        """The bags of some clients: float64[N, d] each, without order or owner.

        Raises:
            ProtocolError: one of them gave none.
        """
        found = {}
        for name, shape in self._channel.bags.items():
            arrivals = Arrivals(
                round_=self._at.round,
                name=name,
                shape=shape,
                due=len(clients),
                most=len(clients) * shape.most,
                codec=self._channel.codec,
            )
            for client in clients.tolist():
                if client not in self._given:
                    raise ProtocolError(f"client {client} gave nothing to the bags")
                sent = self._sent(client, name)
                arrivals.accept(sent, sent)
            found[name] = self._channel.codec.decode(arrivals.close(), spent=True)
        return found

    def _sent(self, client: int, name: str) -> Messages:
        block, shape = self._given[client][name], self._channel.bags[name]
        sizes = set_sizes(block, width=shape.width, codec=self._channel.codec)
        return client_messages(
            self._at.round, np.array([client]), block, sizes, step=Step.BAG, bag=name
        )

    def _others(self, inbox: Iterable[bytes]) -> Iterator[bytes]:
        for data in inbox:
            if data[: len(_MAGIC)] != _MAGIC:
                yield data
                continue
            try:
                self._take(data[len(_MAGIC) :])
            except (ProtocolError, WireError):
                continue  # it is missed where its client is in the sum

    def _take(self, data: bytes) -> None:
        found = open_envelope(
            data,
            family=Family.BAGS,
            kinds=_Kind,
            roster=self._at.roster,
            round_=self._at.serial,
            context=_context(self._at),
        )
        number = found.sender.number
        if found.sender != Node(Role.CLIENT, number) or number not in self._at.clients:
            raise ProtocolError(f"{found.sender} gives to no bag")
        self._given.setdefault(number, _decoded(self._channel, found.body))


def giver_of(
    half: Party,
    at: Standing,
    identity: Identity,
    channel: LayeredBags,
    given: Mapping[str, SetBlock],
) -> Party:
    """A client's half that gives to the bags as well, under its name or through mixes.

    Args:
        half: the half.
        at: the attempt.
        identity: the client's key.
        channel: the bags.
        given: float64 vectors by bag, one segment.
    """
    if channel.mixes is None:
        return Giver(half, at, identity, channel, given)
    return MixedGiver(half, BagAttempt(channel.mixes, at), identity, channel, given)


def bag_hub(
    hub: Hub, at: Standing, identity: Identity, channel: LayeredBags, hosting: Hosting
) -> BagHub | MixedBagHub:
    """A hub that collects what clients give beside what they send to another one.

    Args:
        hub: the other one.
        at: the attempt.
        identity: the server's key.
        channel: the bags.
        hosting: of the round.
    """
    if channel.mixes is None:
        return BagHub(hub, at, channel)
    return MixedBagHub(hub, BagAttempt(channel.mixes, at), identity, hosting)


def _context(at: Standing) -> bytes:
    return sha256(_DOMAIN + at.series + at.roster.hash + at.state).digest()


def _encoded(channel: LayeredBags, name: str, given: SetBlock) -> bytes:
    words = channel.protect(name, given).values
    if words is None:
        raise WireError(f"bag {name!r}: vectors without values")
    packed = pack(np.ascontiguousarray(words).reshape(-1), channel.codec.bits)
    return len(words).to_bytes(4, "little") + bytes(packed)


def _decoded(channel: LayeredBags, body: bytes) -> dict[str, SetBlock]:
    """The vectors of one client by bag.

    Raises:
        WireError: another length, or more vectors than a client may give.
    """
    found, start, bits = {}, 0, channel.codec.bits
    for name, shape in channel.bags.items():
        count = int.from_bytes(body[start : start + 4], "little")
        end = start + 4 + packed_size(count * shape.width, bits)
        if count > shape.most or end > len(body):
            raise WireError(f"bag {name!r}: {count} vectors in {len(body)} bytes")
        words = unpack(body[start + 4 : end], count * shape.width, bits)
        found[name] = SetBlock(
            indptr=np.array([0, count]), values=words.reshape(count, shape.width)
        )
        start = end
    if start != len(body):
        raise WireError("bytes behind the last bag")
    return found
