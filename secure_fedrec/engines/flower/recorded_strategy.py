"""A strategy around somebody else's that writes down what its server sends and reads.

    recorder = Recorder(
        n_clients=10, arrays=model.state_dict(), weighted=True, send_models=True, sums=...
    )
    strategy = RecordedStrategy(FedAvg(), recorder)
    strategy.start(grid, initial_arrays, num_rounds=3)
    recording = recorder.close()

The app knows nothing of it: messages and replies pass as they are. What the server reads of a
reply is its arrays, the weight, and its metrics; a metric is recorded where the recorder has an
array of that name, ``"metrics.train_loss": ()``, and refused where it has none, so that no
recording is silent about what was read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from typing_extensions import override

from secure_fedrec.engines.flower.forwarded import ForwardedGrid, ForwardedStrategy
from secure_fedrec.engines.flower.message_bytes import is_train
from secure_fedrec.engines.flower.model_records import arrays_of, model_of
from secure_fedrec.errors import MisfitError
from secure_fedrec.recording import Recorder

METRICS = "metrics."
"""Begins the names of metrics among the arrays of a recorder."""


class RecordedStrategy(ForwardedStrategy):
    """A strategy whose train messages and replies are written down.

    Args:
        strategy: the one inside; rounds are its own.
        recorder: of the arrays of its model, with a weight if replies have one.
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
            self._recorder.after(self._round, self._whole(arrays_of(result.arrays)))
        return result

    def note_sent(self, messages: Iterable[Message]) -> None:
        """Write down the model of a round, from its first train message.

        Raises:
            MisfitError: it holds other arrays than the recorder has.
            ProtocolError: it holds no model.
        """
        first = next(filter(is_train, messages), None)
        if first is not None:
            self._round += 1
            model = arrays_of(model_of(first.content)[1])
            self._recorder.message(self._round, "model", "server", None, self._whole(model))

    def note_replies(self, replies: Iterable[Message]) -> None:
        """Write down what clients reply to train messages.

        Raises:
            MisfitError: a reply holds other arrays or metrics than the recorder has.
        """
        for reply in replies:
            if not reply.has_content():
                continue
            if not is_train(reply):
                self._require_left_out(reply)
            else:
                arrays = arrays_of(model_of(reply.content)[1])
                metrics = self._metrics(reply)
                by = self._weighted_by if self._recorder.arrays.weighted else None
                weight = metrics.pop(by, None)
                told = {f"{METRICS}{name}": metrics[name] for name in metrics}
                self._recorder.message(
                    self._round,
                    "upload",
                    self._client_of(reply),
                    "server",
                    arrays | told,
                    weight=weight,
                )

    @property
    def _weighted_by(self) -> str:
        return str(getattr(self._strategy, "weighted_by_key", "num-examples"))

    def _metrics(self, reply: Message) -> dict[str | None, Any]:
        found: dict[str | None, Any] = {}
        for record in reply.content.metric_records.values():
            found.update(record.items())
        known = {name.removeprefix(METRICS) for name in self._recorder.arrays.shapes}
        known |= {self._weighted_by} if self._recorder.arrays.weighted else set()
        unknown = [name for name in found if name not in known]
        if unknown:
            names = ", ".join(f"{METRICS}{name}" for name in unknown)
            problem = "the server reads it: name it among the recorder's arrays"
            raise MisfitError(f"{names} is not an array of the recorder; {problem}")
        return found

    def _require_left_out(self, reply: Message) -> None:
        """Refuse replies that no recording holds, unless the recorder says that it leaves some out.

        Raises:
            MisfitError: it does not.
        """
        if not self._recorder.leave_out:
            kind = reply.metadata.message_type
            problem = 'the server reads them: say so, Recorder(leave_out=["metrics of evaluation"])'
            raise MisfitError(f"replies of type {kind!r} are not recorded; {problem}")

    def _whole(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """A model beside zeros for the metrics, which no server hands out."""
        told = {n: 0.0 for n in self._recorder.arrays.shapes if n.startswith(METRICS)}
        return {**model, **told}

    def _by_appearance(self, reply: Message) -> int:
        node = reply.metadata.src_node_id
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)


class _RecordedGrid(ForwardedGrid):
    """A grid on which train messages and their replies are noted as they pass."""

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
