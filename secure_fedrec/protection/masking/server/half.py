"""The server half of a masked sum: takes and gives bytes, owns no socket, thread or clock.

``start`` gives the first messages; ``receive`` takes one message of a client at a time; when
all have answered, or the host's timeout is over, ``close_step`` goes on with those that have.
``step`` does all of it, for a driver. A step that is left with too few clients aborts the round:
there is no partial result.

Messages that are not awaited are refused with ``ProtocolError``. A message without a proven sender
does not change the state: an unknown layout, another round, a bad signature or MAC, bytes behind a
signature that does not cover them, a client that is not awaited. So a third party cannot drop a
client by sending in its name. But a message that proves its sender and breaks a rule costs that
sender the round, as if it had gone silent, and no other client: it is named in ``dropped``.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import pack
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, Kind
from secure_fedrec.protection.masking.server.recovery import Fault
from secure_fedrec.protection.masking.server.steps import Outgoing, ServerRound
from secure_fedrec.protection.session.nodes import SERVER as SERVER_NODE
from secure_fedrec.protection.session.nodes import Role, node_of
from secure_fedrec.protection.session.parties import Parcel, refusals_of
from secure_fedrec.protection.session.roster import Identity, Roster
from secure_fedrec.protection.session.statement import Later, Statement


class ServerState(Enum):
    """What the server awaits; the value of a waiting state is the kind of message."""

    CREATED = "created"
    ADVERTISE = Kind.ADVERTISE
    SHARES = Kind.SHARES
    UPLOAD = Kind.UPLOAD
    CONFIRM = Kind.CONFIRM
    REVEAL = Kind.REVEAL
    DONE = "done"
    ABORTED = "aborted"


_Accept = Callable[[ServerRound, Envelope], None]
_Close = Callable[[ServerRound], list[Outgoing]]
_STEPS: dict[ServerState, tuple[_Accept, _Close]] = {
    ServerState.ADVERTISE: (ServerRound.accept_keys, ServerRound.close_keys),
    ServerState.SHARES: (ServerRound.accept_shares, ServerRound.close_shares),
    ServerState.UPLOAD: (ServerRound.accept_upload, ServerRound.close_uploads),
    ServerState.CONFIRM: (ServerRound.accept_confirmation, ServerRound.close_confirmations),
    ServerState.REVEAL: (ServerRound.accept_reveal, ServerRound.close_reveals),
}
_AFTER = dict(pairwise(ServerState))


class MaskingServer:
    """The server of one round.

    Args:
        identity: the server's signing key, as the roster lists it.
        roster: the roster.
        config: the configuration.
        cohort: int64[n], client numbers, ascending.
        round_number: at least 1, and beyond that of every earlier round.
        epoch: epoch of the beacon that seeds the graph or drew the cohort; 0 without one.
        generations: highest generation of its journal that each signing key has advertised; the
            host keeps it from round to round, and it is brought up to date in place. A client that
            comes back with an old copy of its journal is dropped here, before its peers would have
            to leave the round.
        later: the round's agreement whose statement is named with the vectors (``name_statement``),
            where keys are agreed on before; None where the configuration's is the round's.

    Attributes:
        beacon: the epoch's public randomness, for ``step`` to close advertisements with.

    Raises:
        ConfigError: an argument does not fit the others.
    """

    node = SERVER_NODE

    def __init__(
        self,
        *,
        identity: Identity,
        roster: Roster,
        config: MaskingConfig,
        cohort: IntArray,
        round_number: int,
        epoch: int = 0,
        generations: dict[bytes, int] | None = None,
        later: Later | None = None,
    ) -> None:
        _require_fitting(identity, roster, config, cohort, round_number, epoch, later)
        self.state = ServerState.CREATED
        self.abort_reason: str | None = None
        self.beacon: bytes | None = None
        self._round = ServerRound(
            identity=identity,
            roster=roster,
            config=config,
            cohort=cohort,
            round_number=round_number,
            epoch=epoch,
            generations={} if generations is None else generations,
            later=later,
        )
        self._dropped: dict[int, str] = {}
        self._awaiting: set[int] = set()

    @property
    def awaiting(self) -> frozenset[int]:
        """Clients that may still answer this step."""
        return frozenset(self._awaiting)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Clients found at fault so far."""
        return self._round.faults

    @property
    def dropped(self) -> Mapping[int, str]:
        """Clients that were dropped for a message against the rules, with the message."""
        return MappingProxyType(self._dropped)

    @property
    def beacon_due(self) -> int:
        """Epoch whose beacon closes the advertisements; 0 where none is due, or once they are."""
        public, asked = self._round.public, (ServerState.CREATED, ServerState.ADVERTISE)
        return public.epoch if public.beacon_due and self.state in asked else 0

    def require_advertised(self) -> None:
        """Check that enough clients have advertised for a beacon to draw from.

        Raises:
            ProtocolError: fewer clients have advertised keys than a sum needs.
        """
        self._round.require_advertised()

    @property
    def round_number(self) -> int:
        """The round's number."""
        return int.from_bytes(self._round.public.context.round_id[:8], "little")

    def could_sum(self, clients: IntArray) -> bool:
        """Whether a sum is possible if these clients (int64[...]), which have shared, upload."""
        shared = np.isin(self._round.public.cohort, clients) & self._round.shared
        try:
            self._round.require_summable(shared)
        except ProtocolError:
            return False
        return True

    @property
    def sharers(self) -> IntArray:
        """int64[...], clients whose keys are agreed on so far: only they can be in the sum."""
        return self._round.public.cohort[self._round.shared]

    @property
    def survivors(self) -> IntArray:
        """int64[|S|], the clients in the sum.

        Raises:
            ProtocolError: the round does not have a result.
        """
        done = self._done()
        return done.public.cohort[done.survivors]

    @property
    def result(self) -> RingArray:
        """Ring words of the sum.

        Raises:
            ProtocolError: the round does not have a result.
        """
        return self._done().result

    @property
    def packed_result(self) -> bytes:
        """The sum as bytes that clients can check (``MaskingClient.open_result``).

        Raises:
            ProtocolError: the round does not have a result.
        """
        return bytes(pack(self.result, self._round.public.config.bits))

    @property
    def transcript_root(self) -> bytes:
        """Merkle root over every message that the round rests on.

        Raises:
            ProtocolError: the round does not have a result.
        """
        return self._done().transcript_root

    @property
    def stage(self) -> str:
        """Kind of message that is awaited, or the state before or after."""
        return self.state.name

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.state is ServerState.DONE

    def name_statement(self, statement: Statement) -> None:
        """State what vectors are computed from, in a round that began with ``Later``.

        Raises:
            ProtocolError: the statement was named before, or is of another federation.
        """
        later = self._round.later
        if later is None or later != statement.later:
            raise ProtocolError("this round's statement is named already, or not of its federation")
        self._round.stated, self._round.later = statement.digest, None

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Begin; or take what clients answered, and go on with them (``Party.step``).

        A refused message drops at most its sender and does not end the round: ``dropped`` and
            ``faults`` tell.

        Raises:
            ProtocolError: too few clients are left, and the round is aborted; or it is over.
        """
        if self.state is ServerState.CREATED:
            outgoing = self.start()
        else:
            refusals_of(inbox, self.receive)
            due = self.beacon if self.state is ServerState.ADVERTISE else None
            outgoing = self.close_step(beacon=due)
        return [
            Parcel(self.node, node_of(Role.CLIENT, client), Kind(data[1]).name, data)
            for client, data in outgoing
        ]

    def start(self) -> list[Outgoing]:
        """The SETUP messages.

        Raises:
            ProtocolError: the round has started already.
        """
        if self.state is not ServerState.CREATED:
            raise ProtocolError(f"the round has started: state {self.state.name}")
        outgoing = self._round.setup()
        self._await(ServerState.ADVERTISE, outgoing)
        return outgoing

    def receive(self, data: bytes) -> None:
        """Take one message of a client.

        Raises:
            ProtocolError: it is refused; if it proved its sender, that client is ``dropped``.
        """
        # Vectors wait to be added as views of their messages: a caller's buffer could change.
        envelope = Envelope.decode(bytes(data))
        name, current = envelope.kind.name, self._round
        if self.state.value is not envelope.kind:
            raise ProtocolError(f"{name}: the server is in state {self.state.name}")
        if envelope.context != current.public.context:
            raise ProtocolError(f"{name}: another round, configuration, roster or cohort")
        if envelope.sender not in self._awaiting:
            raise ProtocolError(f"{name}: client {envelope.sender} is not awaited")
        if envelope.kind is not Kind.UPLOAD:
            envelope.require_no_payload()
        current.require_authentic(envelope)
        self._awaiting.discard(envelope.sender)
        try:
            accept, _ = _STEPS[self.state]
            accept(current, envelope)
        except ProtocolError as error:
            # Only its sender can have made the message, so the sender is treated as dropped out.
            self._dropped[envelope.sender] = str(error)
            fault = Fault(kind="bad message", client=envelope.sender, about=envelope.sender)
            current.blame(fault)
            raise

    def close_step(self, *, beacon: bytes | None = None) -> list[Outgoing]:
        """Go on with the clients that have answered.

        Args:
            beacon: the epoch's public randomness, where it seeds the graph and advertisements are
                being closed.

        Returns:
            Messages of the next step.

        Raises:
            ProtocolError: nothing is awaited, or a beacon or the public state is missing (the step
                stays open); or too few clients are left and the round is aborted.
        """
        if self.state not in _STEPS:
            raise ProtocolError(f"nothing is awaited in state {self.state.name}")
        if self.state is ServerState.ADVERTISE:
            self._round.take_beacon(beacon)
        if self.state is ServerState.SHARES:
            self._require_statement()
        _, close = _STEPS[self.state]
        try:
            outgoing = close(self._round)
        except Exception as error:
            self.abort(str(error))
            raise
        outgoing = [each for each in outgoing if each.receiver not in self._dropped]
        agreed = self.state is ServerState.UPLOAD and not self._round.public.config.agrees
        self._await(ServerState.REVEAL if agreed else _AFTER[self.state], outgoing)
        return outgoing

    def abort(self, reason: str) -> None:
        """End the round without a result."""
        self.state = ServerState.ABORTED
        self.abort_reason = reason
        self._awaiting.clear()
        self._round.wipe()

    def _await(self, state: ServerState, outgoing: list[Outgoing]) -> None:
        self.state = state
        done = state is ServerState.DONE
        self._awaiting = set() if done else {message.receiver for message in outgoing}
        if state is ServerState.CONFIRM:
            self._awaiting &= self._round.signers

    def _require_statement(self) -> None:
        if self._round.later is not None:
            raise ProtocolError("the statement that vectors are computed from is not named yet")

    def _done(self) -> ServerRound:
        if self.state is not ServerState.DONE:
            raise ProtocolError(f"there is no result in state {self.state.name}")
        return self._round


def _require_fitting(
    identity: Identity,
    roster: Roster,
    config: MaskingConfig,
    cohort: IntArray,
    round_number: int,
    epoch: int,
    later: Later | None,
) -> None:
    if identity.number != SERVER or identity.public != roster.server:
        raise ConfigError("server.identity", identity.number, "is not the server of the roster")
    if len(cohort) != config.clients or np.any(np.diff(cohort) <= 0):
        raise ConfigError(
            "server.cohort", len(cohort), f"must be {config.clients} ascending client numbers"
        )
    strangers = cohort[~np.isin(cohort, roster.numbers)]
    if len(strangers):
        raise ConfigError("server.cohort", strangers[:3].tolist(), "is not on the roster")
    if config.lacks_statement:
        raise ConfigError(
            "masking.statement",
            "(none)",
            "against an active server must state what vectors are computed from (Statement.digest)",
        )
    if later is not None and later.digest != config.statement:
        raise ConfigError("masking.statement", config.statement.hex(), "is not what comes later")
    for key, value, low in (("round_number", round_number, 1), ("epoch", epoch, 0)):
        if not low <= value < 2**64:
            raise ConfigError(f"server.{key}", value, f"must be between {low} and 2^64 - 1")
    if config.needs_beacon and not epoch:
        raise ConfigError(
            "server.epoch",
            epoch,
            "a sparse graph against an active server needs the epoch of a beacon",
        )
