"""Onions: a fragment sealed once per hop, and how a hop opens its layer.

A cell is a header (version, layer, node, epoch) and a box sealed to that node:

    cell   = header(layer, node) | seal(next node | box of the next layer)     at a mix
           = header(layer, node) | seal(fragment)                              at the recipient

The header is not sealed but bound: it is part of the box's ``info``, with the directory's digest.
A mix writes the next header itself, from the opened content. Sizes are those of
``RoutingConfig.size_at``; as every hop checks them and every box is authenticated, a cell changed
in any bit is refused at the next honest hop and cannot be recognised at the end of the path.

Nested boxes need no blinding of group elements: each layer has a key encapsulation of its own.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.routing.directory import CELL_HEADER, NEXT_HOP, Directory
from secure_fedrec.protection.routing.fragments import Fragment, encode_fragment
from secure_fedrec.protection.routing.sealing import OpeningKey

CELLS_PER_KEY = 2**22
"""Cells that one epoch key opens at most, so that its replay cache has a bounded size."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is going."""

    layer: int
    node: int
    epoch: int


def draw_path(directory: Directory) -> tuple[int, ...]:
    """One mix of every layer, each drawn uniformly by the operating system's generator."""
    return tuple(secrets.randbelow(len(group)) for group in directory.mixes)


def wrap(fragment: Fragment, *, path: Sequence[int], recipient: int, directory: Directory) -> bytes:
    """Seal a fragment for its path; the cell to hand to the first mix.

    Args:
        fragment: content for the recipient.
        path: node of every layer of mixes.
        recipient: node at which the path ends.
        directory: keys.

    Raises:
        ProtocolError: the path leaves out a layer, or names a node that is not in the directory.
    """
    config = directory.config
    hops = (*path, recipient)
    if len(hops) != config.layers + 1:
        raise ProtocolError(f"a path visits {config.layers} mixes, got {len(path)}")
    for layer, node in enumerate(hops):
        if not 0 <= node < directory.nodes(layer):
            raise ProtocolError(f"the directory has no node {node} in layer {layer}")
    inside = encode_fragment(fragment, config.capacity)
    for layer in range(config.layers, -1, -1):
        node = hops[layer]
        box = directory.key_of(layer, node).seal(inside, directory.info(layer, node))
        inside = NEXT_HOP.pack(node) + box
    return forward(inside, 0, directory)


def forward(inside: bytes, layer: int, directory: Directory) -> bytes:
    """The cell that goes on to ``layer``, from what the hop before found: node, then box.

    Raises:
        ProtocolError: the sender named a node that does not exist.
    """
    (node,) = NEXT_HOP.unpack_from(inside)
    if node >= directory.nodes(layer):
        raise ProtocolError(f"a cell names node {node} of layer {layer}, which does not exist")
    return CELL_HEADER.pack(_VERSION, layer, node, directory.epoch) + inside[NEXT_HOP.size :]


def address_of(cell: bytes) -> Place:
    """Where a cell is to be delivered, for the transport between nodes.

    Raises:
        WireError: it has no valid header.
    """
    if len(cell) < CELL_HEADER.size:
        raise WireError(f"a cell of {len(cell)} bytes is shorter than its header")
    version, layer, node, epoch = CELL_HEADER.unpack_from(cell)
    if version != _VERSION:
        raise WireError(f"a cell of version {version}, need {_VERSION}")
    return Place(layer, node, epoch)


@dataclass(slots=True, eq=False)
class _Epoch:
    directory: Directory
    key: OpeningKey
    seen: set[bytes] = field(default_factory=set)


class CellOpener:
    """Opens the cells addressed to one node, with the keys of the epochs in force.

    The replay cache of a key lives as long as the key, in memory: a node that restarts must not
    use its old keys again.

    Args:
        layer: layer of the node; the layer after the last mixes are the recipients.
        node: its number in the layer.
    """

    def __init__(self, layer: int, node: int) -> None:
        self._layer = layer
        self._node = node
        self._epochs: dict[int, _Epoch] = {}
        self._retired = -1

    @property
    def directory(self) -> Directory:
        """The directory of the newest epoch.

        Raises:
            ProtocolError: a directory has not arrived yet.
        """
        if not self._epochs:
            raise ProtocolError("the node holds no key; rotate first")
        return self._epochs[max(self._epochs)].directory

    def rotate(self, directory: Directory, key: OpeningKey) -> None:
        """Begin an epoch; earlier keys stay in force until they are retired.

        Raises:
            ProtocolError: the epoch is not a later one, or the directory has another key here.
        """
        newest = max((self._retired, *self._epochs))
        if directory.epoch <= newest:
            raise ProtocolError(f"epoch {directory.epoch} does not follow epoch {newest}")
        if self._node >= directory.nodes(self._layer):
            raise ProtocolError(f"the directory has no node {self._node} in layer {self._layer}")
        if directory.key_of(self._layer, self._node).data != key.public.data:
            raise ProtocolError("the directory lists another key for this node")
        self._epochs[directory.epoch] = _Epoch(directory, key)

    def retire(self, epoch: int) -> None:
        """Forget the key and the replay cache of an epoch.

        Raises:
            ProtocolError: the node holds no key of that epoch.
        """
        if epoch not in self._epochs:
            raise ProtocolError(f"the node holds no key of epoch {epoch}")
        del self._epochs[epoch]
        self._retired = max(self._retired, epoch)

    def open(self, cell: bytes) -> tuple[Directory, bytes]:
        """Open a cell: the directory of its epoch, and what is inside.

        Raises:
            ProtocolError: the cell is of another version, node, epoch or size, is a replay, fails
                authentication, or its key has opened as many cells as it may. The cell is dropped
                and the node's state does not change.
        """
        epoch = self._epoch_of(cell)
        directory, kem = epoch.directory, epoch.directory.config.mechanism
        box = cell[CELL_HEADER.size :]
        # An encapsulation opens one box only: bytes of the box that differ fail authentication.
        encapsulated = box[: kem.encapsulated_bytes]
        tag = encapsulated if len(encapsulated) == 32 else sha256(encapsulated).digest()
        if tag in epoch.seen:
            raise ProtocolError("cell refused: replayed")
        if len(epoch.seen) >= CELLS_PER_KEY:
            raise ProtocolError(f"cell refused: epoch {directory.epoch} is full, rotate the key")
        try:
            inside = epoch.key.open(box, directory.info(self._layer, self._node))
        except ProtocolError as damage:
            raise ProtocolError("cell refused: fails authentication") from damage
        epoch.seen.add(tag)
        return directory, inside

    def _epoch_of(self, cell: bytes) -> _Epoch:
        try:
            place = address_of(cell)
        except WireError as damage:
            raise ProtocolError(f"cell refused: {damage}") from damage
        if (place.layer, place.node) != (self._layer, self._node):
            raise ProtocolError(
                f"cell refused: addressed to node {place.node} of layer {place.layer}"
            )
        if place.epoch not in self._epochs:
            raise ProtocolError(f"cell refused: no key of epoch {place.epoch}")
        epoch = self._epochs[place.epoch]
        expected = epoch.directory.config.size_at(self._layer)
        if len(cell) != expected:
            raise ProtocolError(f"cell refused: {len(cell)} bytes instead of {expected}")
        return epoch
