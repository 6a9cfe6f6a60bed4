"""A mix node: takes cells in, forwards them in batches, in an order of its own.

Sans-I/O: bytes in through ``receive``, bytes out through ``flush``; when to flush, and how cells
travel, is the caller's. A batch mixes cells of one epoch only, because a cell's epoch is public.
"""

import secrets
from collections.abc import Sequence

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.onions import CellOpener, address_of, forward
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.protection.session import Node, Parcel, Role, refusals_of


def node_of(layer: int, node: int) -> Node:
    """The name of a mix among the parties."""
    return Node(Role.MIX, layer * 2**16 + node)


def layer_of(node: Node) -> int:
    """The layer of a mix."""
    return node.number // 2**16


class MixNode:
    """One mix.

    It hides from all other parties which incoming cell became which cell of the batch. The senders
    of a batch are the anonymity set: ``min_batch`` counts cells, and a party that inserts all other
    cells of a batch finds the remaining ones; cells that parties send to themselves
    (``Endpoint.loop``) detect such floods.

    Args:
        layer: layer of the node, from 0.
        node: its number in the layer.
    """

    def __init__(self, *, layer: int, node: int) -> None:
        self._layer = layer
        self.node = node_of(layer, node)
        self._opener = CellOpener(layer, node)
        self._pools: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}

    def rotate(self, directory: Directory, key: OpeningKey) -> None:
        """Begin an epoch with a fresh key.

        Raises:
            ProtocolError: the epoch is not a later one, the directory lists another key for this
                node, or the node stands in the layer of the recipients.
        """
        if self._layer >= directory.config.layers:
            raise ProtocolError(f"layer {self._layer} is not a layer of mixes")
        self._opener.rotate(directory, key)
        self._pools[directory.epoch] = []
        self._sizes[directory.epoch] = directory.config.min_batch

    def retire(self, epoch: int) -> None:
        """Forget an epoch.

        Raises:
            ProtocolError: cells of that epoch still wait (fill the batch with loops and flush it),
                or the node holds no key of it.
        """
        waiting = len(self._pools.get(epoch, ()))
        if waiting:
            raise ProtocolError(f"{waiting} cells of epoch {epoch} wait; flush them first")
        self._opener.retire(epoch)
        del self._pools[epoch], self._sizes[epoch]

    @property
    def waiting(self) -> int:
        """Cells that wait to be forwarded."""
        return sum(len(pool) for pool in self._pools.values())

    @property
    def ready(self) -> bool:
        """Whether a batch is large enough to be forwarded."""
        return any(len(pool) >= self._sizes[epoch] for epoch, pool in self._pools.items())

    def receive(self, cell: bytes) -> None:
        """Take a cell in.

        Raises:
            ProtocolError: see ``CellOpener.open``; or the cell goes on to a node that does not
                exist. It is dropped.
        """
        directory, inside = self._opener.open(cell)
        self._pools[directory.epoch].append(forward(inside, self._layer + 1, directory))

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Take cells in, leave out refused ones, and forward a batch that is ready (``Party``).

        The sender of an omitted cell finds that it is missing in the recipient's list of receipts.

        Raises:
            ProtocolError: no batch is large enough.
        """
        refusals_of(inbox, self.receive)
        return [self._parcel(cell) for cell in self.flush()]

    def _parcel(self, cell: bytes) -> Parcel:
        place, stage = address_of(cell), f"CELL-{self._layer + 1}"
        last = place.layer == self._opener.directory.config.layers
        receiver = Node(Role.DENOISER, place.node) if last else node_of(place.layer, place.node)
        return Parcel(self.node, receiver, stage, cell)

    def flush(self) -> list[bytes]:
        """Forward every batch that is large enough, each in a uniformly random order.

        Raises:
            ProtocolError: no batch is ready; a smaller one would mix too little.
        """
        if not self.ready:
            raise ProtocolError(f"{self.waiting} cells wait, fewer than the smallest batch")
        out: list[bytes] = []
        for epoch in sorted(self._pools):
            pool = self._pools[epoch]
            if len(pool) >= self._sizes[epoch]:
                secrets.SystemRandom().shuffle(pool)
                out += pool
                self._pools[epoch] = []
        return out
