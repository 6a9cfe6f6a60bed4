"""Virtual ratings: cover rated items with sampled unrated ones (FedRec's hybrid filling).

Each client adds rows for ``min(floor(rho * |I_u|), m - |I_u|)`` items it has not rated, drawn
without replacement, and gives each a virtual rating: its mean rating in the first rounds,
afterwards the prediction of a locally trained copy of its user vector (FedRec++ eq. 1). The rows
are computed by the same code as real ones and sorted in between them.

The uniform draw (the published one) takes the first k distinct values of an independent uniform
sequence of ranks among the unrated items, which is an exactly uniform k-subset; where k is more
than half of them, it draws those to leave out instead. All clients of a batch draw at once.

Uniformly drawn items are mostly unpopular and rated ones mostly popular, so popularity alone
distinguishes most of them. The draw by popularity takes one item after the other in proportion to
the number of clients that rated it, plus one; these numbers are assumed to be public.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np

from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.item_sets import list_unrated, merge_sets, race_unrated, take_first_distinct
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.errors import ConfigError
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.base.layer_interfaces import Cloaked
from secure_fedrec.settings import Count, Natural, NonNegative, OneOf, Settings, Unit
from secure_fedrec.streams import Stream, Streams, uniform_ranks, uniform_reals
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import RowBlock, Upload

FILLINGS = ("hybrid", "average", "predicted")


DRAWS = ("uniform", "popularity")


_NUMBERS_AT_ONCE = 2**21
"""Random numbers held at a time by a draw over the whole catalogue."""


COVERED = Traits(virtual_rows="summed", reports=None, uploads=None, noise=None, denoising=None)
"""Traits of covered uploads, without the number of virtual rows."""

Fill = Callable[[IntArray, IndexArray], FloatArray]
"""Virtual ratings for the items of each client."""


class VirtualRatingsConfig(Settings, section="protection"):
    """Settings of the cloak.

    Args:
        rho: virtual items per rated item.
        filling: "hybrid" (average first, predictions later), "average" or "predicted".
        predict_after: T_predict; "hybrid" uses averages in rounds 1 to T_predict + 1 (the paper
            counts rounds from 0 and its published results include round T_predict).
        local_steps: T_local, training steps of the copy that predicts.
        sticky: draw each client's virtual items once instead of every round.
        draw: "uniform" over the unrated items, or by their public "popularity".

    Raises:
        ConfigError: a field is out of range.
    """

    rho: NonNegative = 1.0
    filling: Annotated[str, OneOf(FILLINGS)] = "hybrid"
    predict_after: Annotated[Natural, Unit("rounds")] = 10
    local_steps: Annotated[Count, Unit("steps")] = 10
    sticky: bool = False
    draw: Annotated[str, OneOf(DRAWS)] = "uniform"


@dataclass(eq=False)
class VirtualRatings:
    """The cloak of FedRec.

    Args:
        config: settings.
        n_items: rows of the shared table.
        streams: the run's random streams; uses the one named "fakes".
        popularity: int64[m], public number of clients that rated each item; needed to draw by
            popularity.

    Raises:
        ConfigError: the draw is by popularity, and that is not known.
    """

    config: VirtualRatingsConfig
    _: KW_ONLY
    n_items: int
    streams: Streams
    popularity: IntArray | None = None

    def __post_init__(self) -> None:
        if self.config.draw == "popularity" and self.popularity is None:
            raise ConfigError(
                "protection.draw", self.config.draw, "needs the items' popularity", ("uniform",)
            )

    @cached_property
    def _fakes(self) -> Stream:
        return self.streams.private("fakes")

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Add virtual rows to the uploads of the clients that are not exempt."""
        wanted, _ = self._wanted(local.rated.lengths)
        wanted[exempt] = 0
        virtual = self._draw(local, wanted, 0 if self.config.sticky else round_)

        def fill(indptr: IntArray, items: IndexArray) -> FloatArray:
            return local.impute(
                indptr, items, method=self._method(round_), local_steps=self.config.local_steps
            )

        return merge_virtual(local, local.rated, virtual, fill)

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """(1 + rho) |I_u| rows, rho |I_u| of them virtual, capped by the unrated items."""
        wanted, _ = self._wanted(rated)
        return rated + wanted, wanted

    def capped(self, rated: IntArray) -> IntArray:
        """Clients with fewer than rho |I_u| unrated items."""
        return np.flatnonzero(self._wanted(rated)[1])

    @property
    def traits(self) -> Traits:
        """Virtual rows, and how many of them."""
        return replace(COVERED, ratio=self.config.rho)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "virtual-ratings", asdict(self.config)

    def _wanted(self, rated: IntArray) -> tuple[IntArray, BoolArray]:
        asked = np.floor(self.config.rho * rated)
        room = self.n_items - rated
        return np.minimum(asked, room).astype(np.int64), asked > room

    def _draw(self, local: LocalModel, wanted: IntArray, round_: int) -> RowBlock:
        draw, stream = partial(draw_unrated, n_items=self.n_items), self._fakes
        if self.popularity is not None and self.config.draw == "popularity":
            draw = partial(draw_by_popularity, popularity=self.popularity)
        return draw(local.rated, local.clients, wanted, stream=stream, round_=round_)

    def _method(self, round_: int) -> str:
        if self.config.filling != "hybrid":
            return self.config.filling
        return "average" if round_ - 1 <= self.config.predict_after else "predicted"


def draw_unrated(
    rated: RowBlock,
    clients: IntArray,
    wanted: IntArray,
    *,
    n_items: int,
    stream: Stream,
    round_: int,
) -> RowBlock:
    """Draw virtual items for a batch of clients.

    Args:
        rated: the rated items, one segment per client, ascending.
        clients: int64[B], lanes of the stream.
        wanted: int64[B], items to draw, at most the client's unrated items.
        n_items: rows of the shared table.
        stream: source of randomness.
        round_: round of the draw.

    Returns:
        The drawn items, one segment per client, ascending, without values.
    """
    indptr = bounds_of(wanted)
    items = np.empty(int(indptr[-1]), dtype=np.int32)
    if len(items):
        room = n_items - rated.lengths
        leave_out = wanted > room // 2  # draw the smaller side: few repeats to throw away
        picks = np.where(leave_out, room - wanted, wanted)
        bounds = bounds_of(picks)
        ranks = _draw_ranks(room, picks, bounds, clients, stream, round_)
        list_unrated(ranks, bounds, room, leave_out, rated.indptr, rated.rows, items)
    return RowBlock(indptr=indptr, rows=items, values=None)


def _draw_ranks(
    room: IntArray,
    picks: IntArray,
    bounds: IntArray,
    clients: IntArray,
    stream: Stream,
    round_: int,
) -> IndexArray:
    """The first ``picks[b]`` distinct ranks of each client's random sequence below ``room[b]``."""
    chosen = np.empty(int(bounds[-1]), dtype=np.int32)
    found, starts = np.zeros(len(picks), dtype=np.int64), np.zeros(len(picks), dtype=np.int64)
    stamps, stamp = np.zeros(int(room.max(initial=0)), dtype=np.int32), 1
    while True:
        active = np.flatnonzero(found < picks)
        if not len(active):
            return chosen
        # Coupon collector: distinct values expected after c draws from M are M (1 - exp(-c / M)).
        # The length of a client's sequence depends on the client alone, so batches do not matter.
        missing, free = (picks - found)[active], (room - found)[active]
        expected = room[active] * np.log(free / (free - missing + 0.5))
        counts = 2 * np.ceil(0.52 * expected + 6).astype(np.int64)
        words = stream.words(round_, clients[active], counts, starts[active])
        drawn = uniform_ranks(words, np.repeat(room[active], counts))
        take_first_distinct(drawn, bounds_of(counts), active, bounds, found, chosen, stamps, stamp)
        stamp += len(active)
        starts[active] += counts


def draw_by_popularity(
    rated: RowBlock,
    clients: IntArray,
    wanted: IntArray,
    *,
    popularity: IntArray,
    stream: Stream,
    round_: int,
) -> RowBlock:
    """Draw virtual items for a batch of clients, one after the other in proportion to popularity.

    An item that k clients rated has weight k + 1, so that every item can be drawn. The client's own
    ratings do not affect its draw, since they only add to the weights of items that it cannot draw.

    Args:
        rated: the rated items, one segment per client, ascending.
        clients: int64[B], lanes of the stream.
        wanted: int64[B], items to draw, at most the client's unrated items.
        popularity: int64[m], clients that rated each item.
        stream: source of randomness.
        round_: round of the draw.

    Returns:
        The drawn items, one segment per client, ascending, without values.
    """
    indptr = bounds_of(wanted)
    items = np.empty(int(indptr[-1]), dtype=np.int32)
    n_items, weights = len(popularity), popularity.astype(np.float64) + 1
    step = max(1, _NUMBERS_AT_ONCE // n_items)
    for start in range(0, len(clients), step):
        lanes = clients[start : start + step]
        counts = np.full(len(lanes), n_items)
        words = stream.words(round_, lanes, counts, np.zeros_like(counts))
        bounds = slice(start, start + len(lanes) + 1)
        times = uniform_reals(words).reshape(len(lanes), n_items)
        race_unrated(times, weights, rated.indptr[bounds], rated.rows, indptr[bounds], items)
    return RowBlock(indptr=indptr, rows=items, values=None)


def merge_virtual(local: LocalModel, kept: RowBlock, virtual: RowBlock, fill: Fill) -> Cloaked:
    """Rows of real and virtual items, in one ascending sequence per client.

    Args:
        local: computes the rows.
        kept: rated items that are sent, without values.
        virtual: virtual items, without values; disjoint from ``kept``.
        fill: virtual ratings for (indptr, items), float64[K].
    """
    size = len(kept.rows) + len(virtual.rows)
    items, is_virtual = np.empty(size, dtype=np.int32), np.empty(size, dtype=bool)
    merge_sets(kept.indptr, kept.rows, virtual.indptr, virtual.rows, items, is_virtual)
    indptr = kept.indptr + virtual.indptr
    ratings = fill(virtual.indptr, virtual.rows) if len(virtual.rows) else np.empty(0)
    values = local.rows(indptr, items, is_virtual, ratings)
    block = RowBlock(indptr=indptr, rows=items, values=values)
    return Cloaked(upload=Upload(clients=local.clients, blocks={TABLE: block}), virtual=is_virtual)
