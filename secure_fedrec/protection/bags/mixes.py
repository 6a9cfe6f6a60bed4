"""Vectors as cells of a mix cascade: number and contents of a client's cells."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.bag_vectors import canonical_order
from secure_fedrec.protection.base.layer_interfaces import BagShape
from secure_fedrec.protection.routing import LEAST_SENDERS, RoutingConfig
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Stream, Streams
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import decode_set, encode_set, set_sizes


@dataclass(eq=False)
class Mixes:
    """The layer for given bags and ring.

    Args:
        config: settings of the mixes.
        bags: sizes of the bags.
        codec: the ring.
        streams: the run's random streams; uses "bag-arrival" and the name of each bag.

    Attributes:
        cells: cells that every client hands in, for all bags together.

    Raises:
        ConfigError: a vector does not fit a cell.
    """

    config: RoutingLayerConfig
    _: KW_ONLY
    bags: Mapping[str, BagShape]
    codec: FixedPoint
    streams: Streams

    def __post_init__(self) -> None:
        self.cells = sum(shape.most for shape in self.bags.values())
        self.arrival: Mapping[str, Stream] = {
            name: self.streams.stream(f"bag-arrival|{name}") for name in self.bags
        }
        one = SetBlock(indptr=np.array([0, 1]), values=None)
        widest = max(shape.width for shape in self.bags.values())
        needed = int(set_sizes(one, width=widest, codec=self.codec)[0])
        size, lacking = self.config.cell_bytes, needed - self.config.routing.capacity
        if lacking > 0:
            problem = f"must be at least {size + lacking} to carry a vector"
            raise ConfigError("bag_protection.cell_bytes", size, problem)

    @property
    def routing(self) -> RoutingConfig:
        """Sizes of the mix network; no batch comes from a single client."""
        return replace(self.config.routing, min_batch=LEAST_SENDERS * self.cells)

    def messages(self, blocks: Mapping[str, SetBlock], round_: int) -> list[list[bytes]]:
        """The messages of some clients to all bags: one message of ring words per vector."""
        each: list[list[bytes]] = [[] for _ in next(iter(blocks.values())).lengths]
        for number, name in enumerate(self.bags):
            block = blocks[name]
            owners = np.repeat(np.arange(len(each)), block.lengths)
            vectors = np.empty((0, 0)) if block.values is None else block.values
            for owner, vector in zip(owners.tolist(), vectors, strict=True):
                one = SetBlock(indptr=np.array([0, 1]), values=vector[None])
                message = encode_set(one, round_=round_, bag=number, codec=self.codec)
                each[owner].append(message)
        return each

    def read(self, messages: Iterable[bytes], round_: int) -> dict[str, RingArray]:
        """Inverse of ``messages`` without owners: [N, d] ring words by bag, in canonical order.

        Raises:
            ProtocolError: a vector of another round.
            WireError: no vector.
        """
        codec, widths = self.codec, [shape.width for shape in self.bags.values()]
        found: list[list[RingArray]] = [[np.empty((0, w), dtype=codec.dtype)] for w in widths]
        for message in messages:
            stated, number, block = decode_set(message, codec=codec, widths=widths)
            if stated != round_ or block.values is None:
                raise ProtocolError(f"round {round_}: a vector of round {stated} arrived")
            found[number].append(block.values)
        return {
            name: canonical_order(np.concatenate(parts), codec)
            for name, parts in zip(self.bags, found, strict=True)
        }
