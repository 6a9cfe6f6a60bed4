"""The coordinator's carrier: Flower's Grid."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
from flwr.serverapp import Grid

from secure_fedrec.engines.flower.messages import data_of, message_to
from secure_fedrec.errors import HostError


class GridTransport:
    """Carries bytes over a Grid (``engines.distributed.Transport``).

    Args:
        grid: of a run in progress.
        every: seconds between two looks for answers.
    """

    def __init__(self, grid: Grid, *, every: float = 0.1) -> None:
        self.grid = grid
        self._every = every

    def addresses(self) -> Sequence[int]:
        """Nodes that the SuperLink takes for being there.

        Raises:
            HostError: the SuperLink is not reached.
        """
        with _reached():
            return list(self.grid.get_node_ids())

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        """Send messages, and give answers as they come (``distributed.Transport``).

        Raises:
            HostError: the SuperLink is not reached.
        """
        nodes = list(messages)
        with _reached():
            sent = self.grid.push_messages(
                [message_to(node, messages[node], label) for node in nodes]
            )
        due = {mark: node for mark, node in zip(sent, nodes, strict=False) if mark}
        end = None if timeout is None else time.monotonic() + timeout
        while due and (end is None or time.monotonic() < end):
            with _reached():
                found = list(self.grid.pull_messages(list(due)))
            for reply in found:
                node, data = due.pop(reply.metadata.reply_to_message_id, None), data_of(reply)
                if node is not None:
                    yield node, data or b""
            if due:
                time.sleep(self._every)


@contextmanager
def _reached() -> Iterator[None]:
    """Say of a SuperLink that does not answer that it does not.

    Raises:
        HostError: in the place of the HTTP client's errors.
    """
    try:
        yield
    except httpx.HTTPError as error:
        raise HostError(f"the SuperLink is not reached: {type(error).__name__}") from error
