"""A client's host: takes the server's messages, one at a time, and returns its parties' answers.

A site holds one client's data and vault, and the halves of the attempt in progress: of the client,
and of a helper, such as a denoiser, where one is recruited from it. Halves exist in memory only, so
after a crash they are lost for the round, and the journal keeps the client from a second answer.
Private tables are on disk before the first message of an attempt leaves, as its possible outcome;
they become the client's state once the server says that the attempt was summed with its upload.

If keys are agreed on ahead, there is a further half of the client for the next attempt, without a
vector. It is kept as long as the session.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from secure_fedrec.algorithms.base import Exchanging, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.distributed.host_messages import Agreement, Request, refusal
from secure_fedrec.engines.distributed.host_recording import HostRecording
from secure_fedrec.engines.distributed.round_log import (
    log_sent,
    refusal_fields,
    with_fields,
)
from secure_fedrec.engines.distributed.sealed_peer_exchange import PeerContext, PeerParty
from secure_fedrec.engines.distributed.site_session import (
    SAID,
    ClientHalves,
    SiteSession,
    SittingOut,
)
from secure_fedrec.engines.distributed.site_state import SealedState, SiteState
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import (
    CheckpointError,
    ConfigError,
    ProtocolError,
    RefusalError,
    SitsOutError,
    WireError,
)
from secure_fedrec.protection.bags.hosted import bags_of, giver_of
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import Desk, Hosting, Standing, StateHidden, helpers_at
from secure_fedrec.protection.base.stack import hosting_of, note_own
from secure_fedrec.protection.masking.pipeline import PipelinedClient
from secure_fedrec.protection.session import Identity, Node, Parcel, Party, Role
from secure_fedrec.protection.session.beacon import Beacon
from secure_fedrec.protection.session.journal import FileJournal, Journal
from secure_fedrec.protection.session.statement import labelled_hash
from secure_fedrec.uploads import PeerBlock
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Wire

log = logging.getLogger("secure-fedrec")

_DISK = (CheckpointError, OSError)
"""Errors of journal and private state; this package's algorithms do not raise them."""


@dataclass(slots=True, eq=False)
class _Attempt:
    serial: int
    parties: dict[Node, Party]
    at: Standing
    ahead: tuple[int, int] = (0, 0)
    sent: bool = False
    began: float = field(default_factory=monotonic)


class Site:
    """One client's host.

    Args:
        agreement: with all other hosts.
        plan: the computation.
        vault: vault of this client alone; the algorithm's tables are created in it here.
        identities: keys of the client and of the helpers that are recruited from it.
        state: where private state is kept.
        journal: journal of the client; by default the one beside ``state``.
        secret: what its layer's clients hold in common, such as the key of the public state, where
            they keep that from the server.
        recording: records what this host sees, and its upload; None does not record.
        beacon: source of public randomness at this host, which is not the server.

    Raises:
        ConfigError: the vault is not of one client, an identity is missing or the roster lists
            another key, or a layer's parties cannot be elsewhere.
        CheckpointError: the kept state is damaged, an old copy, or another client's or
            federation's, or a part of it is missing.
    """

    def __init__(
        self,
        *,
        agreement: Agreement,
        plan: TrainingPlan,
        vault: Vault,
        identities: Mapping[Node, Identity],
        state: SealedState,
        journal: Journal | None = None,
        secret: bytes = b"",
        recording: HostRecording | None = None,
        beacon: Beacon | None = None,
    ) -> None:
        if not vault.named or vault.n_clients != 1:
            raise ConfigError(
                "vault", vault.n_clients, "a site holds the state of one named client"
            )
        self.client = int(vault.clients[0])
        self._agreement = agreement
        self._plan = plan
        self._vault = vault
        self._hosting: Hosting = hosting_of(plan.stack)
        if recording is not None:
            plan.require_recorded()
        self._bags = bags_of(plan.stack.bags)
        self._noised_bags = self._bags is not None and self._bags.noise is not None
        self.identity, self._helpers = _required(identities, self.client, self._hosting, agreement)
        if isinstance(self._hosting, StateHidden):
            self._hosting.require_key(agreement.keys, secret)
        self._sealed = state
        self._secret = secret
        self._recording = recording
        self._exempt = self._hosting.exempt(self.client)
        self._attempt: _Attempt | None = None
        plan.algorithm.initialise(vault, plan.streams)
        found = state.load()
        before = SiteState(tables=vault.snapshot()) if found is None else found
        self._kept = before.under(agreement.roster)
        try:
            vault.restore(self._kept.tables)
        except ValueError as other:
            raise CheckpointError(f"the kept state is of another federation: {other}") from None
        if journal is None:
            journal = state.open_journal(owner=self.client, federation=agreement.federation)
        self._journal: Journal = journal
        if found is None or found.roster_hash != self._kept.roster_hash:
            try:
                state.keep(self._kept)
            except OSError:
                self.close()  # so that this process can open it again
                raise
        self._halves = ClientHalves(self._hosting, self.identity, self._journal, beacon)
        self._session = SiteSession(agreement, self.identity, self._begun, self._handle)

    @property
    def completed(self) -> int:
        """The last round that is over, as far as this site knows (``SiteState``)."""
        return self._kept.round

    def tables(self) -> Mapping[str, np.ndarray]:
        """The private tables, for the owner of the site."""
        return self._kept.tables

    def answer(self, data: bytes) -> bytes:
        """Handle one message of the server; a halted client answers that it is, but for greetings.

        Raises:
            ProtocolError, WireError: it is refused; nothing is to be sent.
            CheckpointError, OSError: the journal or private state cannot be written.
        """
        return self._session.answer(data)

    def close(self) -> None:
        """Release the journal."""
        if isinstance(self._journal, FileJournal):
            self._journal.close()

    def _begun(self) -> tuple[int, int]:
        """Begin a session: halves of an earlier one are dropped."""
        self._attempt = None
        self._halves.drop()
        return self._kept.round, self._kept.settled

    def _handle(self, request: Request) -> list[Parcel]:
        self._sealed.halted.require_active()
        if self._attempt is None or request.serial != self._attempt.serial:
            self._settle(request)
        if self._attempt is None and request.state:
            if isinstance(self._hosting, StateHidden) and not request.parcels:
                public, _ = self._read(request)
                self._sealed.keep_public(public)
                return []
            self._begin(request)
        if self._attempt is not None and request.ahead not in ((0, 0), self._attempt.ahead):
            self._begin_ahead(self._attempt, *request.ahead)
        self._halves.observe()
        if not request.parcels:
            return []
        if self._attempt is None:
            raise ProtocolError(f"this client does not take part in attempt {request.serial}")
        return self._delivered(self._attempt, request.parcels)

    def _settle(self, request: Request) -> None:
        """Process the outcome of the previous attempt."""
        before, self._attempt = self._attempt, None
        if before is not None and request.late:
            self._delivered(before, request.late)
        if before is not None and request.serial <= before.serial:
            raise ProtocolError(f"attempt {request.serial} is not later than {before.serial}")
        kept = self._kept.told(request.settled)
        if kept is not self._kept:
            self._sealed.keep(kept)
            self._kept = kept
            self._vault.restore(kept.tables)

    def _begin(self, request: Request) -> None:
        """Train, and make this attempt's halves."""
        self._plan.require_round(request.round)
        self._plan.require_affordable(self._journal.spent + 1)
        public, at = self._read(request)
        # Hashed as received, including what was sent to this client alone.
        asked = labelled_hash("computed", request.state, at.round.to_bytes(8, "little"))
        self._journal.compute(asked, rounds=self._plan.algorithm.rounds)
        wire = self._recorded(public)
        rows, half = self._own_part(public, at) if self.client in at.present else (None, None)
        desk = Desk(wire=wire, journal=self._journal, own=None if rows is None else rows.block)
        parties: dict[Node, Party] = {
            node: self._hosting.helper(at, helper, desk) for node, helper in self._helpers.items()
        }
        if self._recording is not None and not parties:
            self._recording.end(at.round)
        if half is None:
            self._halves.drop()
        else:
            parties[self.identity.node] = half
        self._attempt = _Attempt(request.serial, parties, at)

    def _own_part(self, public: PublicState, at: Standing) -> tuple[ClientRows | None, Party]:
        """The client's rows, and its half; if it sits out, a half that only reports this.

        If it sits out, it does so for all attempts of a round, whatever their states: as one
            answer.
        """
        algorithm, halted = self._plan.algorithm, self._sealed.halted
        try:
            if self._journal.sits_out(at.round):
                raise SitsOutError("sits this round out")
            if isinstance(algorithm, Exchanging):
                return None, self._exchanging(algorithm, public, at)
            with halted.on_own_data(*_DISK):
                rows = self._trained(public, at)
            with halted.on_own_data(ProtocolError, *_DISK):
                return rows, self._half(at, rows)
        except SitsOutError as why:
            self._sit_out(at.round, why)
            self._halves.drop()
            return None, SittingOut(self.identity.node, why)

    def _sit_out(self, round_: int, why: SitsOutError) -> None:
        fields = with_fields(
            event="refused", refused=type(why).__name__, why=str(why), round=round_
        )
        log.warning(SAID, why, extra=fields)
        self._journal.sit_out(round_)

    def _read(self, request: Request) -> tuple[PublicState, Standing]:
        """The public state and the attempt that a request begins.

        Raises:
            ProtocolError, WireError: they are refused, or it is one of a round that is over.
        """
        plan, hosting, agreement = self._plan, self._hosting, self._agreement
        if request.round <= self._kept.round:
            raise RefusalError(f"round {request.round} is over: {self._kept.round} rounds are done")
        if not isinstance(hosting, StateHidden):
            return plan.read(agreement, request, self.client)
        return plan.opened(
            agreement, request, lambda at: hosting.read(at, self.identity, self._secret)
        )

    def _half(self, at: Standing, rows: ClientRows) -> Party:
        """The client's half, loaded with what it sends."""
        half = self._halves.begin(at, rows)
        if self._bags is not None:
            half = giver_of(half, at, self.identity, self._bags, rows.bags)
        return half

    def _exchanging(self, algorithm: Exchanging, public: PublicState, at: Standing) -> Party:
        """The client's half of a round that begins with an exchange of rows."""
        clients, streams = np.array([self.client]), self._plan.streams
        return PeerParty(
            PeerContext(at, self._plan.stack.codec),
            self.identity,
            lambda: algorithm.give(clients, public, self._vault, streams),
            lambda given: self._half(at, self._trained(public, at, given)),
        )

    def _recorded(self, public: PublicState) -> Wire | None:
        """Begin the recording of an attempt; where its parties show what they read."""
        recording, round_ = self._recording, public.round + 1
        if recording is None:
            return None
        recording.begin(round_)
        recording.model(round_, self._plan.algorithm, public)
        recording.private(round_, self._vault)
        return recording.wire

    def _begin_ahead(self, attempt: _Attempt, round_: int, serial: int) -> None:
        """Begin the client's part in the next attempt, if it is invited."""
        node = self.identity.node
        self._plan.require_round(round_)
        at = self._plan.standing(self._agreement, round_, serial, None)
        if self.client in at.clients:
            current = attempt.parties.get(node)
            attempt.parties[node] = self._halves.begin_ahead(at, attempt.serial, current)
        attempt.ahead = round_, serial

    def _trained(
        self, public: PublicState, at: Standing, given: PeerBlock | None = None
    ) -> ClientRows:
        """This client's upload before it is hidden; the trained state is kept as the outcome."""
        plan, vault, clients = self._plan, self._vault, np.array([self.client])
        algorithm = plan.algorithm
        try:
            if given is not None and isinstance(algorithm, Exchanging):
                _taken(algorithm, clients, given, vault)
            step = algorithm.client_step(clients, public, vault, plan.streams)
            rows = plan.stack.fold(
                step, round_=at.round, exempt=lambda each: np.full(len(each), self._exempt)
            )
            step.commit(vault)
            vouched = isinstance(self._hosting, StateHidden)
            learnt = self._kept.begun(at.serial, at.round, vault.snapshot(), vouched=vouched)
        finally:
            vault.restore(self._kept.tables)
        if self._recording is not None and plan.stack.protects:
            note_own(self._recording.wire, at.round, clients, rows)
        if rows.clipped:
            log.warning("round %d: values beyond ring.clip were clipped", at.round)
            try:
                self._sealed.note_clipped(at.round, at.serial, rows.clipped)
            except OSError as lost:  # raising would tell the server that this client clips
                log.error("the number of clipped values cannot be saved: %s", lost)
        self._sealed.keep(learnt)
        self._kept = learnt
        return rows

    def _note_sent(self, attempt: _Attempt, answers: Sequence[Parcel]) -> None:
        """Before the upload leaves: record its cost, and log the round.

        Bags are sent with the first answer, and so their cost is recorded then.
        """
        plan, own, at = self._plan, self.identity.node, attempt.at
        sent = {each.stage: len(each.data) for each in answers if each.sender == own}
        # Where clients do not open sums themselves, the first thing that leaves is the upload, or
        # shares of it.
        waits = bool(self._hosting.last_stage) and not self._noised_bags
        if attempt.sent or not (self._hosting.uploads in sent if waits else sent):
            return
        attempt.sent = True
        if plan.budget:
            self._journal.spend()
        if log.isEnabledFor(logging.INFO):
            size, seconds = sum(sent.values()), monotonic() - attempt.began
            log_sent(at, plan, size=size, seconds=seconds, spent=self._journal.spent)

    def _delivered(self, attempt: _Attempt, parcels: Sequence[Parcel]) -> list[Parcel]:
        """Let parties handle the messages for them.

        Raises:
            ProtocolError: a party is not at this site, or refuses, and no other has answered.
        """
        inboxes: dict[Node, list[bytes]] = {}
        for parcel in parcels:
            if parcel.receiver not in attempt.parties:
                raise ProtocolError(f"{parcel.receiver} is not at this site")
            inboxes.setdefault(parcel.receiver, []).append(parcel.data)
        answers: list[Parcel] = []
        refusals: list[ProtocolError | WireError] = []
        told: list[ProtocolError | WireError] = []
        for node, inbox in inboxes.items():
            party = attempt.parties[node]
            try:
                with self._sealed.halted.on_own_data(ProtocolError, WireError, *_DISK):
                    answers += party.step([data for data in inbox if data])
            except (ProtocolError, WireError) as refused:
                refusals.append(refused)
                if isinstance(refused, SitsOutError):
                    self._sit_out(attempt.at.round, refused)
            if isinstance(party, PipelinedClient):
                told += party.told()
        if refusals and not answers:
            raise next((each for each in refusals if isinstance(each, RefusalError)), refusals[0])
        self._note_sent(attempt, answers)
        for each in refusals + told:
            log.warning("refused: %s", each, extra=refusal_fields(each))
        said = [each for each in refusals + told if isinstance(each, RefusalError)]
        return answers + [refusal(self.identity.node, each) for each in said]


def _taken(algorithm: Exchanging, clients: IntArray, given: PeerBlock, vault: Vault) -> None:
    """Store the rows that others gave; rows that do not fit do not halt this client.

    Raises:
        ProtocolError: a row does not fit.
    """
    try:
        algorithm.take(clients, given, vault)
    except (ConfigError, ValueError) as other:
        raise ProtocolError(f"rows from other clients do not fit: {other}") from None


def _required(
    identities: Mapping[Node, Identity], client: int, hosting: Hosting, agreement: Agreement
) -> tuple[Identity, Mapping[Node, Identity]]:
    """The client's identity, and those of the helpers that are recruited from it."""
    own = Node(Role.CLIENT, client)
    helpers = helpers_at(hosting, own)
    for node in (own, *helpers):
        if node not in identities:
            raise ConfigError("site.identities", str(node), "is missing")
        agreement.roster.require_listed(identities[node])
    return identities[own], {node: identities[node] for node in helpers}
