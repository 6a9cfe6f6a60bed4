"""The layers of a configuration put together: one round's way from upload to aggregate."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from secure_fedrec.blocks import BlockKind
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.local import LocalUpload
from secure_fedrec.protection.base.folding import ClientRows, Folding
from secure_fedrec.protection.base.hosting import Hosting
from secure_fedrec.protection.base.layer_interfaces import (
    BagChannel,
    BagRound,
    Cloak,
    Collector,
    Noised,
    Released,
    RoundSession,
    Stated,
    Withstood,
)
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.traits import BARE, Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Traffic, Wire


def _require_members(key: str, part: object, protocol: type) -> None:
    """Check that a part, possibly a plug-in's, has all members of its protocol; None is accepted.

    Raises:
        ConfigError: a member is missing.
    """
    names = (name for each in reversed(protocol.__mro__) for name in _named(each))
    lacking = [name for name in names if part is not None and not hasattr(part, name)]
    if lacking:
        kind = protocol.__name__
        problem = f"does not have {', '.join(lacking)} of secure_fedrec.protection.{kind}"
        raise ConfigError(key, type(part).__name__, problem)


def _named(protocol: type) -> list[str]:
    if not getattr(protocol, "_is_protocol", False):  # its methods are those of ``object``
        return []
    return [name for name in vars(protocol) if not name.startswith("_")]


@dataclass(frozen=True, eq=False)
class Halves:
    """Halves of the rounds of one collector and its bags, for this collector only.

    Args:
        make: makes those of the sums.
        collector: forms the sums.
        bags: what is given beside them; None without bags.
        beside: puts the halves of bags beside those of the sums.
    """

    make: Callable[[Any], Hosting]
    collector: Collector
    bags: BagChannel | None
    beside: Callable[[Hosting, Any], Hosting]

    @cached_property
    def hosting(self) -> Hosting:
        """The halves."""
        return self.beside(self.make(self.collector), self.bags)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack(Folding):
    """The layers of a configuration, in the order data passes them.

    Args:
        collector: forms the sum.
        n_clients: clients of the federation.
        hosted: the halves of its rounds, for hosts that have one of them; None where its parties
            cannot be elsewhere.

    Raises:
        SumBudgetError: the ring is too small for the cohort, for one of the blocks. A client sends
            at most one row per item, rated or virtual, so n clients bound every sum at any rho.
        ConfigError: a part lacks what its protocol asks for, or the parts are for different rings
            or federations; or bags meet a cloak, which
            covers rows only, or clients who keep the public state from the server, which forms it
            from the bags.
    """

    collector: Collector
    n_clients: int
    hosted: Halves | None = None

    def __post_init__(self) -> None:
        _require_members("cloak", self.cloak, Cloak)
        _require_members("collector", self.collector, Collector)
        _require_members("bags", self.bags, BagChannel)
        if self.codec != self.collector.codec:
            raise ConfigError("ring", self.codec, "differs from the ring of the collector")
        if self.n_clients != self.collector.n_clients:
            raise ConfigError(
                "n_clients", self.n_clients, f"the collector has {self.collector.n_clients}"
            )
        self.codec.require_budget(self.n_clients)
        if self.layout is not None:
            self.layout.require_budget(self.n_clients)
            if self.cloak is not None and len(self.layout.of_kind(BlockKind.ITEMS)) != 1:
                raise ConfigError(
                    "protection",
                    self.cloak.describe()[0],
                    "covers items: one block must hold item rows",
                )
        if self.bags is not None:
            self._require_bags_fit(self.bags)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "StackSession":
        """Begin a round."""
        session = self.collector.open(round_=round_, participants=participants, wire=wire)
        bags = None
        if self.bags is not None:
            bags = self.bags.open(round_=round_, participants=participants, wire=wire)
        return StackSession(self, session, round_, wire, bags)

    def withstands(self, cohort: int) -> tuple[Withstood, ...]:
        """Coalitions that the claims cover in rounds of so many clients, part by part."""
        parts = (self.collector,) if self.bags is None else (self.collector, self.bags)
        return tuple(part.withstands(cohort) for part in parts)

    def traffic(self, rated: IntArray) -> tuple[Traffic, ...]:
        """Expected messages of a round with every client present."""
        virtual = np.zeros_like(rated)
        rows = rated
        if self.cloak is not None:
            rows, virtual = self.cloak.expected_rows(rated)
        beside = () if self.bags is None else self.bags.traffic()
        return (*self.collector.traffic(rows, virtual), *beside)

    @property
    def protects(self) -> bool:
        """Without a layer the server reads every upload, so recording it again is not needed."""
        return self.cloak is not None or self.collector.describe() is not None

    @property
    def traits(self) -> Traits | None:
        """Public facts about uploads and sums; None where a part does not state them."""
        known = BARE
        for part in (self.cloak, self.collector):
            if part is not None:
                if not isinstance(part, Stated):
                    return None
                known = part.traits.over(known)
        return known

    @property
    def denoisers(self) -> tuple[int, ...]:
        """Client number of each denoiser, as far as the parts tell."""
        known = self.traits
        return () if known is None else known.denoisers or ()

    def released(self, *, rounds: int, repeated: int = 0) -> tuple[Released, ...]:
        """What the noised parts release in that many rounds and restarted rounds."""
        parts: tuple[object, ...] = (self.collector, self.cloak, self.bags)
        found = (
            part.released(rounds=rounds, repeated=repeated)
            for part in parts
            if isinstance(part, Noised)
        )
        return tuple(each for each in found if each is not None)

    def capped(self, rated: IntArray) -> IntArray:
        """Clients whose virtual rows are limited by the number of items they have not rated."""
        return np.empty(0, dtype=np.int64) if self.cloak is None else self.cloak.capped(rated)

    def describe(self) -> dict[str, Any]:
        """Public knowledge: names of the layers in order, the settings of each, and traits."""
        found = [None if self.cloak is None else self.cloak.describe(), self.collector.describe()]
        layers = [layer for layer in found if layer is not None]
        known: dict[str, Any] = {"layers": [name for name, _ in layers], **dict(layers)}
        traits = self.traits
        known["traits"] = traits and {**asdict(traits), "denoisers": list(self.denoisers)}
        return known if self.bags is None else {**known, "bags": self.bags.describe()}

    def _require_bags_fit(self, bags: BagChannel) -> None:
        if bags.codec != self.codec:
            raise ConfigError("ring", self.codec, "differs from the ring of the bags")
        if bags.n_clients != self.n_clients:
            raise ConfigError("n_clients", self.n_clients, f"the bags have {bags.n_clients}")
        if self.cloak is not None:
            raise ConfigError(
                "protection",
                self.cloak.describe()[0],
                "covers rows; an upload with bags does not have rows",
            )
        if "server" in self.collector.model_hidden_from:
            raise ConfigError(
                "protection.bags",
                bags.names,
                "where clients keep the public state from the server, it cannot receive bags",
            )


@dataclass(frozen=True, eq=False)
class StackSession:
    """One round through all layers.

    Args:
        stack: the layers.
        session: the collector's part.
        round: its number.
        wire: wire of the run.
        bags: the bags' part; None without bags.

    Attributes:
        clipped: how many values of each submission were clipped (``FixedPoint.beyond``).
    """

    stack: Stack
    session: RoundSession
    round: int
    wire: Wire
    bags: BagRound | None = None
    clipped: list[int] = field(default_factory=list, init=False)

    @property
    def order(self) -> IntArray:
        """int64[P], the clients in the order in which they must be submitted."""
        return self.session.order

    def submit(self, local: LocalUpload) -> None:
        """Protect and send the upload of the next clients in ``order``.

        Raises:
            ConfigError, WireError, EncodingError: as ``Folding.fold``, or what a client gives to
                the bags is malformed.
            ProtocolError: the collector refuses a delivered message.
        """
        clients = local.clients
        folded = self.stack.fold(local, round_=self.round, exempt=self.session.exempt)
        self.clipped.append(folded.clipped)
        if self.stack.protects:
            note_own(self.wire, self.round, clients, folded)
        self.session.submit(clients, folded.block, folded.virtual)
        if self.bags is not None:
            self.bags.submit(clients, folded.bags)

    def close(self) -> Aggregate:
        """Complete the round and hand the aggregate to the server."""
        aggregate = replace(self.session.close(), layout=self.stack.layout)
        if self.bags is None:
            return aggregate
        return replace(aggregate, bags=self.bags.close())


def note_own(wire: Wire, round_: int, clients: IntArray, folded: ClientRows) -> None:
    """Record what each client put into a sum (``Wire.note_own``)."""
    wire.note_own(round_, clients, partial(_real, folded), partial(_covered, folded))


def _covered(folded: ClientRows) -> dict[str, BoolArray | IntArray]:
    """Input and result of a cloak: bool[B] exempt clients, int64[B] numbers of virtual rows."""
    if folded.exempt is None:
        return {}
    made_up = np.concatenate([[0], np.cumsum(folded.virtual)])
    return {"exempt": folded.exempt, "virtual": np.diff(made_up[folded.block.indptr])}


def _real(folded: ClientRows, words: bool) -> RowBlock:
    """The rows that are not virtual, with their words or without."""
    block = folded.block if words else replace(folded.block, values=None)
    return pick(block, np.ones(len(block), dtype=bool), ~folded.virtual)


def hosting_of(stack: Stack) -> Hosting:
    """The halves of a stack's rounds.

    Raises:
        ConfigError: a layer does not have halves, and runs in the embedded engine only.
    """
    hosted = stack.hosted
    if hosted is not None and hosted.collector is stack.collector and hosted.bags is stack.bags:
        return hosted.hosting
    described = stack.collector.describe()
    name = "plain" if described is None else described[0]
    raise ConfigError(
        "protection", name, "runs in the embedded engine only: its parties cannot be elsewhere"
    )
