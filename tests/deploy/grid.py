"""A Flower run in this process: apps are called as Flower calls them, bytes are what passes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from secure_fedrec.engines.flower.quiet_environment import SWITCHES

Relay = Callable[[Message], Sequence[Message]]
"""What arrives of a message, on its way to a node or back."""


@dataclass
class MemoryGrid(Grid):
    """Nodes in this process.

    Args:
        apps: by node.
        contexts: of the nodes.

    Attributes:
        out, back: what stands between; by default everything arrives.
        seen: bytes that came back, of all messages.
        exchanges: types of the messages pushed, an entry per push.
    """

    apps: Mapping[int, ClientApp]
    contexts: Mapping[int, Context]
    out: Relay = lambda message: [message]
    back: Relay = lambda message: [message]
    seen: list[bytes] = field(default_factory=list)
    exchanges: list[list[Message]] = field(default_factory=list)
    replies: dict[str, Message] = field(default_factory=dict)

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        marks: list[str] = []
        self.exchanges.append(list(messages))
        for message in self.exchanges[-1]:
            mark = f"message {len(self.seen)}-{len(marks)}-{len(self.exchanges)}"
            message.metadata.__dict__["_message_id"] = mark
            marks.append(mark)
            for each in self.out(_carried(message)):
                for reply in self.back(self._asked(_carried(each))):
                    self.seen.append(message_to_proto(reply).SerializeToString())
                    self.replies[mark] = reply
        return marks

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(mark) for mark in message_ids if mark in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))

    def _asked(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            return _carried(self.apps[node](message, self.contexts[node]))
        except Exception as failure:  # Flower tells the server all of it
            error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, repr(failure))
            return _carried(Message(error, reply_to=message))


def as_flower_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one that Flower has started, quietly."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    for switch, value in SWITCHES.items():
        monkeypatch.setenv(switch, value)


def _carried(message: Message) -> Message:
    data = message_to_proto(message).SerializeToString()
    return message_from_proto(ProtoMessage.FromString(data))


def context_of(node: int, folder: Path, run: Mapping[str, Any], parts: int) -> Context:
    """The context of a node whose own folder is one."""
    return Context(
        run_id=1,
        node_id=node,
        node_config={"partition-id": node, "num-partitions": parts, "secure-fedrec": str(folder)},
        state=RecordDict(),
        run_config=dict(run),
    )
