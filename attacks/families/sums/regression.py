"""Subset regression: the exact sum of the real rows, and all rows under their senders' names.

A protocol that removes virtual rows from the sum and not from the uploads leaves the server with
one equation per coordinate, item and round,

    sum_u b_ui row_t(u, i) = A_t(i)        and        sum_u b_ui = count_t(i),

in the same unknown bits b_ui (1 rated, 0 virtual). d coordinates and a few rounds outnumber the
uploads of an item. Every item is a system of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.sums.equations import fit_bits
from attacks.scoring.item_sets import ItemSets, keys_of, listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import (
    Sightings,
    distinct_cohorts,
    others_sum,
    others_uploads,
    own_clients,
    words_of,
)
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import Step, View

_STOPS = (1, 2, 5, 10, 25, 50, 100)
_BLOCK_BYTES = 256 * 2**20
_SPARE_BITS = 40.0
"""Bits that the equations must hold beyond one per unknown: a wrong subset that satisfies them all
has odds of about 2^-40."""

_SEEN, _SCORE = 0.5, np.float32
"""Score of a pair that is known to be virtual. All scores are float32, which suffices for bits of
six digits and saves memory."""


class SubsetRegression(SuiteAttack):
    """Solves for the bits.

    Game: Given all identified rows and the exact sums of the real ones, over several rounds, tell
        real from virtual rows.
    Adversary: Honest-but-curious server, alone.
    Needs: Payloads of uploads and of the aggregate of at least one round, in a protocol whose
        aggregate is free of virtual rows.
    Statistic: Ridge estimate of the bit of every uploaded item, from one equation per coordinate
        and round and one per count; items missing from any upload of the client are virtual. A
        solved item is proven by exact substitution in the ring.
    Reference: Linear reconstruction from subset sums, Dinur and Nissim 2003; an exact sum is what
        lossless removal of virtual rows hands to the server.
    Limits: Needs as many independent equations as uploads of the item; rows of parties that do not
        upload (the denoisers) act as noise on the items they rated.
    """

    name = "subset-regression"
    control = Control(measure="support_auc", on="sticky", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Solve after each of several numbers of rounds; claim the last result."""
        require_seen(view, {Step.UPLOAD: "uploads", Step.AGGREGATE: "aggregate"})
        _need_equations(Knowledge.of(view))
        none = "no round has payloads of the aggregate and of every one of its uploads"
        both = common_rounds(view, Step.UPLOAD, Step.AGGREGATE, payload=True, otherwise=none)
        rounds = need(tuple(round_ for round_ in both if _all_kept(view, round_)), none)
        stops = [stop for stop in _STOPS if stop < len(rounds)]
        fits = {stop: _solve(view, rounds[:stop]) for stop in (*stops, len(rounds))}
        last = fits[len(rounds)]
        clients, listed = last.presence.clients, last.presence.listed
        claim = RatedSetClaim.of_listed(clients, listed, last.scores, last.real)
        history = {stop: fit.scores_among(clients, listed) for stop, fit in fits.items()}
        details = {
            "items": len(np.unique(listed.items)),
            "items_proven": last.proven,
            "pairs_proven_real": int(last.real.sum()),
            "pairs_proven_virtual": int(last.virtual.sum()),
        }
        virtual = Rows.marked(listed, last.virtual)
        proven = UnmaskedClaim(clients=clients, visible=claim.visible, proven=virtual)
        made = (replace(claim, history=history), proven)
        return Claims(rounds=rounds, made=made, details=details)


def _need_equations(knowledge: Knowledge) -> None:
    """Requires that rows and sums of the protocol are equations in constant bits."""
    hidden = "uploads are hidden: there are no identified rows to put into equations"
    need(not knowledge.hidden, hidden)
    need(knowledge.sums_are_real, "the aggregate still contains the virtual rows")
    unrated = "clients send rows of items that they have not rated: a bit is not a rating"
    need(knowledge.rated_only, unrated)
    some = "clients send rows of some of their rated items: no bit stays the same"
    need(knowledge.every_row, some)
    drawn = "uploads of rated items are drawn afresh every round: no bit stays the same"
    need(knowledge.constant, drawn)
    need(knowledge.exact, "the aggregate carries noise: its sums are not equations")


class _Fit(NamedTuple):
    """The state of the pairs that ``presence`` lists after some rounds: [K] each."""

    presence: Sightings
    scores: npt.NDArray[np.float32]
    real: BoolArray
    virtual: BoolArray
    proven: int

    def scores_among(self, clients: IntArray, listed: ItemSets) -> Rows:
        """Scores of a longer list of clients and pairs; 0, never seen, for the others."""
        both = (clients, listed), (self.presence.clients, self.presence.listed)
        every, mine = (whose[of.owners] * of.n_items + of.items for whose, of in both)
        values = np.zeros(len(listed.items), dtype=self.scores.dtype)
        values[np.searchsorted(every, mine)] = self.scores
        return Rows(listed=listed, values=values)


class _Item(NamedTuple):
    """One item's system: The equations of one item: K uploads in T rounds.

    Attributes:
        rows: int64[T, d, K], centred ring integers of the uploads; 0 where a client was absent.
        sums: int64[T, d], of the aggregates.
        present: float64[C, K], the participants of each distinct cohort.
        counts: float64[C].
    """

    rows: IntArray
    sums: IntArray
    present: FloatArray
    counts: FloatArray

    def bits(self, unseen: int = 0) -> FloatArray:
        """Estimates of the K bits.

        Args:
            unseen: parties whose own rows are in the sums and in no upload. Each rated the item
                with the odds of all other clients; its row is taken to be that of an average
                client, and deviations from it are noise of the equations.
        """
        rounds, width, uploads = self.rows.shape
        scale = np.sqrt(np.mean(self.rows.astype(np.float64) ** 2, axis=(1, 2)))
        scale = np.where(scale > 0.0, scale, 1.0)
        design = (self.rows / scale[:, None, None]).reshape(rounds * width, uploads)
        target = (self.sums / scale[:, None]).reshape(-1)
        design = np.concatenate([self.present, design])
        target = np.concatenate([self.counts, target])
        asked = self.present.sum() + unseen * len(self.counts)
        expected = float(self.counts.sum() / asked) if asked else 0.0
        if not unseen:
            return fit_bits(design, target, expected=expected)
        average = design.mean(axis=1)
        spread = float(np.mean((design - average[:, None]) ** 2))
        hidden = unseen * expected
        return fit_bits(design, target - hidden * average, expected=expected, noise=hidden * spread)

    def holds(self, bits: BoolArray, codec: FixedPoint) -> bool:
        """Whether this subset satisfies every equation, and no other one could by chance."""
        spread = self.rows.std(axis=2)
        if float(np.log2(1.0 + spread).sum()) < len(bits) + _SPARE_BITS:
            return False
        if not np.array_equal(self.present @ bits, self.counts):
            return False
        total = self.rows[:, :, bits].sum(axis=2)
        return np.array_equal(codec.from_integers(total), codec.from_integers(self.sums))


def _solve(view: View, rounds: Sequence[int]) -> _Fit:
    """Solve every item from the payloads of some rounds and the counts of all up to the last."""
    counted = set(view.rounds(Step.UPLOAD)) & set(view.rounds(Step.AGGREGATE))
    known = sorted(r for r in counted if r <= rounds[-1])
    knowledge = Knowledge.of(view)
    presence = Sightings.read(view, knowledge, known)
    cohorts, counts = distinct_cohorts(presence.present, presence.counts)
    scores = np.full(len(presence.possible), _SEEN, dtype=_SCORE)  # and missing once: virtual
    real = np.zeros(scores.shape, dtype=bool)
    virtual = ~presence.possible
    unseen = len(set(knowledge.denoisers) - set(presence.clients.tolist()) - own_clients(view))
    proven = 0
    for item, members, pairs, rows, sums in _systems(view, presence, rounds):
        system = _Item(rows=rows, sums=sums, present=cohorts[:, members], counts=counts[:, item])
        bits = system.bits()
        ones = bits > 0.5
        if system.holds(ones, view.codec):
            proven += 1
            bits = ones.astype(np.float64)
            real[pairs[ones]] = True
            virtual[pairs[~ones]] = True
        elif unseen:
            bits = system.bits(unseen)
        scores[pairs] = 2.0 + np.clip(bits, -1.0, 1.0)
    scores[virtual] = _SEEN
    return _Fit(presence=presence, scores=scores, real=real, virtual=virtual, proven=proven)


def _systems(
    view: View, presence: Sightings, rounds: Sequence[int]
) -> Iterator[tuple[int, IntArray, IntArray, IntArray, IntArray]]:
    """Every item with uploads in question.

    Returns:
        (item, who uploaded it int64[K], these pairs among the listed int64[K], rows int64[T, d, K],
        sums int64[T, d]).
    """
    listed = presence.listed
    asked = np.flatnonzero(presence.possible)
    asked = asked[np.argsort(listed.items[asked], kind="stable")]
    items, owners = listed.items[asked], listed.owners_of(asked)
    width = _sums(view, rounds[0]).shape[1]
    per_pair = len(rounds) * width * 8
    starts = np.searchsorted(items, np.arange(listed.n_items + 1))
    sums = np.stack([_sums(view, round_) for round_ in rounds])
    first = 0
    while first < len(starts) - 1:
        room = starts[first] + max(1, _BLOCK_BYTES // per_pair)
        last = max(first + 1, int(np.searchsorted(starts, room, side="right")) - 1)
        pairs = slice(int(starts[first]), int(starts[last]))
        rows = _rows(view, presence, rounds, asked[pairs], width)
        for item in range(first, last):
            own = slice(int(starts[item] - pairs.start), int(starts[item + 1] - pairs.start))
            if own.stop > own.start:
                mine = slice(pairs.start + own.start, pairs.start + own.stop)
                yield item, owners[mine], asked[mine], rows[:, :, own], sums[:, item]
        first = last


def _rows(
    view: View, presence: Sightings, rounds: Sequence[int], pairs: IntArray, width: int
) -> IntArray:
    """Ring integers of some of the listed pairs, int64[N], in some rounds: int64[T, d, N]."""
    listed, n_items = presence.listed, presence.listed.n_items
    asked = listed.owners_of(pairs) * n_items + listed.items[pairs]
    found: IntArray = np.zeros((len(rounds), width, len(pairs)), dtype=np.int64)
    for position, round_ in enumerate(rounds):
        uploads, block = others_uploads(view, round_, payload=True)
        if not len(block.rows):
            continue
        words, ids = words_of(block), uploads.senders.ids
        sent, place = listed_rows(presence.clients, ids, block, n_items)
        row = np.empty(len(sent.items), dtype=np.int64)
        row[place] = np.arange(len(place))
        keys = keys_of(sent)
        where = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        there = keys[where] == asked
        found[position][:, there] = view.codec.to_integers(words[row[where[there]]]).T
    return found


def _sums(view: View, round_: int) -> IntArray:
    """Ring integers of the aggregate of a round: int64[m, d]."""
    total = others_sum(view, round_, payload=True)
    words = words_of(total)
    sums = np.zeros((int(view.public["n_items"]), words.shape[1]), dtype=np.int64)
    sums[total.rows] = view.codec.to_integers(words)
    return sums


def _all_kept(view: View, round_: int) -> bool:
    """Whether the payloads of all uploads of a round were recorded."""
    kept, _ = others_uploads(view, round_, payload=True)
    return len(kept) == len(others_uploads(view, round_)[0])
