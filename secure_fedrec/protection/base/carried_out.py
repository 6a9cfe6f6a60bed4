"""Rounds of the embedded engine that the halves carry out, with all hosts in this process.

A collector simulates a round; carried out, the round is that of its halves on hosts (``hosting``),
keys and signatures included, whose bytes go over the run's wire: what is altered, lost, late or
repeated there is so for the protocol. Keys and roster are those of a federation that lives as long
as the collector, journals those of one round, since an engine may begin a round again. The result
of the halves is compared with the plain sum of the clients' rows.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    Desk,
    DrawnByBeacon,
    Held,
    HostedSum,
    Hosting,
    Left,
    ObservesBeacon,
    SharedKeys,
    Standing,
    StateHidden,
)
from secure_fedrec.protection.base.layer_interfaces import PublicStep, RoundSession, StateKeeper
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.base.table import ServerSum, TableCollector, TableSession
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Node,
    OverWire,
    Party,
    Role,
    Roster,
    run_in_memory,
)
from secure_fedrec.protection.session.journal import MemoryJournal
from secure_fedrec.protection.session.statement import Statement, state_hash
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire

_EPOCH = 1  # of the beacon; each journal serves one round


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """What a round has left where clients keep the public state: its number, state and table."""

    round: int
    words: WordArray
    table: bytes


@dataclass(slots=True, eq=False)
class MemoryHosts:
    """Keys and roster of all parties of a federation, on hosts in this process.

    Args:
        halves: halves of the rounds.
        n_clients: clients of the federation.
    """

    halves: Hosting
    n_clients: int
    identities: Mapping[Node, Identity] = field(init=False)
    roster: Roster = field(init=False)
    federation: bytes = field(init=False)
    keys: SharedKeys = field(init=False)
    attempts: int = field(init=False, default=0)
    kept: _Kept | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        clients = (Node(Role.CLIENT, number) for number in range(self.n_clients))
        parties = (SERVER, *clients, *self.halves.helpers())
        self.identities = {node: Identity.generate(node) for node in parties}
        public = {node: identity.public for node, identity in self.identities.items()}
        self.roster = Roster.of(Ed25519PrivateKey.generate(), public)
        self.federation, self.keys = secrets.token_bytes(32), self.halves.shared_keys()

    def attempt(self, round_: int, clients: IntArray, state: bytes, held: Held | None) -> Standing:
        """The next attempt at a round."""
        self.attempts += 1
        return Standing(
            round=round_,
            serial=self.attempts,
            clients=clients,
            present=clients,
            statement=Statement(federation=self.federation, state=state, round=round_),
            series=self.federation[:16],
            roster=self.roster,
            keys=self.keys.public,
            epoch=_EPOCH,
            held=held,
        )

    def parties(
        self, at: Standing, rows: Mapping[int, ClientRows], wire: Wire | None
    ) -> list[Party]:
        """The halves of an attempt but the server's: helpers, then clients with their rows.

        Args:
            at: the attempt.
            rows: what each client sends, by number.
            wire: shows what helpers read; None where it is not recorded.
        """
        halves, found = self.halves, []
        for node, host in halves.helpers().items():
            own = rows.get(host.number) if host.role is Role.CLIENT else None
            if own is None and host.role is Role.CLIENT and halves.exempt(host.number):
                continue  # its client does not take part
            desk = Desk(
                wire=wire,
                journal=MemoryJournal(),
                secret=self.keys.private.get(node, b""),
                own=None if own is None else own.block,
                completes=False,
            )
            found.append(halves.helper(at, self.identities[node], desk))
        for number, own in rows.items():
            identity = self.identities[Node(Role.CLIENT, number)]
            found.append(halves.half(at, identity, MemoryJournal(), own))
        return found


class CarriedOut(TableSession):
    """One round of a collector, carried out by halves.

    Args:
        collector: collector of the round or rounds.
        round_: its number.
        participants: int64[P].
        wire: wire of the run.
        hosts: hosts of the halves.

    Attributes:
        beside: the same round simulated, where hosts cannot say who sent what they read
            (``Hosting.unrecorded``): it is metered and recorded, and the halves come to its sum.
    """

    def __init__(
        self,
        collector: TableCollector,
        round_: int,
        participants: IntArray,
        wire: Wire,
        *,
        hosts: MemoryHosts,
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self.beside: RoundSession | None = None
        if hosts.halves.anonymous:
            self.beside = collector.simulated(round_, participants, wire)
            self.order = self.beside.order
        self._hosts = hosts
        self._rows: dict[int, ClientRows] = {}
        self._submitted = 0
        self._plain = ServerSum(collector, round_, participants)

    def exempt(self, clients: IntArray) -> BoolArray:
        """As the halves say (``Hosting.exempt``)."""
        halves = self._hosts.halves
        return np.array([halves.exempt(client) for client in clients.tolist()], dtype=bool)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Store the rows of the next clients for their halves.

        Raises:
            ProtocolError: not the clients whose turn it is, or rows without values.
        """
        due = self.order[self._submitted : self._submitted + len(clients)]
        if not np.array_equal(due, clients):
            raise ProtocolError(f"round {self.round}: clients submit once each, in order")
        if self.beside is not None:
            self.beside.submit(clients, block, virtual)
        self._plain.add(pick(block, np.ones(len(block), dtype=bool), ~virtual))
        marks = np.split(virtual, block.indptr[1:-1])
        for client, rows, mark in zip(clients.tolist(), block.split(), marks, strict=True):
            self._rows[client] = ClientRows(rows, mark)
        self._submitted += len(clients)

    def close(self) -> Aggregate:
        """Run the halves to their sum.

        Raises:
            ProtocolError: a client has not submitted, the round was aborted, or a client is not in
                the sum.
            LosslessnessError: the sum is not that of the clients' rows.
        """
        if self._submitted != len(self.order):
            raise ProtocolError(
                f"round {self.round}: no rows from client {int(self.order[self._submitted])}; "
                "the round is abandoned"
            )
        if self.beside is not None and self.exempt(self.order).all():
            return self.beside.close()  # no client sends anything through the halves
        aggregate = self._hidden() if self._keeper is not None else self._open()
        if self.beside is None:
            return aggregate
        return self.beside.close()

    def _open(self) -> Aggregate:
        """The server's result."""
        at = self._hosts.attempt(self.round, np.sort(self.order), self._state(), None)
        total, arrived = self._run(at)
        aggregate = total.aggregate()
        self._require_plain(aggregate)
        if self.beside is None:
            total.show(self.wire, arrived, aggregate)
        return aggregate

    @property
    def _keeper(self) -> StateKeeper | None:
        """The collector, where clients keep the public state from the server."""
        hidden = isinstance(self._hosts.halves, StateHidden)
        return self.collector if hidden and isinstance(self.collector, StateKeeper) else None

    def _hidden(self) -> Aggregate:
        """The clients' result, if they keep it and the state secret from the server.

        A round continues with the table of the round before. Otherwise it has new keys, and begins
        with a public state.

        Raises:
            LosslessnessError: a client read another state than the engine's, or made another one of
                it.
        """
        hosts, keeper, halves = self._hosts, self._keeper, self._hosts.halves
        if keeper is None or not isinstance(halves, StateHidden):
            raise ProtocolError(f"round {self.round}: no public state was handed to the clients")
        step = WatchedStep(keeper.require_step(self.round))
        kept, hosts.kept = hosts.kept, None
        if kept is None or kept.round != self.round - 1:
            kept = None
            if hosts.attempts:  # a new key: the old ciphertexts are dropped
                hosts.keys = halves.shared_keys()
        table = b"" if kept is None else kept.table
        held, state = Held(len(step.words), table), sha256(table).digest()
        at = hosts.attempt(self.round, np.sort(self.order), state, held)
        keeper.keep(step)
        for client in at.clients.tolist():
            node = Node(Role.CLIENT, client)
            read = halves.read(at, hosts.identities[node], hosts.keys.private[node])
            if read is not None and not np.array_equal(read, step.words):
                raise LosslessnessError(
                    f"round {self.round}: client {client} decrypted another state than the engine's"
                )
        total, arrived = self._run(at)
        for aggregate in step.aggregates:
            self._require_plain(aggregate)
        after = step.public.after(step.words, step.aggregates[0])
        if not all(np.array_equal(after, made) for made in step.made):
            raise LosslessnessError(
                f"round {self.round}: the clients' next state differs from the plain step"
            )
        if isinstance(total, Left):
            hosts.kept = _Kept(self.round, after, total.left)
        total.show(self.wire, arrived, step.aggregates[0])
        return step.aggregates[0]

    def _run(self, at: Standing) -> tuple[HostedSum, list[bytes]]:
        """Drive the halves to the end; the server's side, and what came to it.

        Raises:
            ProtocolError: the round was aborted, or a client is not in the sum.
        """
        hosts, shown = self._hosts, self.beside is None
        with self.in_round():
            total = hosts.halves.hub(at, hosts.identities[SERVER], {})
            parties = hosts.parties(at, self._rows, self.wire if shown else None)
            line = OverWire(
                self.wire,
                round=self.round,
                rows=total.rows_in if shown else None,
                denoisers=getattr(self.collector, "denoisers", None),
            )
            between = partial(_publish, total, parties, secrets.token_bytes(32))
            run_in_memory(total.hub, parties, carrier=line, between=between)
            missing = np.setdiff1d(at.clients, total.heard())
            if len(missing):
                raise ProtocolError(
                    f"the sum is without {len(missing)} clients, the first is client "
                    f"{missing[0]}; the round is abandoned"
                )
        return total, line.arrived

    def _state(self) -> bytes:
        """Hash of the public state, as every host makes it; of an empty one before the first."""
        model = self.wire.model
        if model is None or model.values is None:
            return sha256(b"").digest()
        return state_hash({"table": model.values, **model.extras})

    def _require_plain(self, found: Aggregate) -> None:
        """Check a sum against the rows that clients put in.

        Raises:
            LosslessnessError: the sum differs.
        """
        due = self.collector.expected(self._plain.aggregate())
        if due is not None and not (
            np.array_equal(found.ring, due.ring) and np.array_equal(found.counts, due.counts)
        ):
            raise LosslessnessError(
                f"round {self.round}: the sum that the halves opened differs from the plain one"
            )


class WatchedStep:
    """A public step that records its uses (``base.PublicStep``)."""

    def __init__(self, public: PublicStep) -> None:
        self.public = public
        self.words = public.words
        self.aggregates: list[Aggregate] = []
        self.made: list[WordArray] = []

    def after(self, words: WordArray, aggregate: Aggregate) -> WordArray:
        """The next state."""
        made = self.public.after(words, aggregate)
        self.aggregates.append(aggregate)
        self.made.append(made)
        return made


def _publish(total: HostedSum, parties: list[Party], value: bytes, stage: str) -> None:
    """Make the beacon of the round known, once the hub awaits it (``drive``'s between)."""
    del stage
    hub: object = total.hub
    if isinstance(hub, DrawnByBeacon) and hub.beacon_due:
        epoch, hub.beacon = hub.beacon_due, value
        for party in parties:
            if isinstance(party, ObservesBeacon):
                party.observe_beacon(epoch, value)


def carried_out(collector: TableCollector, halves: Hosting) -> None:
    """Have a collector's rounds carried out by halves from now on."""
    hosts = MemoryHosts(halves, collector.n_clients)
    collector.carried = partial(CarriedOut, hosts=hosts)
