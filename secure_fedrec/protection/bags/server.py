"""A hub that keeps the vectors which clients give under their names."""

from collections.abc import Iterable, Iterator

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.bags.embedded import LayeredBags
from secure_fedrec.protection.bags.messages import MAGIC, BagKind, decode_vectors, messages_of
from secure_fedrec.protection.bags.named_senders import NamedLine
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.session import SERVER, Hub, Parcel, Role
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Wire


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
        """The stage of the inner hub."""
        return self._hub.stage

    @property
    def finished(self) -> bool:
        """Whether the inner hub has finished."""
        return self._hub.finished

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take vectors out, and pass the other messages on (``Hub.step``)."""
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
            ProtocolError: vectors of a client are missing.
        """
        found = {}
        many = len(clients)
        for name in self._channel.bags:
            arrivals = self._channel.arrivals(self._at.round, name, due=many, clients=many)
            for client in clients.tolist():
                if client not in self._given:
                    raise ProtocolError(f"client {client} gave nothing to the bags")
                sent = self._sent(client, name)
                arrivals.accept(sent, sent)
            found[name] = self._channel.codec.decode(arrivals.close(), spent=True)
        return found

    def _sent(self, client: int, name: str) -> Messages:
        at, given = self._at, {name: self._given[client][name]}
        line = NamedLine(round=at.round, participants=at.clients, codec=self._channel.codec)
        ((_, sent, _),) = line.hand_in(np.array([client]), given)
        return sent

    def _others(self, inbox: Iterable[bytes]) -> Iterator[bytes]:
        for data in inbox:
            if data[: len(MAGIC)] != MAGIC:
                yield data
                continue
            try:
                self._take(data[len(MAGIC) :])
            except (ProtocolError, WireError):
                continue  # noticed later, if its client is in the sum

    def _take(self, data: bytes) -> None:
        sender, body = messages_of(self._at).open(data, BagKind.VECTORS)
        if sender.role is not Role.CLIENT or sender.number not in self._at.clients:
            raise ProtocolError(f"{sender} gives to no bag")
        self._given.setdefault(sender.number, decode_vectors(self._channel, body))
