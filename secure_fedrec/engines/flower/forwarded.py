"""A strategy and a grid that forward every call: a wrapper overrides only what it changes."""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from typing_extensions import override


class ForwardedStrategy(Strategy):
    """A wrapper of a strategy.

    Args:
        strategy: the one inside.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @override
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._strategy.configure_train(server_round, arrays, config, grid)

    @override
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self._strategy.aggregate_train(server_round, replies)

    @override
    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._strategy.configure_evaluate(server_round, arrays, config, grid)

    @override
    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self._strategy.aggregate_evaluate(server_round, replies)

    @override
    def summary(self) -> None:
        self._strategy.summary()


class ForwardedGrid(Grid):
    """A wrapper of a grid.

    Args:
        grid: the one inside.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    @override
    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)

    @override
    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    @override
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    @override
    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    @override
    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    @override
    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return self._grid.create_message(*arguments, **named)

    @override
    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    @override
    def run(self) -> Any:
        return self._grid.run
