"""The embedded engine: a whole federation in one process, vectorised over clients.

Each round: draw the cohort, ask the collector who can take part, broadcast the public state, run
the client step for batches of clients, push every upload through the protection stack, and give the
aggregate to the server. The batches exist for speed only: any batch size gives the same bits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import (
    Addressed,
    Algorithm,
    Exchanging,
    MeasuredStep,
    NamedBlocks,
    PublicState,
    RatingAlgorithm,
    ReadsSingles,
    VaryingExtras,
)
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines.checkpoint import as_part, part_of, public_columns, public_state_of
from secure_fedrec.engines.federated_problem import Evaluate, step_bytes
from secure_fedrec.engines.peer_exchange import PeerExchange, parts_of
from secure_fedrec.engines.public_state_words import PublicStateWords
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base import StateKeeper, Withstood
from secure_fedrec.protection.base.folding import refused_cloak
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.settings import Count, Round, Settings, Unit
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, DenseBlock
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Parties, Step, Wire

BATCH_BYTES = 2**21
"""Default memory that the clients of a batch work in."""
_MOST_BYTES, _FEW = 2**25, 64


class CohortConfig(Settings, section="cohort"):
    """Which clients are invited to a round.

    Args:
        clients_per_round: size of the cohort, drawn uniformly without replacement; without one, all
            clients are invited.
        everybody_in: rounds, from 1, to which all clients are nevertheless invited, to measure all
            clients after training by cohorts.

    Raises:
        ConfigError: a number is below 1, or all clients are invited to every round anyway.
    """

    clients_per_round: Annotated[Count, Unit("clients")] | None = None
    everybody_in: tuple[Round, ...] = ()

    def _agree(self) -> None:
        if self.everybody_in and self.clients_per_round is None:
            raise self.refusal("everybody_in", "has no effect without cohort.clients_per_round")

    def largest(self, n_clients: int) -> int:
        """Clients of the largest cohort."""
        if self.clients_per_round is None or self.everybody_in:
            return n_clients
        return self.clients_per_round

    def invited(self, round_: int, n_clients: int) -> int:
        """Clients of the cohort of a round."""
        if self.clients_per_round is None or round_ in self.everybody_in:
            return n_clients
        return self.clients_per_round

    def draw(self, round_: int, n_clients: int, streams: Streams) -> IntArray:
        """int64[c], ascending; a function of (seed, round) alone.

        Raises:
            ConfigError: more clients per round than there are.
        """
        invited = self.invited(round_, n_clients)
        if invited == n_clients:
            return np.arange(n_clients)
        if invited > n_clients:
            raise self.refusal("clients_per_round", f"there are only {n_clients} clients")
        generator = streams.stream("cohort").generator(round_)
        return np.sort(generator.choice(n_clients, invited, replace=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """Facts about a finished round.

    Args:
        round: its number, from 1.
        participants: clients that took part.
        metrics: by name, as the evaluation gives them, and the means of what clients measured of
            themselves; None where nothing was measured.
        of_clients: float64[n] by name, each client's own measurement before averaging; NaN where it
            did not.
        clipped: values beyond the ring's clip that were clipped (``FixedPoint.beyond``).
    """

    round: int
    participants: int
    metrics: Mapping[str, float] | None
    of_clients: Mapping[str, FloatArray] = field(default_factory=dict)
    clipped: int = 0


class LocalEngine:
    """Runs one federation.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        vault: the clients' private state; the algorithm's tables are created in it here.
        n_rows: rows of the shared table.
        streams: the run's random streams.
        wire: carries the messages.
        evaluate: metrics of the state after a round; None measures nothing.
        cohort: who is invited.
        participants: overrides cohort and collector, round -> clients; used to give a twin run the
            very same participants.
        batch_bytes: approximate working memory of the clients of a batch. None is the size of a
            processor's cache, which is fastest for sparse rows, or that of 64 typical clients, up
            to 32 MiB.
        undo_bytes: memory for undoing a failed round; the rest goes to a file.
        measure_every: rounds between measurements by clients whose steps can measure; the last
            round is always measured.

    Raises:
        ConfigError: the stack has a cloak, and the algorithm no ratings for it to cover; or it was
            built for other blocks, or hides single uploads from an algorithm that reads them.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        stack: Stack,
        vault: Vault,
        n_rows: int,
        streams: Streams,
        wire: Wire,
        evaluate: Evaluate | None = None,
        cohort: CohortConfig | None = None,
        participants: Callable[[int], IntArray] | None = None,
        batch_bytes: int | None = None,
        undo_bytes: int = 2**28,
        measure_every: int = 1,
    ) -> None:
        if stack.n_clients != vault.n_clients:
            raise ConfigError("n_clients", stack.n_clients, f"the data have {vault.n_clients}")
        require_fits(algorithm, stack, n_rows)
        self.algorithm = algorithm
        self.stack = stack
        self.vault = vault
        self.wire = wire
        self._evaluate = evaluate
        self._streams = streams
        self._cohort = cohort if cohort is not None else CohortConfig()
        self._participants = participants
        self._undo_bytes = undo_bytes
        self._clipped = 0  # clipped values of the previous round
        self._measure_every = measure_every
        self.public = algorithm.initial_public(n_rows, streams)
        algorithm.initialise(vault, streams)
        self._costs = step_bytes(algorithm, vault, n_rows)
        several = min(_MOST_BYTES, _FEW * int(np.median(self._costs)) if len(self._costs) else 0)
        self._batch_bytes = batch_bytes or max(BATCH_BYTES, several)

    def participants(self, round_: int) -> IntArray:
        """Clients that take part in a round: int64[P], ascending."""
        if self._participants is not None:
            return self._participants(round_)
        invited = self._cohort.draw(round_, self.vault.n_clients, self._streams)
        return self.stack.collector.participants(invited)

    def run_round(self) -> RoundReport:
        """One round of training.

        Raises:
            EncodingError: a client's values do not fit the ring.
            ProtocolError: a message was missing, repeated or late.
                In both cases public and private state are as before the round.
        """
        round_ = self.public.round + 1
        participants = self.participants(round_)
        public, meter, keeper = self.public, self.wire.meter.state(), self.stack.collector
        self.vault.begin(self._undo_bytes)
        try:
            if isinstance(keeper, StateKeeper):
                keeper.keep(PublicStateWords(self.algorithm, self.public, self.stack.layout))
            self._broadcast(round_, participants)
            self._exchange(round_, participants)
            aggregate, own = self._collect(round_, participants)
            self.public = self.algorithm.server_step(self.public, aggregate)
            whole, parts = parts_of(self.algorithm, self.public)
            self.wire.note_result(round_, whole)
            for part, clients in parts:
                self.wire.note_result(round_, part, to=clients)
            self.wire.end_round(round_)
        except BaseException:  # also on interrupts: no client stays half trained
            self.vault.end(undo=True)
            self.public = public
            self.wire.meter.restore(meter)
            self.wire.abandon_round(round_)
            raise
        self.vault.end(undo=False)
        known = {name: values[~np.isnan(values)] for name, values in own.items()}
        means = {name: float(values.mean()) for name, values in known.items() if len(values)}
        metrics = {**means, **(self.evaluate() or {})} or None
        return RoundReport(
            round=round_,
            participants=len(participants),
            metrics=metrics,
            of_clients=own,
            clipped=self._clipped,
        )

    def evaluate(self) -> Mapping[str, float] | None:
        """Metrics of the present state."""
        if self._evaluate is None:
            return None
        return self._evaluate(self.public, self.vault)

    def state(self, *, copied: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Everything that a resumed run needs to reach the same bits.

        Args:
            copied: whether private tables are copied; otherwise they are views that training will
                change.
        """
        return {
            **public_columns(self.public),
            **as_part("vault", self.vault.snapshot() if copied else self.vault.tables()),
            **as_part("meter", self.wire.meter.state()),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go back to a state returned by ``state``."""
        self.vault.restore(part_of(state, "vault"))
        self.wire.meter.restore(part_of(state, "meter"))
        self.public = public_state_of(state)

    def _collect(
        self, round_: int, participants: IntArray
    ) -> tuple[Aggregate, dict[str, FloatArray]]:
        session = self.stack.open(round_=round_, participants=participants, wire=self.wire)
        due = round_ % self._measure_every == 0 or round_ == self.algorithm.rounds
        own: dict[str, FloatArray] = {}
        for clients in self._batches(session.order):
            step = self.algorithm.client_step(clients, self.public, self.vault, self._streams)
            session.submit(step)
            if due and _measures(step):
                for name, values in step.measure().items():
                    own.setdefault(name, np.full(self.vault.n_clients, np.nan))[clients] = values
            step.commit(self.vault)
        self._clipped = sum(session.clipped)
        return session.close(), own

    def _exchange(self, round_: int, participants: IntArray) -> None:
        """Let clients exchange the rows that are not summed."""
        algorithm = self.algorithm
        if not isinstance(algorithm, Exchanging) or not len(participants):
            return
        exchange = PeerExchange(round_, participants, self.stack.codec, self.wire)
        for clients in self._batches(participants):
            given = algorithm.give(clients, self.public, self.vault, self._streams)
            exchange.send(clients, given)
        for clients in self._batches(participants):
            algorithm.take(clients, exchange.received(clients), self.vault)

    def _broadcast(self, round_: int, participants: IntArray) -> None:
        whole, parts = parts_of(self.algorithm, self.public)
        size, keeper = whole.nbytes, self.stack.collector
        if isinstance(keeper, StateKeeper):
            size = keeper.broadcast_bytes(size // self.public.table.itemsize)
        self._hand_out(round_, Step.MODEL, whole, participants, size)
        for part, clients in parts:
            present = np.intersect1d(clients, participants)
            self._hand_out(round_, Step.PART, part, present, part.nbytes)

    def _hand_out(
        self, round_: int, step: Step, payload: DenseBlock, clients: IntArray, size: int
    ) -> None:
        messages = Messages(
            round=round_,
            step=step,
            senders=Parties.server(len(clients)),
            receivers=Parties(role="client", ids=clients),
            payload=payload,
            sizes=np.full(len(clients), size),
        )
        self.wire.send(messages, targets=clients)

    def _batches(self, order: IntArray) -> Iterator[IntArray]:
        """Consecutive runs of clients with about ``batch_bytes`` of working memory each."""
        if not len(order):
            return
        cost = np.cumsum(self._costs[order])
        cuts = np.searchsorted(cost, np.arange(self._batch_bytes, cost[-1], self._batch_bytes))
        for part in np.split(order, np.unique(cuts)):
            if len(part):
                yield part


def _measures(step: object) -> TypeGuard[MeasuredStep]:
    return hasattr(step, "measure")  # isinstance with a protocol is slower than some steps


def require_fits(algorithm: Algorithm, stack: Stack, n_rows: int) -> None:
    """Check that an algorithm's rounds go through a stack.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        n_rows: rows of the shared table.

    Raises:
        ConfigError: the stack has a cloak, and the algorithm no ratings for it to cover; or it was
            built for other blocks, or hides what the algorithm's server reads or sends to some.
    """
    if stack.cloak is not None and not isinstance(algorithm, RatingAlgorithm):
        raise refused_cloak(stack.cloak)
    _require_blocks(algorithm, stack, n_rows)
    hidden = stack.collector.model_hidden_from
    if "server" in hidden and isinstance(algorithm, Addressed):
        problem = (
            "where clients keep the public state from the server, each is sent all of the state"
        )
        raise ConfigError("algorithm", type(algorithm).__name__, problem)
    _require_singles(algorithm, stack)


def require_arrays(algorithm: Algorithm, start: PublicState, public: PublicState) -> None:
    """Check the arrays of a public state, but for those that single clients are sent.

    Compiled loops index the table by item, and a failure in training keeps the client from the
    round. So a state with other arrays must not reach a client's training.

    Args:
        algorithm: whose state it is.
        start: the state before round 1.
        public: the state.

    Raises:
        ProtocolError: an array is missing, unknown, or of another shape than it has after as many
            rounds (``VaryingExtras``).
    """
    parts = algorithm.addressed(public) if isinstance(algorithm, Addressed) else {}
    due, found = ({"": each.table, **each.extras} for each in (start, public))
    shapes = {name: values.shape for name, values in due.items()}
    given = {name: values.shape for name, values in found.items() if name not in parts}
    if isinstance(algorithm, VaryingExtras):
        for name, rows in algorithm.extra_rows(public.round).items():
            first = given.get(name, ())[:1] if rows is None else (rows,)
            shapes[name] = (*first, *shapes[name][1:])
    for name in sorted({*given, *shapes}):
        has, has_to = given.get(name, "missing"), shapes.get(name, "missing")
        if has != has_to:
            raise ProtocolError(
                f"a public state of other arrays than round {public.round + 1} begins with: "
                f"{name or 'the table'} is {has}, but must be {has_to}"
            )


def _require_blocks(algorithm: Algorithm, stack: Stack, n_rows: int) -> None:
    if not isinstance(algorithm, NamedBlocks):
        return
    due = algorithm.blocks(n_rows)
    built = () if stack.layout is None else tuple(p.shape for p in stack.layout.places.values())
    noised = stack.traits is not None and stack.traits.noise == "added"
    for shape in due if noised else ():
        digits = stack.codec.fraction_bits if shape.fraction_bits is None else shape.fraction_bits
        if digits != stack.codec.fraction_bits:
            problem = (
                f"noise is added to values of {stack.codec.fraction_bits} binary digits, the "
                f"ring's, and uploads have {digits} in the block {shape.name}: the clip would be "
                "of another scale (of EASE: set algorithm.largest_norm)"
            )
            raise ConfigError("protection", [*stack.describe()["layers"]], problem)
    if built != due:
        names = ", ".join(shape.name for shape in due)
        raise ConfigError("blocks", [shape.name for shape in built], f"uploads have {names}")


def _require_singles(algorithm: Algorithm, stack: Stack) -> None:
    """Refuse an algorithm that reads single uploads, unless the stack is known to show them."""
    if not isinstance(algorithm, ReadsSingles):
        return
    known, layers = stack.traits, [*stack.describe()["layers"]]
    shown = known is not None and (known.uploads, known.senders) == ("rows", "named")
    if stack.bags is not None and stack.bags.withstands(stack.n_clients) != Withstood():
        shown = False
        layers += stack.bags.describe()["layers"]
    if not shown:
        name = type(algorithm).__name__
        problem = f"hides single uploads, or their senders, from {name}: {algorithm.reads_singles}"
        raise ConfigError("protection", " + ".join(layers), problem)
