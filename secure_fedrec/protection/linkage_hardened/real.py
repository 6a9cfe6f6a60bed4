"""All parties of a round in one process: real keys, real onions, real mixes.

For small cohorts: it shows that the halves compute what the simulation computes, to the bit.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.protection.linkage_hardened.client import LinkageClient
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.server import LinkageServer
from secure_fedrec.protection.routing import (
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    SentCells,
    address_of,
    new_identity,
    receipt_digest,
)
from secure_fedrec.protection.routing.endpoint import MAX_PIECES
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.real import Identities, RealOutcome, size_of
from secure_fedrec.uploads import RowBlock

__all__ = ["MixNetwork", "RealRound"]


@dataclass(slots=True, kw_only=True)
class MixNetwork:
    """A cascade: one mix per layer, and the denoisers at its end.

    Args:
        directory: keys of the epoch.
        mixes: the mixes, in order.
        ends: the denoisers' ends.
        identities: their signing keys.
    """

    directory: Directory
    mixes: tuple[MixNode, ...]
    ends: tuple[Endpoint, ...]
    identities: tuple[Ed25519PrivateKey, ...]

    @classmethod
    def start(
        cls,
        config: RoutingConfig,
        *,
        recipients: int,
        epoch: int,
        max_pieces: int = MAX_PIECES,
        identities: Sequence[Ed25519PrivateKey] | None = None,
    ) -> "MixNetwork":
        """A network with fresh keys, whose ends take messages of at most ``max_pieces`` cells.

        Recipients sign with ``identities``, or with fresh keys.
        """
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
        if identities is None:
            identities = [new_identity() for _ in range(recipients)]
        return cls(directory=directory, mixes=mixes, ends=ends, identities=tuple(identities))

    def carry(self, cells: list[bytes]) -> list[bytes]:
        """Pass cells through all mixes, as one batch."""
        for mix in self.mixes:
            for cell in cells:
                mix.receive(cell)
            cells = mix.flush()
        return cells

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
        published = [receipt_digest(receipt) for receipt in receipts]
        for sender in senders:
            sender.require_received(receipts, signers=signers, published=published)


class RealRound:
    """One round.

    Args:
        context: the round.
        identities: everybody's signing keys.
        network: the mix network.
        cells: public number of cells of each client to each denoiser.
    """

    __slots__ = (
        "_cells",
        "_context",
        "_denoisers",
        "_identities",
        "_network",
        "_noted",
        "_sent",
        "_server",
    )

    def __init__(
        self, context: RoundContext, identities: Identities, network: MixNetwork, *, cells: int
    ) -> None:
        self._context = context
        self._identities = identities
        self._network = network
        self._cells = cells
        self._sent: list[bytes] = []
        self._noted: list[SentCells] = []
        self._server = LinkageServer(context, cells=cells)
        self._denoisers = [
            LinkageDenoiser(context, number, key, endpoint=network.ends[number], cells=cells)
            for number, key in enumerate(identities.denoisers)
        ]

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> IntArray:
        """Run the client half of some clients; sizes of their uploads, int64[B]."""
        if block.values is None:
            raise ValueError("an upload has values")
        sizes = []
        ends = zip(clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True)
        for client, start, stop in ends:
            mine = slice(int(start), int(stop))
            half = LinkageClient(
                self._context,
                client,
                self._identities.clients[client],
                directory=self._network.directory,
                cells=self._cells,
            )
            sent = half.send(block.rows[mine], block.values[mine], virtual[mine])
            self._server.receive(sent.upload)
            self._sent += sent.cells
            self._noted.append(sent.noted)
            sizes.append(len(sent.upload))
        return np.array(sizes, dtype=np.int64)

    def close(self) -> RealOutcome:
        """Mix, let senders look for their cells, agree on the rows, take the fakes off."""
        secrets.SystemRandom().shuffle(self._sent)
        for cell in self._network.carry(self._sent):
            self._denoisers[address_of(cell).node].receive(cell)
        self._network.require_received(self._noted, batch=self._context.round)
        sets = [denoiser.close() for denoiser in self._denoisers]
        sums = [denoiser.release(sets) for denoiser in self._denoisers]
        return RealOutcome(
            aggregate=self._server.finish(sums),
            sizes={Kind.ROW_SET: size_of(sets), Kind.FAKES: size_of(sums)},
        )
