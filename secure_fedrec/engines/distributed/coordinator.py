"""The server's host: the public state, and rounds that are driven over a channel to sites."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import Exchanging, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.checkpoint import (
    as_part,
    generation_columns,
    generations_of,
    part_of,
    public_columns,
    public_state_of,
    read_checkpoint,
    unless_damaged,
    write_checkpoint,
)
from secure_fedrec.engines.distributed.host_messages import Agreement
from secure_fedrec.engines.distributed.host_recording import HostRecording, OverheardHub
from secure_fedrec.engines.distributed.hosts_supported import require_hosts_supported
from secure_fedrec.engines.distributed.next_round_keys import NextRoundKeys
from secure_fedrec.engines.distributed.round_log import log, with_fields
from secure_fedrec.engines.distributed.sealed_peer_exchange import PeerContext, PeerHub
from secure_fedrec.engines.distributed.sites_channel import SitesChannel, Transport
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.engines.recorded_run import table_digest
from secure_fedrec.errors import CheckpointError, ProtocolError, WireError
from secure_fedrec.protection.bags.hosted import bag_hub, bags_of
from secure_fedrec.protection.base.hosting import HostedSum, Left, Standing, StateHidden
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.session import Hub, Identity, Node, Role, drive
from secure_fedrec.protection.session.beacon import Beacon

_ABSENT = "did not take part or did not answer, or its denoiser did not"
_LOST = (
    ". If the server stopped after clients had begun to reveal, this round is lost: clients "
    "reveal only once for one public state"
)
_TRIES, _PATIENCE = 120, 600.0
"""How often, and over how many seconds, a server tries to save a sum."""
_LATE = "took no part when keys of this round were agreed on"
_HANDED = (
    "; cells of these clients may have been forwarded, and only these clients can take part in "
    "this round: "
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DistributedReport:
    """Facts about a finished round.

    Args:
        round: its number, from 1.
        clients: int64[k], the clients whose uploads are in the sum.
        invited: how many were invited.
        attempts: how often it was begun, including by a server that was restarted.
        exchanges: requests with their answers, of all attempts.
        ready: how many clients have keys for the next round; 0 if keys are not agreed on ahead.
        left_out: why others are not in it, by client.
        statement: digest of what it agreed on, in hexadecimal digits.
        seconds: that it took, all attempts together.
    """

    round: int
    clients: IntArray
    invited: int
    attempts: int
    exchanges: int
    ready: int
    left_out: Mapping[int, str]
    statement: str
    seconds: float


class Coordinator:
    """Drives the rounds of one federation.

    Args:
        agreement: with all sites.
        plan: the computation.
        identity: the server's key.
        transport: reaches sites.
        checkpoint: file for the state between rounds; None keeps it in memory only.
        timeout: seconds that an exchange waits for the slowest site; None as long as it takes.
        attempts: how often a round that is aborted is begun before it is given up.
        recording: records what the server sees; None does not record.
        beacon: source of public randomness at this host.

    Raises:
        ConfigError: the algorithm's messages, or a layer's parties, cannot be elsewhere.
    """

    def __init__(
        self,
        *,
        agreement: Agreement,
        plan: TrainingPlan,
        identity: Identity,
        transport: Transport,
        checkpoint: Path | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        recording: HostRecording | None = None,
        beacon: Beacon | None = None,
    ) -> None:
        require_hosts_supported(plan)
        self._agreement = agreement
        self._plan = plan
        self._identity = identity
        self._hosting = hosting_of(plan.stack)
        if recording is not None:
            plan.require_recorded()
        self._bags = bags_of(plan.stack.bags)
        self._checkpoint = checkpoint
        self._timeout = timeout
        self._attempts = attempts
        self._recording = recording
        self.channel = SitesChannel(transport, agreement, identity, self._hosting.helpers())
        self.public = plan.initial()
        self._hidden = isinstance(self._hosting, StateHidden)
        self._held = b""
        self._stated = b""
        self._serial = 0
        self._begun = 0
        self._taken_up = 0  # the round that this server resumed
        self._revealed = False  # whether clients began to reveal in this attempt
        self._settled: dict[int, int] = {}
        self._handed: list[IntArray] = []  # per attempt, the clients whose cells were mixed
        self._generations: dict[bytes, int] = {}
        self._next_keys = NextRoundKeys(
            self._hosting,
            identity,
            self._generations,
            beacon,
            120.0 if timeout is None else timeout,
        )

    @property
    def plan(self) -> TrainingPlan:
        """The computation."""
        return self._plan

    @property
    def awaited(self) -> frozenset[Node]:
        """Parties with hosts other than the server's: clients, and helpers with their own host."""
        alone = [node for node, host in self._hosting.helpers().items() if node == host]
        clients = self._agreement.roster.numbers.tolist()
        return frozenset(alone) | {Node(Role.CLIENT, number) for number in clients}

    @property
    def digest(self) -> str | None:
        """Digest of the public table; None where clients keep it secret from the server."""
        return None if self._held else table_digest(self.public)

    @property
    def settled(self) -> Mapping[int, int]:
        """By client, the last attempt that its upload was summed in."""
        return MappingProxyType(self._settled)

    def resume(self) -> None:
        """Continue from the checkpoint.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, or of another federation.
        """
        if self._checkpoint is None:
            raise CheckpointError("nothing was kept")
        found = read_checkpoint(self._checkpoint, run_id=self._agreement.digest.hex())
        with unless_damaged(self._checkpoint):
            self._restore(found)
        self._taken_up = self.public.round + 1

    def save(self) -> None:
        """Write the checkpoint."""
        if self._checkpoint is None:
            return
        state: dict[str, npt.NDArray[Any]] = {
            **public_columns(self.public),
            **as_part("generations", generation_columns(self._generations)),
            "serial": np.array(self._serial),
            "epoch": np.array(self._next_keys.epoch),
            "begun": np.array(self._begun),
            "handed.sizes": np.array([len(each) for each in self._handed], dtype=np.int64),
            "handed.clients": np.array([i for each in self._handed for i in each], dtype=np.int64),
            "settled.clients": np.array(sorted(self._settled), dtype=np.int64),
            "settled.serials": np.array(
                [self._settled[client] for client in sorted(self._settled)], dtype=np.int64
            ),
        }
        if self._held:
            state["held"] = np.frombuffer(self._held, dtype=np.uint8)
            state["held.of"] = np.frombuffer(self._agreement.context, dtype=np.uint8)
        write_checkpoint(self._checkpoint, state, run_id=self._agreement.digest.hex())

    def run_round(self, *, more: bool = True) -> DistributedReport:
        """Run one round; an aborted round is begun again as long as it can succeed.

        Args:
            more: whether another round follows, whose keys can be agreed on during this one.

        Raises:
            ProtocolError: every attempt was aborted, or one after which no other can be summed; the
                public state is as before.
            OSError: the checkpoint cannot be written.
        """
        before, failures, began = self.channel.exchanges, [], monotonic()
        self.channel.sitting_out.clear()
        for _ in range(self._attempts):
            self._revealed = False
            try:
                clients, invited, begun = self._run(more=more)
            except (ProtocolError, WireError) as aborted:
                failures.append(self._explained(aborted))
                self._note_revealed(self.channel.stage)
                if self._revealed:
                    break
                continue
            clients_refused = self.channel.refused.items()
            refused = {n.number: why for n, why in clients_refused if n.role is Role.CLIENT}
            absent = dict.fromkeys(np.setdiff1d(invited, clients).tolist(), _ABSENT)
            reasons = {**absent, **dict.fromkeys(self._next_keys.late, _LATE), **refused}
            left_out = {who: why for who, why in reasons.items() if who not in clients}
            return DistributedReport(
                round=self.public.round,
                clients=clients,
                invited=len(invited),
                attempts=begun,
                exchanges=self.channel.exchanges - before,
                ready=self._next_keys.ready,
                left_out=left_out,
                statement=self._stated.hex(),
                seconds=monotonic() - began,
            )
        number = self.public.round + 1
        if self._revealed:
            raise ProtocolError(
                f"round {number} was aborted after clients had revealed: over one public state "
                "they do so once, so the round is not summed again, and the model stays that of "
                "round "
                f"{number - 1}: {failures[-1]}"
            )
        lost = _LOST if number == self._taken_up and self._hosting.last_stage else ""
        problem = f"round {number} was begun {self._attempts} times: {failures[-1]}{lost}"
        if self._handed:
            problem += _HANDED + " or ".join(str(each.tolist()) for each in self._handed)
        raise ProtocolError(problem)

    def finish(self) -> None:
        """Tell the sites the outcome of the last round, so that their private state is up to date.

        If they keep the public state secret from this host, they get the last one.
        """
        self.channel.settle(self._settled)
        self.channel.greet(self._timeout)  # hosts absent at the end hear the outcome now
        round_, serial, state = self.public.round + 1, self._serial + 1, b""
        if self._held:
            state = self._plan.sent(self._held)(-1)
        self.channel.finish(round_, serial, self._timeout, state)

    def _run(self, *, more: bool) -> tuple[IntArray, IntArray, int]:
        """One attempt; clients in the sum, those who were invited, and how often it was begun."""
        plan, public, channel = self._plan, self.public, self.channel
        round_ = public.round + 1
        self._begun += 1
        channel.greet(self._timeout)
        invited = plan.invited(round_)
        chosen = self._there(round_) if self._hosting.whole else None
        clients = invited if chosen is None or self._hosting.drops else chosen
        taken = self._next_keys.take(clients, channel.sessions(), chosen)
        serial = self._next_serial() if taken is None else taken.at.serial
        more = more and round_ < plan.algorithm.rounds
        # Its clients exchange rows first.
        more = more and not isinstance(plan.algorithm, Exchanging)
        following = self._next_keys.begin(partial(self._standing, round_ + 1) if more else None)
        known = self._held if self._hidden else public
        at = plan.standing(self._agreement, round_, serial, known, chosen)
        total, hub = self._next_keys.hub(at, taken)
        self.save()  # an attempt's number is never reused, even after a crash
        sent = plan.sent(known)
        self._stated, stated = at.statement.digest, at.statement.known.encoded
        channel.begin(round_, serial, sent, self._settled, following, chosen, stated)
        try:
            self._summed(at, total, hub)
        finally:
            self._next_keys.keep(channel.sessions())
        clients = total.heard()
        self._settled |= dict.fromkeys(clients.tolist(), serial)
        attempts, self._begun = self._begun, 0
        self._handed.clear()
        self._save_summed(round_)  # first, as a full disk could stop later writes
        if self._recording is not None:
            self._recording.result(round_, plan.algorithm, self.public)
            left_out = np.setdiff1d(invited, clients)
            summed = {"clients": clients, "absent": left_out, "attempts": np.array([attempts])}
            digest = np.array([table_digest(self.public)])
            self._recording.summed(round_, {**summed, "digest": digest}, channel.tally.taken())
            self._recording.end(round_)
        return clients, invited, attempts

    def _save_summed(self, round_: int) -> None:
        """Save a sum that clients reveal only once; wait while the disk is full.

        Raises:
            OSError: there was none for ten minutes; the message says what is lost.
        """
        for left in range(_TRIES, -1, -1):
            try:
                self.save()
                return
            except OSError as full:
                if not left:
                    lost = f"round {round_} is summed, but cannot be saved, nor summed again"
                    raise OSError(full.errno, f"{full.strerror}: {lost}", full.filename) from None
                log.error(
                    "round %d is summed but cannot be written: %s; make room, saving is tried "
                    "again",
                    *(round_, full),
                    extra=with_fields(event="refused", refused=type(full).__name__, round=round_),
                )
                sleep(_PATIENCE / _TRIES)

    def _there(self, round_: int) -> IntArray:
        """int64[P]: clients that take part in a round without drop-outs: the connected ones.

        Once mixes hold cells of this round, the cohort is the connected clients among their
        senders.

        Raises:
            ProtocolError: a helper with a host of its own is not connected.
        """
        here = self.channel.hosts
        for node, host in self._hosting.helpers().items():
            if node == host and host not in here:
                raise ProtocolError(f"{node} is not connected")
        here = here - self.channel.sitting_out
        numbers = [node.number for node in here if node.role is Role.CLIENT]
        handed = [each for each in self._handed if np.isin(each, numbers).all()]
        if handed:  # the mixes took one of these sets; which is not known
            return handed[self._begun % len(handed)]
        return self._plan.invited(round_, np.array(sorted(numbers), dtype=np.int64))

    def _heard(self, at: Standing, stage: str) -> None:
        """Work of the coordinator before answers are passed on."""
        mixed = self._bags is not None and self._bags.mixes is not None
        if mixed and stage == self._hosting.uploads:
            if not any(np.array_equal(each, at.present) for each in self._handed):
                self._handed.append(at.present)
            self.save()
        self._note_revealed(stage)  # with a tail floor another sum follows
        self._next_keys.publish(stage)

    def _note_revealed(self, stage: str) -> None:
        last = self._hosting.last_stage
        self._revealed |= bool(last) and stage == last

    def _summed(self, at: Standing, total: HostedSum, hub: Hub) -> None:
        """Drive an attempt to its sum, and make the server's step."""
        recording, plan = self._recording, self._plan
        if recording is not None:
            recording.begin(at.round)
            recording.model(at.round, plan.algorithm, self.public)
        overheard = None if recording is None else OverheardHub(hub)
        hub = hub if overheard is None else overheard
        bags = None
        if self._bags is not None:
            bags = bag_hub(hub, at, self._identity, self._bags, self._hosting)
        between, driven = partial(self._heard, at), hub if bags is None else bags
        exchanging = isinstance(plan.algorithm, Exchanging)
        if exchanging:
            driven = PeerHub(driven, PeerContext(at, plan.stack.codec))
        drive(driven, self.channel, timeout=self._timeout, between=between)
        if exchanging and not np.array_equal(total.heard(), at.clients):
            raise ProtocolError("clients that gave to each other are not all in the sum")
        if isinstance(total, Left):
            self._held, self.public = total.left, PublicState(round=at.round, table=np.zeros(0))
            return
        aggregate = replace(total.aggregate(), layout=plan.stack.layout)
        if bags is not None:
            aggregate = replace(aggregate, bags=bags.bags(total.heard()))
        if recording is not None and overheard is not None:
            total.show(recording.wire, overheard.arrived, aggregate)
            if bags is not None:
                bags.show(recording.wire)
        self.public = plan.algorithm.server_step(self.public, aggregate)

    def _standing(self, round_: int) -> Standing:
        """An attempt whose public state is not known yet, with its own number."""
        return self._plan.standing(self._agreement, round_, self._next_serial(), None)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _explained(self, aborted: Exception) -> str:
        why = "".join(f"; {node} {reason}" for node, reason in self.channel.refused.items())
        return f"{aborted}{why}"

    def _restore(self, found: Mapping[str, npt.NDArray[Any]]) -> None:
        public = public_state_of(found)
        if "held" in found and found["held.of"].tobytes() != self._agreement.context:
            raise CheckpointError(
                f"{self._checkpoint} holds the public state under the keys of another roster or "
                "layer.pub, to which it is bound: the federation has to begin anew"
            )
        clients, serials = found["settled.clients"], found["settled.serials"]
        ends = np.cumsum(found["handed.sizes"])
        generations = generations_of(part_of(found, "generations"))
        self._settled = dict(zip(clients.tolist(), serials.tolist(), strict=True))
        self._generations.clear()
        self._generations.update(generations)
        self._serial, self.public = int(found["serial"]), public
        self._held = found["held"].tobytes() if "held" in found else b""
        self._next_keys.epoch = int(found["epoch"])
        self._begun = int(found["begun"])
        self._handed = np.split(found["handed.clients"], ends)[:-1]
