"""Virtual ratings: cover a client's rated set with sampled unrated items (FedRec's hybrid filling).

Each client adds rows for ``min(floor(rho * |I_u|), m - |I_u|)`` items it has not rated, drawn
uniformly without replacement, and gives each a virtual rating: its mean rating in the first rounds,
afterwards the prediction of a locally trained copy of its user vector (FedRec++ eq. 1). The rows
are computed by the same code as real ones and sorted in between them.

The draw takes the first k distinct values of an independent uniform sequence of ranks among the
unrated items, which is an exactly uniform k-subset; where k is more than half of them, it draws
those to leave out instead. All clients of a batch draw at once.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.arrays import BoolArray, FloatArray, IndexArray, IntArray, StatusArray
from secure_fedrec.compiled import mark_members, take_first_distinct
from secure_fedrec.errors import ConfigError
from secure_fedrec.kernels import place_rows
from secure_fedrec.protection.base import Cloaked, LocalModel
from secure_fedrec.streams import Stream, Streams, uniform_ranks
from secure_fedrec.uploads import RowBlock, Upload

__all__ = [
    "FILLINGS",
    "RATED",
    "VIRTUAL",
    "Fill",
    "VirtualRatings",
    "VirtualRatingsConfig",
    "draw_unrated",
    "merge_virtual",
]

FILLINGS = ("hybrid", "average", "predicted")

Fill = Callable[[IntArray, IndexArray], FloatArray]
"""Virtual ratings for the items of each client."""

UNRATED, RATED, VIRTUAL = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualRatingsConfig:
    """Settings of the cloak.

    Args:
        rho: virtual items per rated item.
        filling: "hybrid" (average first, predictions later), "average" or "predicted".
        predict_after: T_predict; "hybrid" uses averages in rounds 1 to T_predict + 1 (the paper
            counts rounds from 0 and its published results include round T_predict).
        local_steps: T_local, training steps of the copy that predicts.
        sticky: draw each client's virtual items once instead of every round.

    Raises:
        ConfigError: a field is out of range.
    """

    rho: float = 1.0
    filling: str = "hybrid"
    predict_after: int = 10
    local_steps: int = 10
    sticky: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rho) and self.rho >= 0):
            raise ConfigError("protection.rho", self.rho, "must be at least 0 and finite")
        if self.filling not in FILLINGS:
            raise ConfigError("protection.filling", self.filling, "unknown filling", FILLINGS)
        if self.predict_after < 0:
            raise ConfigError("protection.predict_after", self.predict_after, "must be at least 0")
        if self.local_steps < 1:
            raise ConfigError("protection.local_steps", self.local_steps, "must be at least 1")


class VirtualRatings:
    """The cloak of FedRec.

    Args:
        config: settings.
        n_items: rows of the shared table.
        streams: the run's random streams; uses the one named "fakes".
    """

    def __init__(self, config: VirtualRatingsConfig, *, n_items: int, streams: Streams) -> None:
        self.config = config
        self._n_items = n_items
        self._streams = streams
        self._fakes = streams.stream("fakes")

    def cover(
        self, upload: Upload, local: LocalModel, *, round_: int, exempt: BoolArray
    ) -> Cloaked:
        """Add virtual rows to the uploads of the clients that are not exempt."""
        wanted, _ = self._wanted(upload.block.lengths)
        wanted[exempt] = 0
        status = draw_unrated(
            upload.block,
            upload.clients,
            wanted,
            n_items=self._n_items,
            stream=self._fakes,
            round_=0 if self.config.sticky else round_,
        )

        def fill(indptr: IntArray, items: IndexArray) -> FloatArray:
            return local.impute(
                indptr, items, method=self._method(round_), local_steps=self.config.local_steps
            )

        return merge_virtual(upload, local, status, fill)

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """(1 + rho) |I_u| rows, rho |I_u| of them virtual, capped by the unrated items."""
        wanted, _ = self._wanted(rated)
        return rated + wanted, wanted

    def capped(self, rated: IntArray) -> IntArray:
        """Clients with fewer than rho |I_u| unrated items."""
        return np.flatnonzero(self._wanted(rated)[1])

    def without_virtual(self) -> "VirtualRatings":
        """The same cloak at rho = 0."""
        config = replace(self.config, rho=0.0)
        return VirtualRatings(config, n_items=self._n_items, streams=self._streams)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "virtual-ratings", asdict(self.config)

    def _wanted(self, rated: IntArray) -> tuple[IntArray, BoolArray]:
        asked = np.floor(self.config.rho * rated)
        room = self._n_items - rated
        return np.minimum(asked, room).astype(np.int64), asked > room

    def _method(self, round_: int) -> str:
        if self.config.filling != "hybrid":
            return self.config.filling
        return "average" if round_ - 1 <= self.config.predict_after else "predicted"


def draw_unrated(
    block: RowBlock,
    clients: IntArray,
    wanted: IntArray,
    *,
    n_items: int,
    stream: Stream,
    round_: int,
) -> StatusArray:
    """Draw virtual items for a batch of clients.

    Args:
        block: the rated rows, one segment per client.
        clients: int64[B], lanes of the stream.
        wanted: int64[B], items to draw, at most the client's unrated items.
        n_items: rows of the shared table.
        stream: source of randomness.
        round_: round of the draw.

    Returns:
        uint8[B * n_items]: 0 unrated, 1 rated, 2 virtual, client after client.
    """
    status = np.zeros(len(block) * n_items, dtype=np.uint8)
    status[_keys(block, n_items)] = RATED
    if not wanted.any():
        return status
    room = n_items - block.lengths
    leave_out = wanted > room // 2  # draw the smaller side: few repeats to throw away
    picks = np.where(leave_out, room - wanted, wanted)
    taken = _first_distinct(room, picks, clients, stream, round_)
    mark_members(status, n_items, taken, leave_out, VIRTUAL)
    return status


def _first_distinct(
    room: IntArray, picks: IntArray, clients: IntArray, stream: Stream, round_: int
) -> BoolArray:
    """Mark the first ``picks[b]`` distinct ranks of each client's random sequence.

    Returns:
        bool[room.sum()], the ranks below ``room[b]`` client after client.
    """
    offsets = np.cumsum(room) - room
    taken = np.zeros(int(room.sum()), dtype=bool)
    missing = picks.copy()
    starts = np.zeros(len(picks), dtype=np.int64)
    while True:
        active = np.flatnonzero(missing)
        if not len(active):
            return taken
        # Coupon collector: distinct values expected after c draws from M are M (1 - exp(-c / M)).
        # The length of a client's sequence depends on the client alone, so batches do not matter.
        free = room[active] - (picks - missing)[active]
        expected = room[active] * np.log(free / (free - missing[active] + 0.5))
        counts = 2 * np.ceil(0.52 * expected + 6).astype(np.int64)
        words = stream.words(round_, clients[active], counts, starts[active])
        ranks = uniform_ranks(words, np.repeat(room[active], counts))
        runs = np.concatenate([[0], np.cumsum(counts)])
        still = missing[active]
        take_first_distinct(ranks, runs, offsets[active], still, taken)
        missing[active] = still
        starts[active] += counts


def merge_virtual(upload: Upload, local: LocalModel, status: StatusArray, fill: Fill) -> Cloaked:
    """Compute the virtual rows and sort them in between the real ones.

    Args:
        upload: the real rows.
        local: computes the rows.
        status: uint8[B * n_items] as returned by ``draw_unrated``.
        fill: virtual ratings for (indptr, items), float64[N].
    """
    block = upload.block
    if block.values is None:
        raise ValueError("an upload has values")
    batch = len(block)
    n_items = len(status) // max(1, batch)
    keys = np.flatnonzero(status)
    virtual = status[keys] == VIRTUAL
    fake_keys = keys[virtual]
    if not len(fake_keys):
        return Cloaked(upload=upload, virtual=np.zeros(len(block.rows), dtype=bool))
    bounds = np.arange(batch + 1) * n_items
    fake_indptr = np.searchsorted(fake_keys, bounds)
    fakes: IndexArray = (fake_keys - np.repeat(bounds[:-1], np.diff(fake_indptr))).astype(np.int32)
    fake_rows = local.rows(fake_indptr, fakes, fill(fake_indptr, fakes))
    return _interleave(upload, keys, virtual, fakes, fake_rows, bounds)


def _interleave(
    upload: Upload,
    keys: IntArray,
    virtual: BoolArray,
    fakes: IndexArray,
    fake_rows: FloatArray,
    bounds: IntArray,
) -> Cloaked:
    block = upload.block
    values = np.empty((len(keys), fake_rows.shape[1]))
    rows = np.empty(len(keys), dtype=np.int32)
    real_places, fake_places = np.flatnonzero(~virtual), np.flatnonzero(virtual)
    if block.values is not None:
        place_rows(values, real_places, block.values)
    place_rows(values, fake_places, fake_rows)
    rows[real_places] = block.rows
    rows[fake_places] = fakes
    merged = RowBlock(indptr=np.searchsorted(keys, bounds), rows=rows, values=values)
    return Cloaked(upload=Upload(clients=upload.clients, block=merged), virtual=virtual)


def _keys(block: RowBlock, n_items: int) -> IntArray:
    owners = np.repeat(np.arange(len(block)) * n_items, block.lengths)
    return owners + block.rows
