"""A small federation, made from plain values and printed by them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MethodType
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.lossless.comparison import Scope
from secure_fedrec.properties.strategies.code import Repeatable
from secure_fedrec.properties.strike import Strike
from secure_fedrec.protection import (
    Collector,
    Denoisers,
    DenoisersConfig,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.base.table import TableSizes
from secure_fedrec.protection.denoisers.config import Binding
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Alter, Delay, Drop, Fault, Repeat, Step

WHOLE_STARS = RatingScale(1.0, 5.0, 1.0)

EVERYBODY = CohortConfig()
ONE_DENOISER = DenoisersConfig(count=1)

MakesCollector = Callable[..., Collector]
"""Makes a collector of ``n_clients``, ``n_items``, ``width`` and ``codec``."""


class Ratings(Repeatable, RatingTable):
    """A rating table that prints as the ``ratings_of`` that make it."""

    __slots__ = ()

    @classmethod
    def of(cls, table: RatingTable) -> "Ratings":
        """The same table."""
        return cls(**{each.name: getattr(table, each.name) for each in fields(table)})

    def call(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """See ``Repeatable``."""
        found: dict[int, dict[int, float]] = {client: {} for client in range(self.n_clients)}
        columns = (self.clients.tolist(), self.items.tolist(), self.ratings.tolist())
        for client, item, rating in zip(*columns, strict=True):
            found[client][item] = rating
        return ratings_of, {"ratings": found, "items": self.n_items, "scale": self.scale}


def ratings_of(
    ratings: Mapping[int, Mapping[int, float]], *, items: int, scale: RatingScale = WHOLE_STARS
) -> Ratings:
    """A rating table.

    Args:
        ratings: ratings of every client, 0 to n - 1, stars by item.
        items: how many there are.
        scale: scale of the stars.

    Raises:
        DataError: a number lies outside, or a rating is off its scale.
    """
    rows = [(who, *each) for who in sorted(ratings) for each in sorted(ratings[who].items())]
    clients, rated, stars = zip(*rows, strict=True) if rows else ((), (), ())
    return Ratings(
        name="drawn",
        n_clients=len(ratings),
        n_items=items,
        clients=np.array(clients, dtype=np.int32),
        items=np.array(rated, dtype=np.int32),
        ratings=np.array(stars, dtype=np.float64),
        scale=scale,
        client_labels=np.arange(len(ratings)),
        item_labels=np.arange(items),
    )


def stack_of(
    *,
    ratings: RatingTable,
    width: int,
    streams: Streams,
    codec: FixedPoint,
    cloak: VirtualRatingsConfig | RandomizedResponseConfig | None = None,
    collector: DenoisersConfig | MakesCollector = ONE_DENOISER,
) -> Stack:
    """A stack of a cloak, a ring and a collector.

    Args:
        ratings: the ratings; a cloak may draw by how many clients rated an item.
        width: values per row.
        streams: the run's random streams.
        codec: the ring.
        cloak: its settings; None without a cloak.
        collector: settings of denoisers, or what makes another collector from its sizes.
    """
    clients, items = ratings.n_clients, ratings.n_items
    sizes: TableSizes
    sizes = {"n_clients": clients, "n_items": items, "width": width, "codec": codec}
    covers: VirtualRatings | RandomizedResponse | None = None
    if isinstance(cloak, RandomizedResponseConfig):
        covers = RandomizedResponse(cloak, n_items=items, streams=streams)
    elif cloak is not None:
        often = ratings.item_popularity()
        covers = VirtualRatings(cloak, n_items=items, streams=streams, popularity=often)
    if isinstance(collector, DenoisersConfig):
        forms: Collector = Denoisers(collector, streams=streams, **sizes)
    else:
        forms = collector(**sizes)
    return Stack(codec=codec, cloak=covers, collector=forms, n_clients=clients)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Federation(Repeatable):
    """All arguments of ``assert_lossless`` but the algorithm; prints as ``federation_of``.

    Args:
        made: the collector, if it is not of this package, what made it, and its width.
    """

    ratings: RatingTable
    streams: Streams
    stack: Stack
    rounds: int
    cohort: CohortConfig
    scope: Scope = field(default_factory=Scope)
    made: tuple[Collector, MakesCollector, int] | None = None

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """Keyword arguments for ``assert_lossless`` and ``compare_runs``."""
        names = [part.name for part in fields(self) if part.name != "made"]
        return {name: getattr(self, name) for name in names} | changes

    def wire_arguments(self, **changes: Any) -> dict[str, Any]:
        """Keyword arguments for ``wire_trace``."""
        arguments = self.arguments(**changes)
        del arguments["scope"]
        return arguments

    def taking_part(self, round_: int) -> IntArray:
        """Clients that must take part in a round: int64[P], ascending."""
        invited = self.cohort.draw(round_, self.ratings.n_clients, self.streams)
        return self.scope.due(invited)

    def call(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """See ``Repeatable``; values that are not plain are unchanged."""
        stack, collector, cloak = self.stack, self.stack.collector, self.stack.cloak
        by: Any = collector
        width = getattr(collector, "width", None)
        if self.made is not None and self.made[0] is collector:
            _, by, width = self.made
        elif type(collector) is Denoisers:
            by = collector.config
        arguments = {
            "ratings": Ratings.of(self.ratings),
            "seed": self.streams.seed,
            "codec": stack.codec,
            "width": width,
            "cloak": getattr(cloak, "config", cloak),
            "collector": by,
            "rounds": self.rounds,
            "cohort": self.cohort,
        }
        other_scope = {} if self.scope == scope_of(stack) else {"scope": self.scope}
        return federation_of, arguments | other_scope


def scope_of(stack: Stack) -> Scope:
    """What the protocol of a stack leaves out: of denoisers and reports; others, nothing."""
    taking_part = None
    if isinstance(stack.collector, Denoisers):
        taking_part = whole_groups(stack.collector.binding)
    return Scope(taking_part=taking_part, drops_reports=isinstance(stack.cloak, RandomizedResponse))


def federation_of(
    *,
    ratings: RatingTable,
    seed: int,
    codec: FixedPoint,
    width: int,
    rounds: int,
    cloak: VirtualRatingsConfig | RandomizedResponseConfig | None = None,
    collector: DenoisersConfig | MakesCollector = ONE_DENOISER,
    cohort: CohortConfig = EVERYBODY,
) -> Federation:
    """A whole federation.

    Args:
        ratings: who rated what.
        seed: seed of the run's random streams.
        codec: see ``stack_of``, as of all layers.
        width: values per row.
        rounds: how many there are.
        cloak: its settings.
        collector: its settings, or what makes it.
        cohort: who is invited to each round.
    """
    streams = Streams.from_seed(seed)
    stack = stack_of(
        ratings=ratings,
        width=width,
        streams=streams,
        codec=codec,
        cloak=cloak,
        collector=collector,
    )
    made = None
    if not isinstance(collector, DenoisersConfig):
        made = (stack.collector, collector, width)
    return Federation(
        ratings=ratings,
        streams=streams,
        stack=stack,
        rounds=rounds,
        cohort=cohort,
        scope=scope_of(stack),
        made=made,
    )


def fault_of(kind: str, step: str, *, round_: int, place: int) -> Fault:
    """A fault that strikes one message, whose ``chooser`` is a fresh ``Strike``.

    Args:
        kind: "drop", "repeat", "delay" or "alter".
        step: name of the ``Step`` of the message.
        round_: its round.
        place: which message of a batch, modulo their number.
    """
    makers: dict[str, Callable[..., Fault]] = {
        "drop": Drop,
        "repeat": Repeat,
        "delay": Delay,
        "alter": Alter,
    }
    strike = Strike(round=round_, place=place, with_rows=kind == "alter")
    return makers[kind](step=Step[step], chooser=strike)


def whole_groups(binding: Binding) -> Callable[[IntArray], IntArray]:
    """Clients of an invited cohort that take part under denoisers, for a ``Scope``.

    A client needs its denoiser, and a denoiser one client at least.
    """
    return MethodType(_working, binding)  # equal to any other of the same binding


def _working(binding: Binding, invited: IntArray) -> IntArray:
    here = set(invited.tolist())
    denoiser_of = {client: int(binding.denoisers[binding.group[client]]) for client in here}
    served = {c for c, denoiser in denoiser_of.items() if c != denoiser and denoiser in here}
    working = served | {denoiser_of[client] for client in served}
    return np.array(sorted(working), dtype=np.int64)
