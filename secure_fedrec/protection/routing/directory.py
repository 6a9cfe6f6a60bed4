"""The public description of a mix network: its sizes, and the keys of one epoch.

Mixes stand in layers; a path visits one mix of every layer in order and ends at a recipient. Paths
have one fixed length, so a cell's position is public and cells may shrink from layer to layer; all
cells at the same position have the same size to the byte.

Layout of a directory, version 1, little-endian:

    u8 version | u8 kem | u8 layers | u8 0 | u32 epoch | u32 cell bytes | u32 smallest batch
    u16 mixes of layer 0 | their keys | ... | u16 recipients | their keys

Its SHA-256 enters the ``info`` of every layer of every onion: a sender who was given another
directory than the mixes hold cannot send cells, and so cannot be recognised by its keys.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, TypeAlias

from secure_fedrec.errors import ConfigError, WireError
from secure_fedrec.protection.routing.fragments import FRAGMENT_HEADER_BYTES
from secure_fedrec.protection.routing.sealing import KEMS, Kem, KemName, SealingKey, labelled
from secure_fedrec.settings import Settings, Unit, Within

CELL_HEADER = struct.Struct("<BBHI")
"""Header of every cell: version, layer, node, epoch."""
NEXT_HOP = struct.Struct("<H")
"""Prefix of the inner onion: the node of the next layer."""
LEAST_SENDERS = 2
"""A batch with the cells of one sender does not hide that sender."""

_VERSION = 1
_HEADER = struct.Struct("<BBBBIII")
_COUNT = struct.Struct("<H")
_DOMAIN = b"secure-fedrec|routing|v1"


Mixes: TypeAlias = Annotated[int, Within(1, 16), Unit("mixes")]
"""A setting that says how many mixes a cell passes."""


class RoutingConfig(Settings, section="routing"):
    """Settings of a mix network.

    Args:
        layers: mixes a cell passes.
        cell_bytes: size of a cell as its sender hands it in.
        kem: key encapsulation, "x25519" or "mlkem768-x25519".
        min_batch: fewest cells that a mix shuffles and forwards together. It counts cells, not
            senders, whom a mix cannot tell apart: where every sender hands in n cells, set it to
            at least ``LEAST_SENDERS * n``, so that every batch has cells of several senders.

    Raises:
        ConfigError: a field is out of range, or no payload fits the cell.
    """

    layers: Mixes = 3
    cell_bytes: Annotated[int, Unit("bytes")] = 65536
    kem: KemName = "x25519"
    min_batch: Annotated[
        int, Within(LEAST_SENDERS, 2**31 - 1, why="; a batch of one cell is not mixed")
    ] = 64

    def _agree(self) -> None:
        self.require_between("cell_bytes", self.cell_bytes - self.capacity + 1, 2**24)

    @property
    def mechanism(self) -> Kem:
        """The key encapsulation."""
        return KEMS[self.kem]

    @property
    def capacity(self) -> int:
        """Bytes of a message that one cell carries."""
        return self.fragment_bytes - FRAGMENT_HEADER_BYTES

    @property
    def fragment_bytes(self) -> int:
        """Size of the fragment that the recipient finds in a cell."""
        return self.size_at(self.layers) - CELL_HEADER.size - self.mechanism.overhead

    def size_at(self, layer: int) -> int:
        """Size of a cell on its way to ``layer``; ``layers`` is the way to the recipient."""
        return self.cell_bytes - layer * (self.mechanism.overhead + NEXT_HOP.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directory:
    """Keys of one epoch.

    Every party must hold the same directory, authenticated by the operator of the network.

    Args:
        config: sizes.
        epoch: number of the epoch; keys are replaced from epoch to epoch.
        mixes: keys of the mixes, layer by layer.
        recipients: keys of those at whom paths may end: receivers of messages, and every party
            that sends cells to itself.

    Raises:
        WireError: a layer is empty or missing, there is no recipient, a key belongs to another key
            encapsulation or occurs twice, or a number does not fit its field.
    """

    config: RoutingConfig
    epoch: int
    mixes: tuple[tuple[SealingKey, ...], ...]
    recipients: tuple[SealingKey, ...]
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        if len(self.mixes) != self.config.layers:
            raise WireError(f"{len(self.mixes)} layers of mixes, declared {self.config.layers}")
        if not 0 <= self.epoch < 2**32:
            raise WireError(f"epoch {self.epoch} does not fit 32 bits")
        for group in (*self.mixes, self.recipients):
            if not 1 <= len(group) < 2**16:
                raise WireError("every layer needs 1 to 65535 nodes, and so do the recipients")
        keys = [key for group in (*self.mixes, self.recipients) for key in group]
        if any(key.kem is not self.config.mechanism for key in keys):
            raise WireError(f"every key must be of {self.config.kem}")
        if len({key.data for key in keys}) != len(keys):
            raise WireError("a key stands for two nodes; a cell could be replayed from one to both")
        object.__setattr__(self, "digest", sha256(self.encode()).digest())

    def key_of(self, layer: int, node: int) -> SealingKey:
        """Key of a node; the layer after the last mixes holds the recipients."""
        return (*self.mixes, self.recipients)[layer][node]

    def nodes(self, layer: int) -> int:
        """Number of nodes of a layer."""
        return len((*self.mixes, self.recipients)[layer])

    def info(self, layer: int, node: int) -> bytes:
        """What a layer of an onion is bound to besides the key of its node."""
        place = CELL_HEADER.pack(_VERSION, layer, node, self.epoch)
        return labelled(_DOMAIN, b"cell", place, self.digest)

    def encode(self) -> bytes:
        """Bytes of the layout above."""
        config = self.config
        numbers = config.layers, 0, self.epoch, config.cell_bytes, config.min_batch
        header = _HEADER.pack(_VERSION, config.mechanism.code, *numbers)
        groups = (*self.mixes, self.recipients)
        return header + b"".join(
            _COUNT.pack(len(group)) + b"".join(key.data for key in group) for group in groups
        )

    @classmethod
    def decode(cls, data: bytes) -> "Directory":
        """Read a directory, accepting exactly what ``encode`` writes.

        Raises:
            WireError: anything else.
        """
        if len(data) < _HEADER.size:
            raise WireError(f"a directory of {len(data)} bytes is shorter than its header")
        version, code, layers, zero, epoch, cell_bytes, min_batch = _HEADER.unpack_from(data)
        kem = next((kem for kem in KEMS.values() if kem.code == code), None)
        if version != _VERSION or zero or kem is None:
            raise WireError("a directory of an unknown version or key encapsulation")
        try:
            config = RoutingConfig(
                layers=layers, cell_bytes=cell_bytes, kem=kem.name, min_batch=min_batch
            )
        except ConfigError as damage:
            raise WireError(f"a directory with an impossible setting: {damage}") from damage
        *mixes, recipients = _read_groups(data, layers + 1, kem)
        return cls(config=config, epoch=epoch, mixes=tuple(mixes), recipients=recipients)


def _read_groups(data: bytes, groups: int, kem: Kem) -> Sequence[tuple[SealingKey, ...]]:
    found: list[tuple[SealingKey, ...]] = []
    place = _HEADER.size
    for _ in range(groups):
        if len(data) < place + _COUNT.size:
            raise WireError("a directory ends inside a layer")
        (count,) = _COUNT.unpack_from(data, place)
        place += _COUNT.size
        ends = range(place, place + count * kem.public_bytes, kem.public_bytes)
        found.append(tuple(SealingKey(kem, data[at : at + kem.public_bytes]) for at in ends))
        place += count * kem.public_bytes
    if place != len(data):
        raise WireError(f"a directory of {len(data)} bytes declares {place}")
    return found
