"""Whole rounds in one process: for simulations, examples and tests.

Every byte passes through the two halves exactly as it would over a network. Clients drop out where
a drop pattern says, as a crash there would look to the server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.config.policy import EncodedVector, Expected, SitePolicy
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import SERVER, Kind
from secure_fedrec.protection.masking.messages.keys import fresh_key
from secure_fedrec.protection.masking.server.half import MaskingServer
from secure_fedrec.protection.masking.server.recovery import Fault
from secure_fedrec.protection.session.journal import Journal, MemoryJournal
from secure_fedrec.protection.session.nodes import Role
from secure_fedrec.protection.session.parties import Carrier, MemoryChannel, Parcel, drive
from secure_fedrec.protection.session.roster import Identity, Roster
from secure_fedrec.protection.session.statement import NO_STATEMENT, Later, Statement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundOutcome:
    """A finished round.

    Args:
        words: ring words of the sum.
        survivors: int64[|S|], the clients in it.
        faults: clients found at fault.
        aborted: why clients left the round, by number.
        dropped: why the server dropped clients, by number.
        transcript_root: Merkle root over the round's signed messages.
        sent: bytes from clients to the server.
        received: bytes from the server to clients.
    """

    words: RingArray
    survivors: IntArray
    faults: tuple[Fault, ...]
    aborted: Mapping[int, str]
    dropped: Mapping[int, str]
    transcript_root: bytes
    sent: int
    received: int


class Federation:
    """Identities, roster and journals of simulated clients, kept from round to round.

    Args:
        clients: client numbers.
        policy: the conditions of every site.

    Raises:
        ConfigError: a number is out of range or repeats.
    """

    def __init__(self, clients: Sequence[int], *, policy: SitePolicy | None = None) -> None:
        if len(set(clients)) != len(clients):
            raise ConfigError("federation.clients", list(clients)[:3], "must be distinct")
        self.policy = SitePolicy() if policy is None else policy
        self.server = Identity.generate(SERVER)
        self.identities = {number: Identity.generate(number) for number in sorted(clients)}
        self.roster = Roster.sign(
            Ed25519PrivateKey.generate(),
            version=1,
            server=self.server.public,
            clients={number: identity.public for number, identity in self.identities.items()},
        )
        self.journals: dict[int, Journal] = {number: MemoryJournal() for number in self.identities}
        self.generations: dict[bytes, int] = {}
        self.rounds = 0
        self.beacons: dict[int, bytes] = {}

    def sum(
        self,
        config: MaskingConfig,
        vectors: Mapping[int, EncodedVector],
        *,
        statement: Statement | None = None,
        drops: Mapping[int, Kind] | None = None,
        absent: Iterable[int] = (),
    ) -> RoundOutcome:
        """Sum the vectors of a cohort; a sparse graph gets the next beacon (``run_round``).

        Args:
            config: settings of the sum; ``statement`` replaces its statement.
            vectors: by client.
            statement: what they were computed from; against an active server there must be one.
            drops: as ``run_round``.
            absent: clients of the cohort without a vector, which never answer.
        """
        stated = NO_STATEMENT if statement is None else statement.digest
        config = replace(config, statement=stated)
        epoch = max(self.beacons, default=0) + 1 if config.needs_beacon else 0
        cohort = np.array(sorted({*vectors, *absent}), dtype=np.int64)
        server = self.open_server(config, cohort, epoch=epoch)
        expected = Expected(layout_hash=config.layout_hash, statement=statement)
        clients = {number: self.open_client(number, expected) for number in vectors}
        beacon = None
        if epoch:
            beacon = self.beacons[epoch] = fresh_key()
        return run_round(server, clients, vectors, drops=drops, epoch=epoch, beacon=beacon)

    def open_server(
        self,
        config: MaskingConfig,
        cohort: IntArray,
        *,
        epoch: int = 0,
        later: Later | None = None,
    ) -> MaskingServer:
        """The server half of the next round (arguments: ``MaskingServer``)."""
        self.rounds += 1
        return MaskingServer(
            identity=self.server,
            roster=self.roster,
            config=config,
            cohort=cohort,
            round_number=self.rounds,
            epoch=epoch,
            generations=self.generations,
            later=later,
        )

    def open_client(self, number: int, expected: Expected) -> MaskingClient:
        """The client half of a round; it has observed every beacon so far."""
        client = MaskingClient(
            identity=self.identities[number],
            roster=self.roster,
            policy=self.policy,
            journal=self.journals[number],
            expected=expected,
        )
        for epoch, value in self.beacons.items():
            client.observe_beacon(epoch, value)
        return client


def run_round(
    server: MaskingServer,
    clients: Mapping[int, MaskingClient],
    vectors: Mapping[int, EncodedVector],
    *,
    drops: Mapping[int, Kind] | None = None,
    epoch: int = 0,
    beacon: bytes | None = None,
    carrier: Carrier | None = None,
) -> RoundOutcome:
    """Drive a round to its end.

    Args:
        server: the server half, not started.
        clients: the client halves by number.
        vectors: what each client uploads.
        drops: the message that a client is the first not to send (ADVERTISE, SHARES, UPLOAD,
            CONFIRM or REVEAL); it stays silent from then on. (A client that is not on the committee
            owes no CONFIRM, and is silent from QUORUM on.)
        epoch: epoch of the beacon, 0 without one.
        beacon: public randomness of that epoch, published once advertisements are closed.
        carrier: carries messages between the halves; by default everything arrives.

    Raises:
        ProtocolError: the round aborted; there is no partial result.
    """
    for number, client in clients.items():
        client.load(vectors[number])
    losses = _Losses({} if drops is None else drops)
    channel = MemoryChannel(clients.values(), carrier, losses.passes)

    def publish(stage: str) -> None:
        if beacon is not None and stage == Kind.ADVERTISE.name:
            server.beacon = beacon
            for client in clients.values():
                client.observe_beacon(epoch, beacon)

    def aborted() -> dict[int, str]:
        return {node.number: reason for node, reason in channel.refused.items()}

    try:
        drive(server, channel, between=publish)
    except ProtocolError as error:
        gone = aborted() | dict(server.dropped)
        why = "".join(f"; client {number}: {reason}" for number, reason in gone.items())
        raise ProtocolError(f"{error}{why}") from None
    return RoundOutcome(
        words=server.result,
        survivors=server.survivors,
        faults=server.faults,
        aborted=aborted(),
        dropped=server.dropped,
        transcript_root=server.transcript_root,
        sent=losses.sent,
        received=losses.received,
    )


class _Losses:
    """Clients that stop sending, as after a crash, and the traffic of the others.

    Args:
        drops: the message that a client is the first not to send.
    """

    def __init__(self, drops: Mapping[int, Kind]) -> None:
        self._drops = drops
        self._silent: set[int] = set()
        self.sent = self.received = 0

    def passes(self, parcel: Parcel) -> bool:
        """Whether a message is sent, and counted."""
        by_server = parcel.sender.role is Role.SERVER
        number = (parcel.receiver if by_server else parcel.sender).number
        dropped = self._drops.get(number)
        if dropped is not None and Kind[parcel.stage] >= dropped:
            self._silent.add(number)
        if number in self._silent:
            return False
        if by_server:
            self.received += len(parcel.data)
        else:
            self.sent += len(parcel.data)
        return True
