"""The embedded engine: a whole federation in one process, vectorised over clients.

Each round: draw the cohort, ask the collector who can take part, broadcast the public table, run
the client step for batches of clients, push every upload through the protection stack, and give the
aggregate to the server. The batches exist for speed only: any batch size gives the same bits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import RatingError, rating_error
from secure_fedrec.protection.base import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, DenseBlock
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Parties, Step, Wire

__all__ = ["CohortConfig", "LocalEngine", "RoundReport", "vault_of"]

_EVALUATION_ROWS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortConfig:
    """Who is invited to a round.

    Args:
        clients_per_round: size of the cohort, drawn uniformly without replacement; None invites
            everybody.
    """

    clients_per_round: int | None = None

    def __post_init__(self) -> None:
        if self.clients_per_round is not None and self.clients_per_round < 1:
            raise ConfigError(
                "cohort.clients_per_round", self.clients_per_round, "must be at least 1"
            )

    def draw(self, round_: int, n_clients: int, streams: Streams) -> IntArray:
        """int64[c], ascending; a function of (seed, round) alone.

        Raises:
            ConfigError: more clients per round than there are.
        """
        if self.clients_per_round is None:
            return np.arange(n_clients)
        if self.clients_per_round > n_clients:
            raise ConfigError(
                "cohort.clients_per_round",
                self.clients_per_round,
                f"there are only {n_clients} clients",
            )
        generator = streams.stream("cohort").generator(round_)
        return np.sort(generator.choice(n_clients, self.clients_per_round, replace=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What is known about a round once it is over.

    Args:
        round: its number, from 1.
        participants: clients that took part.
        error: on the test set; None without one.
    """

    round: int
    participants: int
    error: RatingError | None


class LocalEngine:
    """Runs one federation.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        vault: the clients' private state; initialised here.
        test: held-out ratings for the per-round error; may be empty.
        streams: the run's random streams.
        wire: carries the messages.
        cohort: who is invited.
        participants: overrides cohort and collector, round -> clients; used to give a twin run the
            very same participants.
        batch_rows: about how many of a batch's own ratings are processed at once.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        stack: Stack,
        vault: Vault,
        test: RatingTable,
        streams: Streams,
        wire: Wire,
        cohort: CohortConfig | None = None,
        participants: Callable[[int], IntArray] | None = None,
        batch_rows: int = 8192,
    ) -> None:
        self.algorithm = algorithm
        self.stack = stack
        self.vault = vault
        self.wire = wire
        self._test = test
        self._streams = streams
        self._cohort = cohort if cohort is not None else CohortConfig()
        self._participants = participants
        self._batch_rows = batch_rows
        if test.n_clients != vault.n_clients:
            raise ConfigError(
                "test", test.n_clients, f"clients in the test set, {vault.n_clients} vaults"
            )
        self.public = algorithm.initial_public(test.n_items, streams)
        algorithm.initialise(vault, streams)

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
        before = self.state()
        try:
            self._broadcast(round_, participants)
            aggregate = self._collect(round_, participants)
            self.public = self.algorithm.server_step(self.public, aggregate)
            self.wire.end_round(round_)
        except BaseException:  # an interrupt, too, must leave no client half trained
            self.restore(before)
            self.wire.abandon_round(round_)
            raise
        return RoundReport(round=round_, participants=len(participants), error=self.evaluate())

    def evaluate(self) -> RatingError | None:
        """Error of the present state on the test set."""
        test = self._test
        if not len(test.ratings):
            return None
        parts = [
            self.algorithm.predict(
                self.public,
                self.vault,
                test.clients[start : start + _EVALUATION_ROWS].astype(np.int64),
                test.items[start : start + _EVALUATION_ROWS],
            )
            for start in range(0, len(test.ratings), _EVALUATION_ROWS)
        ]
        scale = test.scale
        return rating_error(np.concatenate(parts), test.ratings, low=scale.low, high=scale.high)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything a resumed run needs to go on to the same bits."""
        private = {f"vault.{name}": values for name, values in self._private().items()}
        meter = {f"meter.{name}": value for name, value in self.wire.meter.state().items()}
        public = {"round": np.array(self.public.round), "table": self.public.table}
        return {**public, **private, **meter}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go back to a state returned by ``state``."""
        self._restore_private({name: state[f"vault.{name}"] for name in self.vault.names()})
        prefix = "meter."
        self.wire.meter.restore(
            {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        )
        self.public = PublicState(round=int(state["round"]), table=np.asarray(state["table"]))

    def _private(self) -> dict[str, FloatArray]:
        everybody = np.arange(self.vault.n_clients)
        return {name: self.vault.read(name, everybody) for name in self.vault.names()}

    def _restore_private(self, tables: Mapping[str, FloatArray]) -> None:
        for name, values in tables.items():
            self.vault.write(name, np.arange(self.vault.n_clients), values)

    def _collect(self, round_: int, participants: IntArray) -> Aggregate:
        session = self.stack.open(round_=round_, participants=participants, wire=self.wire)
        for clients in self._batches(session.order):
            step = self.algorithm.client_step(clients, self.public, self.vault, self._streams)
            session.submit(step)
            step.commit(self.vault)
        return session.close()

    def _broadcast(self, round_: int, participants: IntArray) -> None:
        table = self.public.table
        self.wire.send(
            Messages(
                round=round_,
                step=Step.MODEL,
                senders=Parties.server(len(participants)),
                receivers=Parties(role="client", ids=participants),
                payload=DenseBlock(values=table, shape=table.shape),
                sizes=np.full(len(participants), table.nbytes),
            ),
            targets=participants,
        )

    def _batches(self, order: IntArray) -> Iterator[IntArray]:
        """Consecutive runs of clients with about ``batch_rows`` ratings each."""
        if not len(order):
            return
        cost = np.cumsum(self.vault.rated_counts()[order] + 1)
        cuts = np.searchsorted(cost, np.arange(self._batch_rows, cost[-1], self._batch_rows))
        for part in np.split(order, np.unique(cuts)):
            if len(part):
                yield part


def vault_of(table: RatingTable) -> Vault:
    """The clients' vaults, holding their training ratings."""
    return Vault(indptr=table.indptr(), items=table.items, ratings=table.ratings)
