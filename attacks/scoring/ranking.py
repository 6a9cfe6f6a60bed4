"""A game over a catalogue, in blocks of clients, and rankings that do not use a client's data."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from attacks.scoring.item_sets import ItemSets, Joined, joined, spans_of
from attacks.scoring.loops import Rest
from attacks.scoring.rows import Rows
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.tables import BlockedTable, ScoreTable, Table, count_per_client
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.bounded import Bounded
from secure_fedrec.evaluation.ranking import midranks


class Part(NamedTuple):
    """A block of clients.

    Attributes:
        pairs: pairs that are listed or in their sets.
        table: the game; all other pairs are its rest.
        visible: bool[T], pairs that were seen.
    """

    pairs: Joined
    table: ScoreTable
    visible: BoolArray


class CatalogueGame:
    """Tell the items in a client's set from all others.

    Args:
        scores: float, of B clients.
        labels: their sets.
        visible: bool, pairs that were seen, listed as the scores are; None for all.
    """

    def __init__(self, scores: Rows, labels: ItemSets, visible: Rows | None = None) -> None:
        self.scores, self.labels, self.visible = scores, labels, visible
        self.spans = spans_of(scores.listed, labels)
        self._only: Part | None = None
        self._dealt: dict[int, Table] = {}
        self.table: Table = BlockedTable([partial(self._table, span) for span in self.spans])
        self.support: Table = BlockedTable([partial(self._support, span) for span in self.spans])

    def part(self, span: slice) -> Part:
        """The data of one block; a single block is cached."""
        if self._only is not None:
            return self._only
        pairs = joined(self.scores.listed, self.labels, span)
        seen = np.ones(len(pairs.items), dtype=bool)
        if self.visible is not None:
            seen = np.asarray(self.visible.of(pairs), dtype=bool)
        part = Part(pairs, table_of(self.scores, pairs), seen)
        if len(self.spans) == 1:
            self._only = part
        return part

    def _table(self, span: slice) -> ScoreTable:
        return self.part(span).table

    def _support(self, span: slice) -> ScoreTable:
        """The game restricted to the visible items."""
        if self.visible is None:
            return self._table(span)
        part = self.part(span)
        if isinstance(self.visible.rest, np.ndarray):  # the same items are visible of all clients
            return _shared_support(self.scores, self.visible.rest, part)
        return part.table.where(part.visible)

    def dealt(self, seed: int) -> Table:
        """The same scores against sets of the same sizes, drawn at random."""
        if seed not in self._dealt:
            self._dealt[seed] = CatalogueGame(self.scores, self.labels.dealt(seed)).table
        return self._dealt[seed]


def table_of(scores: Rows, pairs: Joined) -> ScoreTable:
    """The game of a block of clients."""
    values = np.ascontiguousarray(scores.of(pairs), dtype=np.float64)
    everybody = np.zeros(len(pairs.indptr) - 1, dtype=np.int64)
    row = np.full((1, scores.listed.n_items), scores.rest, dtype=np.float64)
    rest = Rest.of_rows(row, everybody, pairs.owners, pairs.items)
    return ScoreTable(indptr=pairs.indptr, scores=values, labels=pairs.labels, rest=rest)


def _shared_support(scores: Rows, seen: BoolArray, part: Part) -> ScoreTable:
    keep, pairs = part.visible, part.pairs
    number = np.cumsum(seen) - 1
    row = np.asarray(scores.rest, dtype=np.float64)[None, seen]
    items = number[pairs.items[keep]].astype(np.int32)
    everybody = np.zeros(len(pairs.indptr) - 1, dtype=np.int64)
    return part.table.where(keep, Rest.of_rows(row, everybody, pairs.owners[keep], items))


class Standing(NamedTuple):
    """How a client's scores compare with each other.

    Attributes:
        left: int64[T], for each listed pair, the pairs of the client with smaller scores.
        right: int64[T], those with scores that are not larger.
        rest_left: as ``left``, for unlisted pairs: int64[b], or int64[m] by item of a row that all
            clients share.
        rest_right: likewise, as ``right``.
        shared: whether it is such a row.
    """

    left: IntArray
    right: IntArray
    rest_left: IntArray
    rest_right: IntArray
    shared: bool = False


def standing(scores: Rows, part: Part) -> Standing:
    """Data of a block of clients."""
    table, indptr = part.table, part.pairs.indptr
    if isinstance(scores.rest, np.ndarray):
        row = np.asarray(scores.rest, dtype=np.float64)
        ordered = np.sort(row)
        left, right = (np.searchsorted(ordered, row, side=end) for end in ("left", "right"))
        return Standing(left[part.pairs.items], right[part.pairs.items], left, right, shared=True)
    left, right = table.standing
    listed, value = np.diff(indptr), float(scores.rest)
    left_out = scores.listed.n_items - listed
    of_pair = np.repeat(left_out, listed)
    rest_left = count_per_client(table.scores < value, indptr)
    rest_right = count_per_client(table.scores <= value, indptr) + left_out
    left = left + of_pair * (value < table.scores)
    right = right + of_pair * (value <= table.scores)
    return Standing(left, right, rest_left, rest_right)


def ranked(rows: FloatArray, row: IntArray, labels: ItemSets, own: float) -> ScoreTable:
    """The game that ranks items by one of a few rows, without a client's own set.

    Args:
        rows: float64[H, m].
        row: int64[B], of each client.
        labels: the sets.
        own: value subtracted from the scores of a client's own items.
    """
    owners, all_of_them = labels.owners, np.ones(len(labels.items), dtype=bool)
    scores = rows[row[owners], labels.items] - own
    rest = Rest.of_rows(rows, row, owners, labels.items)
    return ScoreTable(indptr=labels.indptr, scores=scores, labels=all_of_them, rest=rest)


_CHANCE = 0.5
_CLEARLY = 1.0
"""Standard errors above chance that a ranking must reach to be used, since the best of several is
above chance by luck.
"""


@dataclass(frozen=True, eq=False)
class PublicRanking:
    """A ranking of items without a client's data.

    Attributes:
        rows: float64[2, m], the ranking for each half of the clients; equal values are ties.
        learned: float64[2, m], the same for rankings that each half of the clients gives for the
            other. Such a rule, fitted on counts without one client, could be subtracted from
            released counts of all, which would reveal that client's set.
        half: int64[B], of each client.
        labels: the clients' sets.
        own: what is subtracted for items in a client's own set: 1 if rows are counts of all
            clients.
    """

    rows: FloatArray
    learned: FloatArray
    half: IntArray
    labels: ItemSets
    own: float = 0.0

    @cached_property
    def table(self) -> ScoreTable:
        """The game that ranks by it, made once for many attacks on the same sets."""
        return ranked(self.rows, self.half, self.labels, self.own)

    def of(self, part: Part) -> FloatArray:
        """float64[T], of the pairs of a block of clients."""
        clients = part.pairs.span.start + part.pairs.owners
        values = self.rows[self.half[clients], part.pairs.items]
        return np.asarray(values - self.own * part.pairs.labels if self.own else values)

    def within(self, game: CatalogueGame) -> Table:
        """The game that ranks by it, restricted to the visible items."""
        visible = game.visible
        if visible is not None and isinstance(visible.rest, np.ndarray):
            kept, sets = visible.rest, game.labels
            inside, number = kept[sets.items], np.cumsum(kept) - 1
            items = number[sets.items[inside]].astype(np.int32)
            sizes = count_per_client(inside, sets.indptr)
            seen = ItemSets.of_sizes(sizes, items, int(kept.sum()))
            return ranked(self.rows[:, kept], self.half, seen, self.own)
        if visible is None:
            return self.table

        def seen_of(span: slice) -> ScoreTable:
            part = game.part(span)
            return replace(part.table, scores=self.of(part), rest=None).where(part.visible)

        return BlockedTable([lambda span=span: seen_of(span) for span in game.spans])  # type: ignore[misc]


def halved(clients: int, seed: int) -> IntArray:
    """int64[clients], the half that each is in, drawn at random."""
    half = np.zeros(clients, dtype=np.int64)
    half[np.random.default_rng(seed).permutation(clients)[clients // 2 :]] = 1
    return half


def public_ranking(game: CatalogueGame, popularity: FloatArray, seed: int) -> PublicRanking:
    """The best ranking of items without a client's data, in counts of raters.

    The best of: popularity among all others, popularity among the other half of the clients, the
    attack's mean ranks for that half (which do not depend on this client; released counts are such
    a ranking), and their reverse; or none, if none is clearly better than chance. None is better if
    counts are nearly equal: the client itself is left out of them, so its own items would rank
    last. The harness does this; no party knows the ranking.

    Args:
        game: the attack's scores, against the sets; rankings are compared by their mean AUC.
        popularity: float64[m], number of clients' sets that hold each item.
        seed: seed of the halves.
    """
    labels = game.labels
    # Cached: the result is the same for all attacks on the same clients, and a hash is cheap.
    whole = sha256(f"{seed} ".encode() + labels.digest + popularity.tobytes())
    counted = _COUNTED.get(whole.digest(), lambda: _counted(popularity, labels, seed))
    best, ranking = _CHANCE, counted[0]
    said = _said_of_others(game, popularity, seed)
    for candidate in (*counted[1:], *said):
        aucs = per_client_auc(candidate.table)
        aucs = aucs[np.isfinite(aucs)]
        found, error = float(aucs.mean()), float(aucs.std()) / np.sqrt(len(aucs))
        if found > best and found - _CHANCE > _CLEARLY * error:
            best, ranking = found, candidate
    return ranking


_Counted = tuple[PublicRanking, PublicRanking, PublicRanking]


def _counted(popularity: FloatArray, labels: ItemSets, seed: int) -> _Counted:
    """Three rankings: none, by the counts of all others, and by the counts of the other half."""
    half = halved(len(labels), seed)
    in_half = half[labels.owners] * labels.n_items + labels.items
    own_half = np.bincount(in_half, minlength=2 * labels.n_items).reshape(2, labels.n_items)
    rows = np.stack([popularity, popularity])
    apart, nothing = rows - own_half, np.zeros_like(rows)
    return (
        PublicRanking(nothing, nothing, half, labels),
        PublicRanking(rows, apart, half, labels, own=1.0),
        PublicRanking(apart, apart, half, labels),
    )


_COUNTED: Bounded[_Counted] = Bounded(512 * 2**20, lambda kept: 150 * len(kept[0].labels.items))
"""Number of items of a block: three rankings with their sorted scores take some 50 bytes per item
each."""


def _said_of_others(
    game: CatalogueGame, popularity: FloatArray, seed: int
) -> Iterator[PublicRanking]:
    """Rankings of an attack's mean ranks among the other half, upwards and downwards."""
    labels, clients = game.labels, len(game.labels)
    if clients < 2:
        return
    half = halved(clients, seed)
    counts = np.sort((clients * popularity - labels.popularity) / clients)
    means = _mean_ranks(game, half)
    for sign in (1.0, -1.0):
        said = np.stack([_in_counts(sign * means[1 - each], counts) for each in (0, 1)])
        yield PublicRanking(said, said, half, labels)


def _mean_ranks(game: CatalogueGame, half: IntArray) -> FloatArray:
    """float64[2, m], mean of the clients' midranks of each item, half by half."""
    m = game.labels.n_items
    twice = np.zeros(2 * m)  # whole numbers below 2^53: exact in any order
    for span in game.spans:
        part = game.part(span)
        stand, own, owners = standing(game.scores, part), half[span], part.pairs.owners
        if stand.shared:
            row = (stand.rest_left + stand.rest_right + 1).astype(np.float64)
            twice += np.concatenate([np.count_nonzero(own == each) * row for each in (0, 1)])
            continue
        rest = (stand.rest_left + stand.rest_right + 1).astype(np.float64)
        every = np.bincount(own, weights=rest, minlength=2)
        place = own[owners] * m + part.pairs.items
        beyond = (stand.left + stand.right + 1) - rest[owners]
        twice += np.bincount(place, weights=beyond, minlength=2 * m) + np.repeat(every, m)
    sizes = np.bincount(half, minlength=2)
    return np.asarray(twice.reshape(2, m) / 2 / sizes[:, None])


def _in_counts(scores: FloatArray, counts: FloatArray) -> FloatArray:
    """A ranking of the items in the range of ascending counts, in the order of scores: [m]."""
    places = midranks(scores) - 1  # midranks: what is tied stays tied
    # Equal counts must not tie pairs with different scores.
    return np.asarray(counts[places.astype(np.int64)] + places / len(scores))
