"""The coordinator's carrier: Flower's Grid."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
from flwr.app import Message
from flwr.serverapp import Grid
from typing_extensions import override

from secure_fedrec.engines.distributed.sites_channel import Transport
from secure_fedrec.engines.flower.message_bytes import data_of, message_to
from secure_fedrec.errors import HostError


class GridTransport(Transport):
    """Carries bytes over a Grid, to the nodes that the SuperLink considers connected.

    Args:
        grid: grid of a run in progress.
        every: seconds between two checks for answers.
    """

    def __init__(self, grid: Grid, *, every: float = 0.1) -> None:
        self.grid = grid
        self._every = every

    @override
    def addresses(self) -> Sequence[int]:
        with _reached():
            return list(self.grid.get_node_ids())

    @override
    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        sent = [self.message(node, data, label) for node, data in messages.items()]
        for reply in answers(self.grid, sent, timeout, every=self._every):
            yield reply.metadata.src_node_id, data_of(reply) or b""

    def message(self, node: int, data: bytes, label: str) -> Message:
        """A message that holds some bytes."""
        return message_to(node, data, label)


def answers(
    grid: Grid, messages: Sequence[Message], timeout: float | None, *, every: float = 0.1
) -> Iterator[Message]:
    """Send messages, and yield their replies as they come, including those about failures.

    Flower's own ``send_and_receive`` looks for replies every three seconds.

    Args:
        grid: grid of a run in progress.
        messages: what is sent.
        timeout: seconds to wait for the slowest; None as long as it takes.
        every: seconds between two checks for replies.

    Returns:
        Replies; each names as its sender the node that was asked.

    Raises:
        HostError: the SuperLink is not reached.
    """
    with _reached():
        sent = list(grid.push_messages(messages))
    due = {
        mark: message.metadata.dst_node_id
        for mark, message in zip(sent, messages, strict=False)
        if mark
    }
    end = None if timeout is None else time.monotonic() + timeout
    while due and (end is None or time.monotonic() < end):
        with _reached():
            found = list(grid.pull_messages(list(due)))
        for reply in found:
            node = due.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and node == reply.metadata.src_node_id:
                yield reply
        if due:
            time.sleep(every)


@contextmanager
def _reached() -> Iterator[None]:
    """Report a SuperLink that does not answer.

    Raises:
        HostError: in the place of the HTTP client's errors.
    """
    try:
        yield
    except httpx.HTTPError as error:
        raise HostError(f"the SuperLink is not reached: {type(error).__name__}") from error
