"""Rows of single clients read off sums: the claim, its figures, and how it is judged."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attacks.scoring.gains import Figures, Gain, Gains
from attacks.scoring.measures import SHARE, Behind, Context, Measure, Page, Scale, gain, records
from attacks.scoring.ratings import best_constant
from attacks.scoring.scored import Scored
from attacks.scoring.truth import Case
from attacks.scoring.vectors import VECTOR_ERROR
from attacks.view.blocks import item_view
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Step, Truth, View

_TAIL = Scale(SHARE, "what the best constant names", "a miss", "claims of all rounds are pooled")

MEASURES = records(
    "ratings",
    tail_rating_share=Measure(
        "Ratings without company read off sums",
        "Share of the items with one rater in a round whose rating is named, and right.",
        _TAIL,
        Behind(("tail_rating_lift",), 0.9),
        Page(listed=False),
        words="reads {tail_rating_share:%} of the ratings that no other client's hide in a sum, "
        "without their clients' names",
        said=(0.0, math.inf),
    ),
    tail_rating_accuracy=Measure(
        "Ratings named right of those read off sums",
        "Share of the ratings named that are right.",
        _TAIL._replace(abstention="left out"),
        Context("of the ratings named only; tail_rating_lift counts the others", floor=0.9),
        Page(listed=False),
    ),
    tail_rating_lift=gain(
        0.1,
        "Share of the items with one rater in a round whose rating is named, and right, minus the "
        "share that the best constant names of the same ratings.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedRows:
    """Rows, which of them are of one client, and what they decode to.

    Args:
        groups: int64[N], rows of one group are said to be of one client: 0 to G - 1, without gaps.
        ratings: float64[N]; counts where ``named``.
        named: bool[N], whether the rating is claimed.
        vectors: float64[G, d], private vectors of the groups; count where ``solved``.
        solved: bool[G], whether the vector is claimed.
    """

    groups: IntArray
    ratings: FloatArray
    named: BoolArray
    vectors: FloatArray
    solved: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnonymousRowClaim(GroupedRows):
    """Rows of single clients, read off the sum of a round without knowing whose they are.

    Args:
        round: which round.
        items: int64[N], items that exactly one client of the round is said to have rated.
        owners: int64[G], the client of each group; -1 where none is named.
    """

    round: int
    items: IntArray
    owners: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SingleRowsClaim:
    """Such rows of several rounds.

    Args:
        parts: one claim per round.
    """

    parts: tuple[AnonymousRowClaim, ...]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by who sent what into the sums."""
        truth = case.truth
        if not self.parts or truth.train is None:
            return
        cohorts = {part.round: _cohort(case.server, part.round) for part in self.parts}
        items = item_view(case.server)
        recorded = truth.recorded.within(None if items is None else items.block)
        figures, gains = row_figures(self.parts, cohorts, truth.train, recorded, case.corrupted)
        yield Scored(figures=figures, gains=gains, units={})


def row_figures(
    claims: Sequence[AnonymousRowClaim],
    cohorts: Mapping[int, IntArray],
    train: RatingTable,
    recorded: Truth,
    corrupted: frozenset[int],
) -> tuple[Figures, Gains]:
    """Rows read off sums without a name, beside the one client that they can be of.

    A claim about an item is right only if exactly one client of the round rated it, beside the
    adversary's own, whose rows are left out. Figures are shares, None where nothing was claimed:

    - ``tail_row_precision`` of the claimed rows: of one client indeed;
    - ``tail_rating_accuracy`` of the named ratings: that client's rating;
    - ``tail_rating_share`` of all items with one such rater in a round: rating named, and right;
      ``tail_rating_lift``: beyond what the best constant says of the ratings named;
    - ``tail_group_accuracy`` of the pairs of rows in one group: of one client;
    - ``tail_owner_accuracy`` of the rows with a name: of the client named;
    - ``tail_vector_share`` of the claimed vectors: right to a relative error of 1e-3.

    Args:
        claims: one per round.
        cohorts: round -> int64[P], the clients that uploaded; counts where nothing hides uploads.
        train: the ratings.
        recorded: by round, private vectors and what every client put into the sum.
        corrupted: the adversary's own clients.
    """
    parts = [
        _row_truths(claim, cohorts[claim.round], train, recorded, corrupted) for claim in claims
    ]

    def share(name: str) -> float | None:
        hits = np.concatenate([np.empty(0, dtype=bool), *(part[name] for part in parts)])
        return float(hits.mean()) if len(hits) else None

    named = sum(int(part["ratings"].sum()) for part in parts)
    tail = sum(int(part["tail"].sum()) for part in parts)
    # Where nothing is named, the constant speaks: such a row gains nothing.
    gains = [
        np.append(
            part["ratings"].astype(np.float64) - part["modal"],
            np.zeros(max(0, int(part["tail"].sum()) - len(part["ratings"]))),
        )
        for part in parts
    ]
    return {
        "tail_row_precision": share("rows"),
        "tail_rating_accuracy": share("ratings"),
        "tail_rating_share": named / tail if tail else None,
        "tail_group_accuracy": share("pairs"),
        "tail_owner_accuracy": share("owners"),
        "tail_vector_share": share("vectors"),
    }, {"tail_rating_lift": Gain(np.concatenate(gains)) if tail else None}


def _row_truths(
    claim: AnonymousRowClaim,
    cohort: IntArray,
    train: RatingTable,
    recorded: Truth,
    corrupted: frozenset[int],
) -> dict[str, BoolArray]:
    """What of a round's claim is right, and which items have one (honest) rater."""
    own = np.isin(train.clients, sorted(corrupted))
    summed = _summed(train, cohort, recorded, claim.round)
    there = summed & ~own
    raters = np.bincount(train.items[there], minlength=train.n_items)
    rater = np.full(train.n_items, -1, dtype=np.int64)
    rater[train.items[there]] = train.clients[there]
    rater[raters != 1] = -1
    rating = np.full(train.n_items, np.nan)
    rating[train.items[there]] = train.ratings[there]
    constant = np.full(train.n_items, np.nan)
    constant[train.items[there]] = best_constant(train, there)[there]
    own_alone = (raters == 0) & np.isin(np.arange(train.n_items), train.items[summed & own])
    keep = ~own_alone[claim.items]
    items, groups = claim.items[keep], claim.groups[keep]
    whose, owner = rater[items], claim.owners[groups]
    one, other = pairs_within(groups)
    return {
        "rows": whose >= 0,
        "ratings": ((whose >= 0) & (claim.ratings[keep] == rating[items]))[claim.named[keep]],
        "modal": ((whose >= 0) & (constant[items] == rating[items]))[claim.named[keep]],
        "pairs": (whose[one] >= 0) & (whose[one] == whose[other]),
        "owners": (owner == whose)[owner >= 0],
        "vectors": _vector_truths(claim, groups, whose, recorded),
        "tail": rater >= 0,
    }


def pairs_within(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Places of the two rows of each pair in one group, the earlier one first."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    # Each row stands before the rest of its group.
    later = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(groups)) - 1
    one = np.repeat(np.arange(len(groups)), later)
    indptr = bounds_of(later)
    other = one + 1 + np.arange(len(one)) - np.repeat(indptr[:-1], later)
    return order[one], order[other]


def _summed(train: RatingTable, cohort: IntArray, recorded: Truth, round_: int) -> BoolArray:
    """Whether each rating has a row in the sum of a round: bool[N].

    Denoisers upload nothing and are in the sum; a randomized response leaves rated items out of it.
    """
    columns = recorded.columns(round_, "own")
    if columns is None:
        return np.isin(train.clients, cohort)
    sent = (
        np.repeat(columns["senders"].astype(np.int64), columns["lengths"]) * train.n_items
        + columns["rows"]
    )
    return np.isin(train.clients.astype(np.int64) * train.n_items + train.items, sent)


def _vector_truths(
    claim: AnonymousRowClaim, groups: IntArray, whose: IntArray, recorded: Truth
) -> BoolArray:
    """Whether each claimed vector is that of the client of the group's first row."""
    columns = recorded.columns(claim.round, "private-user_vectors")
    present, first = np.unique(groups, return_index=True)
    solved = claim.solved[present]
    if columns is None or not solved.any():
        return np.empty(0, dtype=bool)
    clients = whose[first[solved]]
    actual = columns["values"][clients]
    error = np.linalg.norm(claim.vectors[present[solved]] - actual, axis=1)
    right = error < VECTOR_ERROR * np.linalg.norm(actual, axis=1)
    return np.asarray(right & (clients >= 0))


def _cohort(server: View, round_: int) -> IntArray:
    """Clients that sent the server an upload in a round."""
    if round_ not in server.rounds(Step.UPLOAD):  # all who came are denoisers
        return np.zeros(0, dtype=np.int64)
    return np.unique(server.messages(Step.UPLOAD, round_).senders.ids)
