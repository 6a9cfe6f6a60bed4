"""The client half of a masked sum: takes and gives bytes, owns no socket, thread or clock.

    SETUP -> ADVERTISE, KEYS -> SHARES, BOXES -> UPLOAD, SURVIVORS -> CONFIRM (of who is to
    sign), QUORUM -> REVEAL, RESULT

A ``MaskingClient`` lives for one round. Its state is the kind of message that it awaits. A curious
server names one set of survivors: there SURVIVORS -> REVEAL.

- A message that is not the server's, or not awaited, is *refused*: ``ProtocolError``, and nothing
  has changed. So is a SETUP that the client does not take part in, such as an old one that a third
  party sends again: a client is in no round before its journal says so.
- Any other message of the server that breaks a rule *aborts* the round: ``ProtocolError``, secrets
  are released, and every later message is refused.

Protocol: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017, with the sparse graph of Bell et al., CCS 2020, one set of survivors agreed by signatures
before anything is unmasked, and a signature of each client over the sharers that it masked by.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from hmac import compare_digest
from itertools import pairwise
from pathlib import Path

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, RefusalError
from secure_fedrec.fixedpoint import unpack
from secure_fedrec.protection.masking.client.resumable import ResumableRound
from secure_fedrec.protection.masking.client.sealed_state import AWAITED, Parked, park
from secure_fedrec.protection.masking.config.policy import (
    EncodedVector,
    Expected,
    SitePolicy,
    require_fitting,
)
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, Kind
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.nodes import SERVER as SERVER_NODE
from secure_fedrec.protection.session.nodes import Role, node_of
from secure_fedrec.protection.session.parties import Parcel, replies_to
from secure_fedrec.protection.session.roster import Identity, Roster
from secure_fedrec.protection.session.statement import NO_STATEMENT, Agreed, Statement


class ClientState(Enum):
    """What a client awaits; the value of a waiting state is the kind of message."""

    SETUP = Kind.SETUP
    KEYS = Kind.KEYS
    BOXES = Kind.BOXES
    SURVIVORS = Kind.SURVIVORS
    QUORUM = Kind.QUORUM
    RESULT = Kind.RESULT
    DONE = "done"
    ABORTED = "aborted"


_AFTER = dict(pairwise(ClientState))


class MaskingClient:
    """One client in one round.

    Args:
        identity: the client's signing key.
        roster: read with the pinned operator key.
        policy: conditions of this site.
        journal: what the client has committed to in this and earlier rounds.
        expected: facts that the SETUP of the round must match.

    Raises:
        ConfigError: the roster lists another key for this client, or the site takes part against
            an active server and ``expected`` names no statement.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        roster: Roster,
        policy: SitePolicy,
        journal: Journal,
        expected: Expected,
    ) -> None:
        if roster.key_of(identity.number) != identity.public:
            raise ConfigError("identity", identity.number, "the roster lists another key")
        if policy.adversary == "active" and expected.statement is None:
            raise ConfigError(
                "expected.statement",
                "(none)",
                "against an active server must state what the vector is computed from (Statement)",
            )
        self.number = identity.number
        self.node = node_of(Role.CLIENT, identity.number)
        self.state = ClientState.SETUP
        self.abort_reason: str | None = None
        self._identity = identity
        self._roster = roster
        self._server_key = roster.server
        self._policy = policy
        self._journal = journal
        self._expected = expected
        self._beacons: dict[int, bytes] = {}
        self._vector: EncodedVector | None = None
        self._agreed: Agreed | None = None
        self._round: ResumableRound | None = None
        self._told: dict[Kind, bytes] = {}

    def observe_beacon(self, epoch: int, value: bytes) -> None:
        """Record public randomness as soon as it is published.

        Args:
            epoch: at least 1.
            value: 32 bytes, verified by the caller against the beacon's own signature.

        Raises:
            ProtocolError: malformed, or another value was observed for this epoch.
        """
        if epoch < 1 or len(value) != 32 or self._beacons.get(epoch, value) != value:
            raise ProtocolError(f"the beacon of epoch {epoch} is malformed or contradicts itself")
        self._beacons[epoch] = value

    def load(self, vector: EncodedVector, *, statement: Statement | None = None) -> None:
        """Hand over the vector; it must be here before BOXES.

        Args:
            vector: the vector.
            statement: what it was computed from, as this host makes it: exactly in a round that
                began with one that comes later (``Later``).

        Raises:
            ConfigError: a statement is missing, or it is one too many, or of another federation.
            ProtocolError: too late, or it is not of the expected layout.
        """
        agreed = self._expected.agreed(statement)
        if self.state not in (ClientState.SETUP, ClientState.KEYS, ClientState.BOXES):
            raise ProtocolError(f"client {self.number} takes no vector in state {self.state.name}")
        if vector.layout_hash != self._expected.layout_hash:
            raise ProtocolError("the vector is not of the expected layout")
        if self._round is not None:
            require_fitting(vector, self._round.config)
        self._vector, self._agreed = vector, agreed

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Handle the messages that came, those that are refused left out (``Party.step``).

        Raises:
            ProtocolError: all of them were refused, or one made the client leave the round.
            CheckpointError: the journal cannot be written; nothing is sent.
        """
        replies = replies_to(inbox, self.receive, gone=lambda: self.state is ClientState.ABORTED)
        return [Parcel(self.node, SERVER_NODE, Kind(reply[1]).name, reply) for reply in replies]

    def receive(self, data: bytes) -> list[bytes]:
        """Handle one message of the server.

        Returns:
            Messages to the server.

        Raises:
            ProtocolError: the message is refused, or the round was aborted.
            CheckpointError: the journal cannot be written; nothing is sent.
        """
        envelope = Envelope.decode(data)
        stored = self._stored_reveal(envelope)
        if stored is not None:
            return [stored]
        self._require_awaited(envelope)
        envelope.verify(self._server_key)
        self._require_ready(envelope)
        try:
            messages = self._handle(envelope)
        except Exception as error:
            if self._round is not None:
                self.abort(str(error))
            raise
        self._told[envelope.kind] = data
        self.state = self._next()
        return messages

    def save(self, path: Path, key: bytes) -> None:
        """Stop this half and save the state for another process (``saved``, ``resume``).

        Args:
            path: a file for this client alone; mode 0600.
            key: 32 bytes that seal it, from a key store apart from it.

        Raises:
            ProtocolError: no round is in progress, or something was revealed in it.
            ConfigError: the key has another size.
            CheckpointError, OSError: journal or file cannot be written. This half goes on, unless
                the journal's ticket could not be struck again either: then neither half is sure to
                be the only one, and this one leaves.
        """
        current, awaits = self._round, self.state.value
        if current is None or awaits not in AWAITED:
            raise ProtocolError(f"client {self.number} saves nothing in state {self.state.name}")
        state = current.save(
            awaits,
            told=self._told,
            beacons=self._beacons,
            vector=self._vector,
            agreed=self._agreed,
        )
        round_id = current.public.context.round_id
        try:
            park(path, state, key=key, round_id=round_id, journal=self._journal)
        except BaseException:
            if self._journal.parked(round_id):
                self.abort("its state may have been saved, and nothing could take that back")
            raise
        self.abort("its state was saved; another half goes on")

    def resume(self, path: Path, key: bytes) -> None:
        """Go on from a saved state, which serves once: its ticket is struck, its file erased.

        What refuses a state comes before both, so a half of the right client, roster, policy and
        expectation can still take it up.

        Args:
            path: the file.
            key: the key that sealed it.

        Raises:
            ProtocolError: this half is in a round already; or the state is stale, a copy,
                malformed, or of another client, roster, key or beacon; or its round is not what
                this half expects, or less than its policy asks for.
            ConfigError: the file cannot be read or erased, or others may read it.
            CheckpointError: the journal cannot be written.
        """
        if self.state is not ClientState.SETUP:
            raise ProtocolError(f"client {self.number} resumes nothing in state {self.state.name}")
        parked = Parked(path, key=key, journal=self._journal, owner=self.number)
        state = parked.state
        beacons = state.beacons_with(self._beacons)
        setup = Envelope.decode(state.told.get(Kind.SETUP, b""))
        current = self._enter(setup, beacons, state.secrets)
        try:
            current.resume(state)
            parked.redeem()
        except Exception:
            current.wipe()
            raise
        self._round, self._vector = current, state.vector
        self._told, self._beacons = dict(state.told), beacons
        self._agreed = state.agreed
        self.state = ClientState(state.awaits)

    def abort(self, reason: str) -> None:
        """Leave the round and release its secrets."""
        self.state = ClientState.ABORTED
        self.abort_reason = reason
        self._vector = None
        if self._round is not None:
            self._round.wipe()

    def open_result(self, packed: bytes) -> RingArray:
        """Check the packed sum, which the server publishes once for all, against its digest.

        Returns:
            Ring words of the sum.

        Raises:
            ProtocolError: there is no result yet, or this is not it.
        """
        finished = self._finished()
        if not compare_digest(sha256(packed).digest(), finished.result.digest):
            raise ProtocolError("this is not the sum that the server signed")
        return unpack(packed, finished.config.length, finished.config.bits)

    @property
    def config(self) -> MaskingConfig:
        """Configuration of the finished round."""
        return self._finished().config

    @property
    def transcript_root(self) -> bytes:
        """Root over the messages of the round; equal at all clients that were told the same."""
        return self._finished().result.root

    @property
    def survivors(self) -> IntArray:
        """int64[|S|], the clients in the sum that this client agreed to."""
        finished = self._finished()
        return finished.public.cohort[finished.survivors]

    def _next(self) -> ClientState:
        """The state after the message that is awaited."""
        named = self._round is not None and not self._round.config.agrees
        skips = self.state is ClientState.SURVIVORS and named
        return ClientState.RESULT if skips else _AFTER[self.state]

    def _finished(self) -> ResumableRound:
        if self.state is not ClientState.DONE or self._round is None:
            raise ProtocolError(f"client {self.number} has no result in state {self.state.name}")
        return self._round

    def _stored_reveal(self, envelope: Envelope) -> bytes | None:
        """The stored REVEAL, if the server asks for it again: the same bytes, or nothing."""
        curious = self._policy.adversary == "curious"
        asks = {Kind.QUORUM, Kind.SURVIVORS} if curious else {Kind.QUORUM}
        if envelope.kind not in asks or self.state.value is envelope.kind:
            return None
        stored = self._journal.revealed(envelope.context.round_id)
        if stored is not None:
            if envelope.kind is Kind.QUORUM:
                envelope.require_no_payload()
            envelope.verify(self._server_key)
        return stored

    def _require_awaited(self, envelope: Envelope) -> None:
        name = envelope.kind.name
        if envelope.sender != SERVER:
            raise ProtocolError(f"{name}: not a message of the server")
        if self.state is ClientState.ABORTED:
            raise ProtocolError(f"{name}: client {self.number} aborted ({self.abort_reason})")
        if self.state.value is not envelope.kind:
            raise ProtocolError(f"{name}: client {self.number} is in state {self.state.name}")

    def _require_ready(self, envelope: Envelope) -> None:
        """What the host owes; the server is not to blame, so the message may come again."""
        if self._round is None:
            return
        name, public = envelope.kind.name, self._round.public
        if envelope.context.round_id != public.context.round_id:
            raise ProtocolError(f"{name}: belongs to another round")
        if envelope.kind is Kind.KEYS and public.beacon_due and public.epoch not in self._beacons:
            raise RefusalError(f"{name}: the beacon of epoch {public.epoch} was not observed")
        if envelope.kind is Kind.BOXES and self._vector is None:
            raise ProtocolError(f"{name}: no vector was loaded")

    def _handle(self, envelope: Envelope) -> list[bytes]:
        if self._round is None:
            return [self._begin(envelope)]
        current = self._round
        if envelope.context != current.public.context:
            raise ProtocolError(
                f"{envelope.kind.name}: configuration, roster or cohort changed in mid-round"
            )
        match envelope.kind:
            case Kind.KEYS:
                message = current.share(envelope, self._beacons.get(current.public.epoch))
                self._journal.see(envelope.context.round_id, current.peers())
                return [message]
            case Kind.BOXES:
                vector, self._vector = self._vector, None
                agreed = self._agreed
                stated = NO_STATEMENT if agreed is None else agreed.digest
                message = current.upload(envelope, vector, stated)
                once = b"" if agreed is None else agreed.once
                self._journal.upload(envelope.context.round_id, once)
                return [message]
            case Kind.SURVIVORS:
                current.take_survivors(envelope)
                return current.confirm() if current.config.agrees else self._reveal(current)
            case Kind.QUORUM:
                current.take_quorum(envelope)
                return self._reveal(current)
            case _:
                current.finish(envelope)
        return []

    def _reveal(self, current: ResumableRound) -> list[bytes]:
        message = current.reveal()
        self._journal.reveal(current.public.context.round_id, message)
        current.wipe()
        return [message]

    def _enter(
        self,
        setup: Envelope,
        beacons: Mapping[int, bytes],
        roots: tuple[bytes, ...] | None = None,
    ) -> ResumableRound:
        return ResumableRound(
            identity=self._identity,
            roster=self._roster,
            policy=self._policy,
            expected=self._expected,
            beacons=beacons,
            setup=setup,
            roots=roots,
        )

    def _begin(self, envelope: Envelope) -> bytes:
        current = self._enter(envelope, self._beacons)
        try:
            if self._vector is not None:
                require_fitting(self._vector, current.config)
            generation = self._journal.begin(
                envelope.context.round_id,
                roster_version=self._roster.version,
                round_floor=self._roster.round_floor,
                epoch=current.public.epoch,
                once=self._expected.once,
                federation=self._expected.federation,
                owner=self.number,
            )
        except Exception:
            current.wipe()
            raise
        self._round = current
        return current.advertise(generation)
