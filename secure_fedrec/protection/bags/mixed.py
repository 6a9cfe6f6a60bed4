"""Layer "routing" over bags: one vector per cell, anonymous, through the mix cascade.

Every client hands in the same public number of cells, ``most`` for each bag; those that no vector
fills are dummies. So no mix learns how many vectors a client gives, and the server, at the end of
all paths, learns which vectors there are and how many in all: neither whose one is, nor which ones
are of one client.

``"simulated"`` sends the cells as anonymous messages of one size, dummies as empty ones.
``"real"`` also encodes every vector, wraps it, passes all cells of the round through mixes with
keys of their own as one batch, and requires that the same bags come out, bit for bit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.local_noise import LOCAL_DP
from secure_fedrec.protection.bags.named import Sending
from secure_fedrec.protection.bags.shapes import canonical_order
from secure_fedrec.protection.base import BagShape
from secure_fedrec.protection.layer import Claim, Stand
from secure_fedrec.protection.line_receipts import count_receipts
from secure_fedrec.protection.routed_denoisers import ROUTING, RoutingLayerConfig
from secure_fedrec.protection.routing import LEAST_SENDERS, RoutingConfig, SentCells, send
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.streams import Stream, Streams
from secure_fedrec.traits import AS_BEFORE
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import (
    Messages,
    Meter,
    Parties,
    Step,
    Wire,
    decode_set,
    encode_set,
    set_sizes,
)

_SERVER = 0
_MIXED = Claim(
    system="drafts over a mix cascade",
    hides="whose a vector is, which vectors are of one client, and how many a client "
    "gives, from the server and from whoever watches the lines",
    assumes="one honest mix per path, with batches that the adversary has not filled itself; "
    "clients that do not all but one work together, and look for their cells in the server's "
    "receipts, since a mix can replace them",
    lossless=True,
    found="values stay: a vector close to one of an earlier round, or one that only a "
    "certain client could give, names its owner; cells have no authentic sender",
)
_NOISED = LOCAL_DP.claim or _MIXED

BAG_ROUTING = replace(
    ROUTING,
    build=None,
    traits=replace(AS_BEFORE, senders="anonymous"),
    requires=(),
    stands=(Stand(corrupt=("server",), hides="owners"),),
    claim=_MIXED,
    published={
        ("local-dp", "routing"): Claim(
            system="noisy drafts over a mix cascade",
            hides=f"{_NOISED.hides}; {_MIXED.hides}; no smaller epsilon is claimed for the "
            "shuffling",
            assumes=f"for a vector: {_NOISED.assumes}; for its owner: {_MIXED.assumes}",
            lossless=False,
            found="noise covers the closeness of vectors over rounds up to its price",
        )
    },
)
"""The mixes of ``routed_denoisers``, before a bag."""


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

    def __init__(
        self,
        config: RoutingLayerConfig,
        *,
        bags: Mapping[str, BagShape],
        codec: FixedPoint,
        streams: Streams,
    ) -> None:
        self.config = config
        self.bags = bags
        self.codec = codec
        self.cells = sum(shape.most for shape in bags.values())
        self.arrival: Mapping[str, Stream] = {
            name: streams.stream(f"bag-arrival|{name}") for name in bags
        }
        one = SetBlock(indptr=np.array([0, 1]), values=None)
        widest = max(shape.width for shape in bags.values())
        needed = int(set_sizes(one, width=widest, codec=codec)[0])
        lacking = needed - config.routing.capacity
        if lacking > 0:
            raise ConfigError(
                "bag_protection.cell_bytes",
                config.cell_bytes,
                f"must be at least {config.cell_bytes + lacking} to carry a vector",
            )

    @property
    def routing(self) -> RoutingConfig:
        """Sizes of the mix network; no batch is one client's alone."""
        return replace(self.config.routing, min_batch=LEAST_SENDERS * self.cells)

    def messages(self, blocks: Mapping[str, SetBlock], round_: int) -> list[list[bytes]]:
        """What each of some clients sends to all bags: a message per vector, of ring words."""
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

    def open(self, *, round_: int, participants: IntArray, wire: Wire | None = None) -> "MixedLine":
        """Begin a round.

        Raises:
            ProtocolError: one client alone, whom no mix could hide.
        """
        if 0 < len(participants) < LEAST_SENDERS:
            raise ProtocolError(
                f"round {round_}: {len(participants)} client sends vectors through the mixes, at "
                f"least {LEAST_SENDERS} must"
            )
        return MixedLine(self, round_, participants, wire)


class MixedLine:
    """One round of anonymous cells; make it with ``Mixes.open``."""

    def __init__(
        self, mixes: Mixes, round_: int, participants: IntArray, wire: Wire | None
    ) -> None:
        self._mixes = mixes
        self._round = round_
        self._participants = participants
        self._cells: list[bytes] = []
        self._sent: list[SentCells] = []
        self._network: MixNetwork | None = None
        if mixes.config.execution == "real":
            self._network = MixNetwork.start(
                mixes.routing, recipients=1, epoch=round_, max_pieces=1, wire=wire
            )

    def due(self, bag: str) -> int:
        """So many cells of every participant."""
        return len(self._participants) * self._mixes.bags[bag].most

    def hand_in(self, clients: IntArray, blocks: Mapping[str, SetBlock]) -> Iterator[Sending]:
        """One anonymous message per cell, with one vector or none."""
        if self._network is not None:
            self._wrap(self._network, blocks)
        for name, block in blocks.items():
            most = self._mixes.bags[name].most
            places = np.tile(np.arange(most), len(clients))
            origins = np.repeat(clients, most)
            filled = places < np.repeat(block.lengths, most)
            tags = self._mixes.arrival[name].words_at(self._round, origins, places, width=1)
            messages = Messages(
                round=self._round,
                step=Step.BAG,
                senders=Parties.anonymous("client", len(origins)),
                receivers=Parties.server(len(origins)),
                payload=SetBlock(
                    indptr=np.concatenate([[0], np.cumsum(filled)]), values=block.values
                ),
                sizes=np.full(len(origins), self._mixes.config.cell_bytes),
                tags=tags[:, 0],
                bag=name,
            )
            yield Sending(bag=name, messages=messages, origins=origins)

    def count_receipts(self, meter: Meter) -> None:
        """The server's list, to every participant."""
        cells = np.array([len(self._participants) * self._mixes.cells])
        count_receipts(meter, cells, signers=None, readers=self._participants)

    def require_delivered(self, bags: Mapping[str, RingArray]) -> None:
        """Pass the round's cells through the mixes; require that the same bags come out.

        Raises:
            LosslessnessError: they do not.
            ProtocolError: a cell fails authentication, or comes twice, or its sender does not find
                it in the server's receipts.
        """
        if self._network is None or not len(self._participants):
            return
        found = self._open(self._network)
        self._network.require_received(self._sent, batch=self._round)
        dummies = len(self._cells) - sum(len(words) for words in bags.values())
        same = all(np.array_equal(found[name], words) for name, words in bags.items())
        if not same or self._network.ends[_SERVER].dummies != dummies:
            raise LosslessnessError(f"round {self._round}: the mixes changed or lost a vector")

    def _wrap(self, network: MixNetwork, blocks: Mapping[str, SetBlock]) -> None:
        """Make the cells of some clients; they wait for those of the other clients."""
        for messages in self._mixes.messages(blocks, self._round):
            self._sent.append(SentCells(network.directory, batch=self._round))
            self._cells += send(
                messages,
                recipient=_SERVER,
                cells=self._mixes.cells,
                directory=network.directory,
                sent=self._sent[-1],
            )

    def _open(self, network: MixNetwork) -> dict[str, RingArray]:
        """What the server finds at the end of the paths, in canonical order."""
        end = network.ends[_SERVER]
        arrived = (end.receive(cell) for cell in network.carry(self._cells))
        return self._mixes.read((each for each in arrived if each is not None), self._round)
