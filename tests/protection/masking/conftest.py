"""Rounds that can be stopped anywhere: every message of every step at hand, in real bytes."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    MaskingClient,
    MaskingConfig,
    MaskingServer,
    Outgoing,
    ServerState,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.envelope import (
    MAC_PURPOSES,
    SERVER,
    Envelope,
    seal,
    seal_for_server,
)
from tests.statements import about

NUMBERS = (3, 7, 20, 21, 40)
STATES = itertools.count(1)
"""Every round has a public state of its own, unless it says otherwise."""


class Scene:
    """A round of a few clients, driven by hand."""

    def __init__(
        self,
        *,
        numbers: Sequence[int] = NUMBERS,
        length: int = 6,
        bits: int = 20,
        policy: SitePolicy | None = None,
        epoch: int = 0,
        federation: Federation | None = None,
        **settings: Any,
    ) -> None:
        n = len(numbers)
        self.layout = SumLayout(bits=bits, length=length, clients=n, largest=100)
        self.federation = federation or Federation(
            numbers, policy=policy or SitePolicy(corrupt=0.0, dropout=0.4)
        )
        defaults: dict[str, Any] = {
            "threshold": 2,
            "min_survivors": 3,
            "quorum": n // 2 + 1,
            "corrupt_clients": 0,
        }
        self.state = settings.pop("state", next(STATES).to_bytes(32, "little"))
        self.config = MaskingConfig(
            statement=about(self.state).digest,
            clients=n,
            bits=bits,
            length=length,
            layout_hash=self.layout.hash,
            **(defaults | settings),
        )
        rng = np.random.default_rng(5)
        self.values = {number: rng.integers(-100, 101, length) for number in numbers}
        cohort = np.array(sorted(numbers), dtype=np.int64)
        self.server: MaskingServer = self.federation.open_server(self.config, cohort, epoch=epoch)
        self.expected = Expected(layout_hash=self.layout.hash, statement=about(self.state))
        self.clients: dict[int, MaskingClient] = {}
        for number in numbers:
            client = self.federation.open_client(number, self.expected)
            client.load(self.layout.encode(self.values[number]))
            self.clients[number] = client
        self.outgoing: list[Outgoing] = []
        self.replies: dict[int, bytes] = {}
        self.beacon: bytes | None = None

    def until_clients_get(self, kind: Kind, *, silent: Mapping[int, Kind] | None = None) -> None:
        """Run until messages of a kind wait to be delivered to the clients."""
        self.outgoing = self.server.start()
        while self.outgoing[0].data[1] != kind:
            self._turn(silent or {})
            self.outgoing = self._close()

    def until_server_gets(self, kind: Kind, *, silent: Mapping[int, Kind] | None = None) -> None:
        """Run until messages of a kind wait to be delivered to the server (``replies``)."""
        before = Kind(kind - 1)
        self.until_clients_get(before, silent=silent)
        self._answer(silent or {})

    def finish(self) -> None:
        """Deliver ``replies`` and go on to the end."""
        self._deliver()
        self.outgoing = self.server.close_step()
        while self.outgoing[0].data[1] != Kind.RESULT:
            self._turn({})
            self.outgoing = self.server.close_step()
        for number, data in self.outgoing:
            self.clients[number].receive(data)

    def message_for(self, number: int) -> bytes:
        """The waiting message of a client."""
        return next(data for receiver, data in self.outgoing if receiver == number)

    def server_says(
        self, data: bytes, *, head: bytes | None = None, payload: bytes | None = None
    ) -> bytes:
        """A message of the server with another content, signed by the server all the same."""
        envelope = Envelope.decode(data)
        return seal(
            self.federation.server.key,
            envelope.context,
            envelope.kind,
            SERVER,
            envelope.head if head is None else head,
            bytes(envelope.payload) if payload is None else payload,
        )

    def client_says(
        self, data: bytes, *, head: bytes | None = None, payload: bytes | None = None
    ) -> bytes:
        """A message of a client with another content, under its own signature or MAC."""
        envelope = Envelope.decode(data)
        new_head = envelope.head if head is None else head
        new_payload = bytes(envelope.payload) if payload is None else payload
        if envelope.kind in MAC_PURPOSES:
            purpose = MAC_PURPOSES[envelope.kind]
            key = self.server._round._client_keys[envelope.sender][purpose]
            return seal_for_server(
                key, envelope.context, envelope.kind, envelope.sender, new_head, new_payload
            )
        own = self.federation.identities[envelope.sender].key
        return seal(own, envelope.context, envelope.kind, envelope.sender, new_head, new_payload)

    def total(self, numbers: Sequence[int]) -> Any:
        """Sum of the clear vectors of some clients."""
        return sum((self.values[number] for number in numbers), np.zeros(self.config.length, int))

    def _turn(self, silent: Mapping[int, Kind]) -> None:
        self._answer(silent)
        self._deliver()

    def _close(self) -> list[Outgoing]:
        due = self.beacon if self.server.state is ServerState.ADVERTISE else None
        if due is not None:
            for client in self.clients.values():
                client.observe_beacon(self.server._round.public.epoch, due)
        return self.server.close_step(beacon=due)

    def _answer(self, silent: Mapping[int, Kind]) -> None:
        self.replies = {}
        for number, data in self.outgoing:
            for reply in self.clients[number].receive(data):
                if silent.get(number, 99) > reply[1]:
                    self.replies[number] = reply

    def _deliver(self) -> None:
        for reply in self.replies.values():
            self.server.receive(reply)
        self.replies = {}


@pytest.fixture(scope="session")
def scene() -> Callable[..., Any]:
    """Makes a round that can be stopped anywhere."""
    return Scene
