"""Bags without routing: a client sends its vectors to the server under its name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.table import client_messages
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Meter, Step, set_sizes

Sending: TypeAlias = tuple[str, Messages, IntArray]
"""A bag, messages for it (senders as the server sees them), int64[B] the client of each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedLine:
    """One message per client and bag, with all its vectors.

    Args:
        round: the round in progress.
        participants: int64[P].
        codec: the ring.
    """

    round: int
    participants: IntArray
    codec: FixedPoint

    def due(self, bag: str) -> int:
        """One message per participant."""
        return len(self.participants)

    def hand_in(self, clients: IntArray, blocks: Mapping[str, SetBlock]) -> Iterator[Sending]:
        """One message per client and bag."""
        for name, block in blocks.items():
            width = 0 if block.values is None else block.values.shape[1]
            sizes = set_sizes(block, width=width, codec=self.codec)
            messages = client_messages(self.round, clients, block, sizes, step=Step.BAG, bag=name)
            yield name, messages, clients

    def count_receipts(self, meter: Meter) -> None:
        """Nothing: messages with named senders do not need receipts."""
