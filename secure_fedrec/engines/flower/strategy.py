"""A wrapper of a strategy that gets a mean, without any party seeing a client's update.

    strategy = ProtectedStrategy(FedAvg(), MaskedMean(clip=4.0, max_weight=1000), "server")

The strategy inside configures rounds as before. Where it would send train messages, sites and
server run a masked sum (``distributed.mean_coordinator``), and it is given a single reply: the
weighted mean, with the sum of the weights, as from one client that had all examples. Its own
weighted mean of that one reply is the mean; a server's optimizer works with it as before. Arrays
that the terms do not share keep their initial values in every message and in the result. Clients
are asked to evaluate against a curious server only: their replies are read in clear.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from secure_fedrec.engines.distributed.mean_coordinator import MeanCoordinator, MeanReport
from secure_fedrec.engines.distributed.mean_site import BEGIN, Keys
from secure_fedrec.engines.distributed.server_log import log_mean
from secure_fedrec.engines.flower.forwarded import ForwardedGrid, ForwardedStrategy
from secure_fedrec.engines.flower.grid_transport import GridTransport
from secure_fedrec.engines.flower.message_bytes import RECORD, is_train, record_of
from secure_fedrec.engines.flower.model_records import (
    agreed_message,
    arrays_of,
    model_of,
    replaced,
    task_digest,
    task_of,
)
from secure_fedrec.engines.flower.quiet_environment import require_quiet
from secure_fedrec.engines.flower.scrubbed_replies import log
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.means import Arrays, ProtectedMean

METRICS: Final = "metrics"
"""Name of the record of metrics for the strategy inside."""

_NEED_EACH: Final = frozenset(
    {
        *("Bulyan", "FedMedian", "FedTrimmedAvg", "FedXgbBagging", "FedXgbCyclic", "Krum"),
        *("MultiKrum", "QFedAvg"),
        *("DifferentialPrivacyClientSideAdaptiveClipping",),
        *("DifferentialPrivacyClientSideFixedClipping",),
        *("DifferentialPrivacyServerSideAdaptiveClipping",),
        *("DifferentialPrivacyServerSideFixedClipping",),
    }
)
"""Flower's strategies whose result is not a weighted mean of the clients' updates."""


class ProtectedStrategy(ForwardedStrategy):
    """A strategy whose train messages end in a mean; no party sees the updates in it.

    Args:
        strategy: configures rounds, and takes a weighted mean of what clients send.
        terms: the agreed terms, equal at every client.
        folder: the server's own, see ``distributed.mean_site.Keys``.
        every: seconds between two checks for answers.

    Attributes:
        reports: reports of the rounds so far.

    Raises:
        ConfigError: keys or roster are not valid, a round with all clients on the roster is
            impossible, the strategy needs every client's update, or Flower would contact hosts of
            its maker.
        CheckpointError: the server's kept state is damaged.
    """

    def __init__(
        self, strategy: Strategy, terms: ProtectedMean, folder: str | Path, *, every: float = 0.1
    ) -> None:
        require_quiet()
        for kind in type(strategy).__mro__:
            if kind.__name__ in _NEED_EACH:
                problem = "needs each client's update, but the server learns only their mean"
                raise ConfigError("strategy", kind.__name__, problem)
        super().__init__(strategy)
        self._terms = terms
        self._home: dict[str, Array] = {}
        self._coordinator = MeanCoordinator(terms, Keys(Path(folder)))
        self._every = every
        self.reports: list[MeanReport] = []

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *others: Any, **named: Any) -> Result:
        """Run the strategy inside, as its own ``start`` does (arguments: there).

        Raises:
            ConfigError, EncodingError: the terms do not fit the model (``MaskedMean.select``).
            ConfigError: a beacon in the server's folder is not signed as it has to be.
            ProtocolError: a round was given up, for too few clients were left in it, or a beacon
                was not published within the time-out.
        """
        home = self._terms.select(arrays_of(initial_arrays)).home
        self._home = {name: initial_arrays[name] for name in home}
        log.info("not shared, and left unchanged: %s", ", ".join(map(repr, home)) or "none")
        inside = _ProtectedGrid(grid, self)
        result = self._strategy.start(inside, initial_arrays, *others, **named)
        result.arrays = replaced(result.arrays, self._home)
        return result

    def as_begun(self, message: Message) -> Message:
        """A message in which arrays that are not shared are replaced by those of the first message.

        The strategy inside makes floats of whole numbers (``aggregate_arrayrecords``), and floats
        are shared.
        """
        if message.has_content():
            for name, arrays in list(message.content.array_records.items()):
                message.content[name] = replaced(arrays, self._home)
        return message

    @property
    def asks_nothing_else(self) -> bool:
        """Whether clients only answer train messages (``mod``)."""
        return self._terms.adversary == "active"

    def train(
        self, grid: Grid, messages: Sequence[Message], timeout: float | None
    ) -> list[Message]:
        """One round: replaces the train messages by a masked sum, and returns the one reply.

        Raises:
            ConfigError: the messages differ, or hold no model.
            ProtocolError: too few clients are left.
        """
        first, given = messages[0], [agreed_message(each, 0) for each in messages]
        digests = {task_digest(each) for each in given}
        if len(digests) > 1:
            problem = "must send all clients the same, since one mean is formed of their updates"
            raise ConfigError("strategy.configure_train", len(digests), problem)
        task = task_of(given[0], _nothing)
        name, model = model_of(first.content)
        shared = self._terms.select(task.model)
        report = self._coordinator.run_round(
            _Carrier(grid, messages, self._every), task, timeout=timeout
        )
        self.reports.append(report)
        log_mean(report)
        weight = getattr(self._strategy, "weighted_by_key", "num-examples")
        figures = MetricRecord({weight: report.mean.weight})
        figures.update(report.mean.metrics)
        moved = shared.moved_by(task.model, report.mean.arrays)
        mean = {each: Array(moved[each]) for each in shared.shapes}
        content = RecordDict({name: replaced(model, mean), METRICS: figures})
        return [Message(content, reply_to=first)]


class _ProtectedGrid(ForwardedGrid):
    """A grid that sends train messages under protection, and all others unchanged."""

    def __init__(self, grid: Grid, strategy: ProtectedStrategy) -> None:
        super().__init__(grid)
        self._strategy = strategy

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies; in the place of those to train messages the one that is their mean."""
        sent = [self._strategy.as_begun(each) for each in messages]
        train = [each for each in sent if is_train(each)]
        others = [each for each in sent if not is_train(each)]
        if others and self._strategy.asks_nothing_else:
            log.info("not sent, since the replies would be read in clear: %d messages", len(others))
            others = []
        replies = list(self._grid.send_and_receive(others, timeout=timeout)) if others else []
        return replies + (self._strategy.train(self._grid, train, timeout) if train else [])

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages without waiting, train messages excepted: a round takes several exchanges.

        Raises:
            ConfigError: a message is a train message.
        """
        sent = list(messages)
        if any(map(is_train, sent)):
            problem = "a protected round is driven by send_and_receive"
            raise ConfigError("grid.push_messages", "train", problem)
        return self._grid.push_messages(sent)


class _Carrier(GridTransport):
    """Carries a round's messages beside what the strategy sends, to the nodes that it chose."""

    def __init__(self, grid: Grid, messages: Sequence[Message], every: float) -> None:
        super().__init__(grid, every=every)
        self._messages = {each.metadata.dst_node_id: each for each in messages}

    def addresses(self) -> Sequence[int]:
        """Nodes that the strategy has chosen."""
        return list(self._messages)

    def message(self, node: int, data: bytes, label: str) -> Message:
        """A message as the strategy's own; the first one with what that has."""
        own = self._messages[node]
        content = RecordDict(dict(own.content) if label == BEGIN else {})
        content[RECORD] = record_of(data)
        return Message(
            content,
            dst_node_id=node,
            message_type=own.metadata.message_type,
            ttl=own.metadata.ttl,
            group_id=own.metadata.group_id,
        )


def _nothing(_: Arrays) -> Any:
    raise NotImplementedError  # the server does not compute updates
