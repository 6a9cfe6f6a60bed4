"""The bag channel of a stack: noise, if there is that layer, then the way to the server.

A vector is encoded once, at its client, and afterwards only permuted: the bag that the server holds
is the multiset of the encoded vectors, bit for bit, named or anonymous.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from secure_fedrec.blocks import require_name
from secure_fedrec.core.arrays import FloatArray, IntArray, RingArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.bag_vectors import require_bags
from secure_fedrec.protection.bags.config import BAG_NOISE_KEYS, LocalDPConfig
from secure_fedrec.protection.bags.embedded_mixes import MixedLine
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.bags.named_senders import NamedLine
from secure_fedrec.protection.bags.noise import NoisyVectors
from secure_fedrec.protection.bags.received_vectors import Arrivals
from secure_fedrec.protection.base.layer_interfaces import BagShape, Released, Withstood
from secure_fedrec.protection.dp import explained
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.traits import AS_BEFORE, BARE, Traits
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Step, Traffic, Wire

NOISED = Traits(virtual_rows=None, reports=None, uploads=None, noise="added", denoising=None)
"""Traits of noised vectors."""
ANONYMOUS = replace(AS_BEFORE, senders="anonymous")
"""Traits of vectors that come through mixes."""
_MOST_BAGS = 256
_DELTA = 1e-5
"""Default delta of a claim."""


Line: TypeAlias = NamedLine | MixedLine
"""The transport of a round's vectors to the server."""

Carried = Callable[[int, Mapping[int, Sequence[bytes]], Mapping[str, RingArray], Wire], None]
"""Runs a round's halves; the arguments are its number, messages by client, the expected bags and
the wire."""


class LayeredBags:
    """Carries what clients give to the bags of an algorithm.

    Args:
        bags: sizes by name; every upload has an entry for each, possibly empty.
        n_clients: clients of the federation.
        codec: the ring of the stack.
        streams: the run's random streams.
        noise: settings of the layer "local-dp"; None adds no noise.
        routing: settings of the layer "routing"; None sends under names.

    Attributes:
        carried: carries rounds out by halves, in addition to the simulation; None without halves.

    Raises:
        ConfigError: there is no bag or more than a message can number, or a setting does not fit.
        SumBudgetError: a noisy value could leave the ring.
    """

    def __init__(
        self,
        *,
        bags: Mapping[str, BagShape],
        n_clients: int,
        codec: FixedPoint,
        streams: Streams,
        noise: LocalDPConfig | None = None,
        routing: RoutingLayerConfig | None = None,
    ) -> None:
        for name in bags:
            require_name(name)
        if not 1 <= len(bags) <= _MOST_BAGS:
            raise ConfigError("bags", len(bags), f"must be between 1 and {_MOST_BAGS}")
        self.bags: Mapping[str, BagShape] = MappingProxyType(dict(bags))
        self.n_clients = n_clients
        self.codec = codec
        self.noise = None if noise is None else NoisyVectors(noise, bags=self.bags, codec=codec)
        self.mixes: Mixes | None = None
        if routing is not None:
            self.mixes = Mixes(routing, bags=self.bags, codec=codec, streams=streams)
        self.execution = "simulated" if routing is None else routing.execution
        self.carried: Carried | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the bags, in the order of their numbers in messages."""
        return tuple(self.bags)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "BagSession":
        """Begin a round.

        Raises:
            ProtocolError: one client alone would send through the mixes.
            ConfigError: halves are to carry it out, but the layer does not have any.
        """
        if self.execution == "real" and self.carried is None:
            problem = "is carried out by halves on hosts, which build_stack gives to the bags"
            raise ConfigError("bag_protection.execution", "real", problem)
        line: Line = NamedLine(round=round_, participants=participants, codec=self.codec)
        if self.mixes is not None:
            line = MixedLine(self.mixes, round_, participants)
        return BagSession(self, line, round_, len(participants), wire)

    def arrivals(self, round_: int, name: str, *, due: int, clients: int) -> Arrivals:
        """Messages that arrive for a bag in a round, and how many clients' vectors are in it."""
        shape, codec = self.bags[name], self.codec
        most = clients * shape.most
        return Arrivals(round_=round_, name=name, shape=shape, due=due, most=most, codec=codec)

    def protect(self, name: str, block: SetBlock) -> SetBlock:
        """Vectors for a bag as they leave their client: encoded, after noise if configured.

        Raises:
            EncodingError: a value is not finite, or without noise exceeds the ring's clip.
        """
        values = block.values
        if values is None:
            raise ValueError("an upload has values")
        words = (
            self.codec.encode(values) if self.noise is None else self.noise.protect(name, values)
        )
        return SetBlock(indptr=block.indptr, values=words)

    def withstands(self, cohort: int) -> Withstood:
        """Behind mixes, all clients of a round but two: a single one would be exposed."""
        if self.mixes is None:
            return Withstood()
        return Withstood(
            with_server=cohort - 2,
            alone=cohort - 2,
            reason="mixes hide among the vectors of others, and the coalition knows its own",
        )

    def traffic(self) -> tuple[Traffic, ...]:
        """Most messages of a round with every client present."""
        clients, each = self.n_clients, self.bags.values()
        return tuple(
            Traffic(
                step=Step.BAG,
                messages=clients * (1 if self.mixes is None else shape.most),
                rows=clients * shape.most,
                width=shape.width,
            )
            for shape in each
        )

    @property
    def traits(self) -> Traits:
        """Whether vectors are noised, and whether they have owners."""
        noised = BARE if self.noise is None else NOISED.over(BARE)
        return noised if self.mixes is None else ANONYMOUS.over(noised)

    def released(self, *, rounds: int, repeated: int = 0) -> Released | None:
        """All vectors of a client."""
        if self.noise is None:
            return None
        events = explained(self.noise.client_events(rounds=rounds + repeated), repeated)
        return Released(part="bags", events=events, delta=_DELTA, keys=BAG_NOISE_KEYS)

    def describe(self) -> dict[str, Any]:
        """Sizes, names of the layers in order, and all their settings are public."""
        settings: dict[str, Any] = {}
        if self.noise is not None:
            settings["local-dp"] = asdict(self.noise.config)
        if self.mixes is not None:
            settings["routing"] = asdict(self.mixes.config)
        sizes = {name: asdict(shape) for name, shape in self.bags.items()}
        traits = asdict(self.traits)
        return {"layers": list(settings), "sizes": sizes, "traits": traits, **settings}


class BagSession:
    """One round of all bags; make it with ``LayeredBags.open``."""

    def __init__(
        self, channel: LayeredBags, line: Line, round_: int, clients: int, wire: Wire
    ) -> None:
        self._channel = channel
        self._line = line
        self._round = round_
        self._wire = wire
        self._given: dict[int, Sequence[bytes]] = {}
        self._arrivals = {
            name: channel.arrivals(round_, name, due=line.due(name), clients=clients)
            for name in channel.bags
        }

    def submit(self, clients: IntArray, bags: Mapping[str, SetBlock]) -> None:
        """Send what a batch of clients gives to the bags.

        Args:
            clients: int64[B].
            bags: float64 vectors by bag, one segment per client.

        Raises:
            WireError: a bag is missing or unknown, or its vectors do not fit its sizes.
            EncodingError: a value is not finite, or without noise exceeds the ring's clip.
            ProtocolError: the server refuses a delivered message.
        """
        require_bags(bags, self._channel.bags, len(clients))
        words = {name: self._channel.protect(name, bags[name]) for name in self._channel.bags}
        if self._channel.carried is not None and self._channel.mixes is not None:
            messages = self._channel.mixes.messages(words, self._round)
            self._given |= zip(clients.tolist(), messages, strict=True)
        for bag, sent, origins in self._line.hand_in(clients, words):
            self._arrivals[bag].accept(sent, self._wire.send(sent, origins=origins))

    def close(self) -> dict[str, FloatArray]:
        """The bags as the server holds them: float64[N, d] each, in canonical order.

        Raises:
            ProtocolError: a message is missing or came twice.
            LosslessnessError: halves that carried the round out brought other vectors.
        """
        found = {name: arrivals.close() for name, arrivals in self._arrivals.items()}
        if self._channel.carried is not None:
            self._channel.carried(self._round, self._given, found, self._wire)
        self._line.count_receipts(self._wire.meter)
        codec = self._channel.codec
        return {name: codec.decode(words, spent=True) for name, words in found.items()}
