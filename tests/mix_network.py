"""A whole cascade in one process: one mix per layer, and the recipients at its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.routing.directory import NEXT_HOP, Directory, RoutingConfig
from secure_fedrec.protection.routing.endpoint import MAX_PIECES, Endpoint
from secure_fedrec.protection.routing.fragments import Kind, cover, cut, encode_fragment
from secure_fedrec.protection.routing.mix import MixNode
from secure_fedrec.protection.routing.onions import address_of, forward
from secure_fedrec.protection.routing.receipts import SentCells, new_identity, receipt_digest
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.wire import Parcels, Parties, Wire


@dataclass(slots=True, kw_only=True)
class MixNetwork:
    """A cascade.

    Args:
        directory: keys of the epoch.
        mixes: the mixes, in order.
        ends: the recipients' ends.
        identities: their signing keys.
        wire: carries what goes from node to node; None where everything arrives.
    """

    directory: Directory
    mixes: tuple[MixNode, ...]
    ends: tuple[Endpoint, ...]
    identities: tuple[Ed25519PrivateKey, ...]
    wire: Wire | None = None

    @classmethod
    def start(
        cls,
        config: RoutingConfig,
        *,
        recipients: int,
        epoch: int,
        max_pieces: int = MAX_PIECES,
        wire: Wire | None = None,
    ) -> "MixNetwork":
        """A network with fresh keys, whose ends take messages of at most ``max_pieces`` cells."""
        keys = [OpeningKey.generate(config.mechanism) for _ in range(config.layers + recipients)]
        public = tuple(key.public for key in keys)
        directory = Directory(
            config=config,
            epoch=epoch,
            mixes=tuple((key,) for key in public[: config.layers]),
            recipients=public[config.layers :],
        )
        mixes = tuple(MixNode(layer=layer, node=0) for layer in range(config.layers))
        ends = tuple(
            Endpoint(layers=config.layers, index=index, max_pieces=max_pieces)
            for index in range(recipients)
        )
        nodes: list[MixNode | Endpoint] = [*mixes, *ends]
        for node, key in zip(nodes, keys, strict=True):
            node.rotate(directory, key)
        identities = tuple(new_identity() for _ in range(recipients))
        return cls(directory=directory, mixes=mixes, ends=ends, identities=identities, wire=wire)

    def carry(self, cells: list[bytes]) -> list[bytes]:
        """Pass cells through all mixes, as one batch; what arrives at recipients.

        Raises:
            ProtocolError: too few cells arrive at a mix for a batch.
        """
        for layer, mix in enumerate(self.mixes):
            sent = mix.step(self._over("client" if not layer else "mix", "mix", layer, cells))
            cells = [parcel.data for parcel in sent]
        arrived = self._over("mix", "recipient", len(self.mixes), cells)
        return [cell for cell in arrived if self._is_addressed(cell)]

    def require_received(self, senders: Sequence[SentCells], *, batch: int) -> None:
        """Let every recipient sign for its cells, and every sender look for its own.

        Raises:
            ProtocolError: a sender does not find one.
        """
        receipts = [
            end.receipt(batch=batch, identity=key)
            for end, key in zip(self.ends, self.identities, strict=True)
        ]
        signers = [key.public_key().public_bytes_raw() for key in self.identities]
        published = [receipt_digest(receipt) for receipt in receipts]  # by another way
        for number, sender in enumerate(senders):
            lists = dict.fromkeys(self._lists(number, receipts))
            try:
                sender.require_received(list(lists), signers=signers, published=published)
            except WireError as damage:
                raise ProtocolError(f"a list of receipts is refused: {damage}") from None

    def _lists(self, sender: int, receipts: list[bytes]) -> Sequence[bytes]:
        """All lists, on their way to one sender."""
        if self.wire is None:
            return receipts
        ends = {"senders": "server", "receivers": "client"}
        return self._carried(self.wire, "RECEIPT", [sender] * len(receipts), receipts, **ends)

    def _over(self, by: str, to: str, layer: int, cells: list[bytes]) -> Sequence[bytes]:
        """Cells on one line of the network."""
        if self.wire is None:
            return cells
        nodes = [address_of(cell).node for cell in cells]
        return self._carried(self.wire, f"CELL-{layer}", nodes, cells, senders=by, receivers=to)

    def _carried(
        self,
        wire: Wire,
        stage: str,
        nodes: Sequence[int],
        data: list[bytes],
        *,
        senders: str,
        receivers: str,
    ) -> Sequence[bytes]:
        batch = Parcels(
            round=self.directory.epoch,
            stage=stage,
            step=None,
            senders=Parties.anonymous(senders, len(data)),
            receivers=Parties(role=receivers, ids=np.array(nodes, dtype=np.int64)),
            data=tuple(data),
        )
        return wire.carry(batch).data

    def _is_addressed(self, cell: bytes) -> bool:
        """Whether a cell names a recipient; on the last line nobody else looks at its header."""
        try:
            return address_of(cell).node < len(self.ends)
        except WireError:
            return False


def changed_by_last_mix(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Directory, list[bytes]], list[bytes]]
) -> None:
    """Let the last mix of every cascade forward other cells than it should."""
    flush = MixNode.flush

    def flushed(mix: MixNode) -> list[bytes]:
        cells, directory = flush(mix), mix._opener.directory
        return change(directory, cells) if is_last(mix) else cells

    monkeypatch.setattr(MixNode, "flush", flushed)


def own_cell(directory: Directory, recipient: int, message: bytes | None = None) -> bytes:
    """A cell of a last mix's own to a recipient, as it leaves that mix: a message, or a dummy."""
    config = directory.config
    piece = cover(Kind.DUMMY) if message is None else cut(message, config.capacity)[0]
    inside = encode_fragment(piece, config.capacity)
    key, info = directory.key_of(config.layers, recipient), directory.info(config.layers, recipient)
    inside = NEXT_HOP.pack(recipient) + key.seal(inside, info)
    return forward(inside, config.layers, directory)


def is_last(mix: MixNode) -> bool:
    """Whether cells go from a mix to their recipients."""
    return mix._layer + 1 == mix._opener.directory.config.layers


def noted_at_first_mix(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Sizes of the cells of every batch that a first mix forwards, as they came."""
    flush, receive, batches = MixNode.flush, MixNode.receive, list[list[int]]()
    came: list[int] = []

    def received(mix: MixNode, cell: bytes) -> None:
        receive(mix, cell)
        if not mix._layer:
            came.append(len(cell))

    def flushed(mix: MixNode) -> list[bytes]:
        if not mix._layer:
            batches.append(came.copy())
            came.clear()
        return flush(mix)

    monkeypatch.setattr(MixNode, "receive", received)
    monkeypatch.setattr(MixNode, "flush", flushed)
    return batches
