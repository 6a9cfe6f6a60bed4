"""A wrapper of a strategy that records what its server sends and reads.

    recorder = Recorder(
        n_clients=10, arrays=model.state_dict(), weighted=True, send_models=True, sums=...
    )
    strategy = RecordedStrategy(FedAvg(), recorder)
    strategy.start(grid, initial_arrays, num_rounds=3)
    recording = recorder.close()

The app is not affected: messages and replies pass unchanged. ``recorded_replies`` describes what is
recorded, and what is refused. Where a strategy cannot be wrapped, clients
record what they send (``recorded_mod``).
"""

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from typing_extensions import override

from secure_fedrec.engines.flower.forwarded import ForwardedGrid, ForwardedStrategy
from secure_fedrec.engines.flower.message_bytes import is_train
from secure_fedrec.engines.flower.model_records import arrays_of, metrics_of, model_of
from secure_fedrec.engines.flower.recorded_replies import (
    note_upload,
    require_left_out,
    whole_model,
)
from secure_fedrec.recording import Recorder


class RecordedStrategy(ForwardedStrategy):
    """A strategy whose train messages and replies are recorded.

    Args:
        strategy: the one inside; rounds are its own.
        recorder: recorder of the arrays of its model, with a weight if replies have one.
        client_of: number of the client that a reply is from; the order in which nodes first appear
            if left out (``nodes``).

    Attributes:
        nodes: Flower's number of each client, in order.
    """

    def __init__(
        self,
        strategy: Strategy,
        recorder: Recorder,
        *,
        client_of: Callable[[Message], int] | None = None,
    ) -> None:
        super().__init__(strategy)
        self.nodes: list[int] = []
        self._recorder = recorder
        self._client_of = client_of or self._by_appearance
        self._round = 0

    @override
    def start(self, grid: Grid, initial_arrays: ArrayRecord, *others: Any, **named: Any) -> Result:
        inside = _RecordedGrid(grid, self)
        result = self._strategy.start(inside, initial_arrays, *others, **named)
        if self._round:
            self._recorder.after(self._round, whole_model(self._recorder, arrays_of(result.arrays)))
        return result

    def note_sent(self, messages: Iterable[Message]) -> None:
        """Record the model of a round, from its first train message.

        Raises:
            MisfitError: the model has other arrays than the recorder.
            ProtocolError: the message does not hold a model.
        """
        first = next(filter(is_train, messages), None)
        if first is not None:
            self._round += 1
            model = arrays_of(model_of(first.content)[1])
            told = whole_model(self._recorder, model)
            self._recorder.message(self._round, "model", "server", None, told)

    def note_replies(self, replies: Iterable[Message]) -> None:
        """Record the clients' replies to train messages.

        Raises:
            MisfitError: a reply holds other arrays or metrics than the recorder has.
        """
        for reply in replies:
            if not reply.has_content():
                continue
            if not is_train(reply):
                require_left_out(self._recorder, reply.metadata.message_type)
                continue
            note_upload(
                self._recorder,
                self._round,
                self._client_of(reply),
                arrays_of(model_of(reply.content)[1]),
                metrics_of(reply),
                weighted_by=str(getattr(self._strategy, "weighted_by_key", "num-examples")),
            )

    def _by_appearance(self, reply: Message) -> int:
        node = reply.metadata.src_node_id
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)


class _RecordedGrid(ForwardedGrid):
    """A grid that records train messages and their replies."""

    def __init__(self, grid: Grid, strategy: RecordedStrategy) -> None:
        super().__init__(grid)
        self._strategy = strategy

    @override
    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        self._strategy.note_sent(sent)
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        self._strategy.note_replies(replies)
        return replies

    @override
    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        self._strategy.note_sent(sent)
        return self._grid.push_messages(sent)

    @override
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(self._grid.pull_messages(message_ids))
        self._strategy.note_replies(replies)
        return replies
