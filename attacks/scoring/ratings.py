"""Figures of ratings, links and single rows.

Functions take claims and the truth and return figures by name; a figure is None where the data
cannot support it. ``games`` decides what is played and when the truth is opened.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attacks.base import AnonymousRowClaim, LinkClaim, RatingClaim
from attacks.scoring.gains import Figures, Gain, Gains, headroom
from attacks.scoring.scored import is_honest
from attacks.scoring.vectors import VECTOR_ERROR
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Truth

__all__ = ["link_figures", "rated_grid", "rating_figures", "row_figures"]


def rated_grid(train: RatingTable) -> BoolArray:
    """Which items the clients rated: bool[n, m]."""
    grid = np.zeros((train.n_clients, train.n_items), dtype=bool)
    grid[train.clients, train.items] = True
    return grid


def rating_figures(
    claim: RatingClaim,
    clients: IntArray,
    train: RatingTable,
    corrupted: frozenset[int],
) -> tuple[Figures, Gains]:
    """Share of the clients' ratings that are named exactly, beside the best constant.

    Every rating of the clients counts. Where the attack abstains the adversary says what everybody
    would: the most frequent rating of all, or of the item among the other clients, whichever is
    right more often. All figures are shares of all these ratings; gains are resampled by client:

    - ``rating_accuracy``; ``rating_mode_accuracy`` of that constant alone;
    - ``coverage``: share of the ratings that the attack names at all;
    - ``rating_lift``; ``rating_headroom_lift``: its share of what the constant leaves.

    Args:
        claim: what is named.
        clients: int64[B], whom the attack is about.
        train: the ratings.
        corrupted: the adversary's own clients; they are left out.
    """
    about = np.zeros(train.n_clients, dtype=bool)
    about[clients], about[claim.clients] = True, True
    about &= is_honest(np.arange(train.n_clients), corrupted)
    judged = about[train.clients]
    if not judged.any():
        return {"rating_accuracy": None, "rating_mode_accuracy": None, "coverage": None}, {}
    named = np.full((train.n_clients, train.n_items), np.nan)
    named[claim.clients, claim.items] = claim.ratings
    said = named[train.clients, train.items]
    covered = np.isfinite(said)
    constant = _best_constant(train, judged)
    right = np.where(covered, said, constant) == train.ratings
    known = constant == train.ratings

    gain, room = (
        _per_client(each, train, judged)
        for each in (right.astype(np.float64) - known, 1.0 - known.astype(np.float64))
    )
    figures: Figures = {
        "rating_accuracy": float(right[judged].mean()),
        "rating_mode_accuracy": float(known[judged].mean()),
        "coverage": float(covered[judged].mean()),
    }
    return figures, {"rating_lift": Gain(gain), "rating_headroom_lift": headroom(gain, room)}


def _per_client(values: FloatArray, train: RatingTable, judged: BoolArray) -> FloatArray:
    """Sums of each client, scaled so that their mean is the mean over all ratings judged."""
    owners = train.clients[judged]
    sums = np.bincount(owners, weights=values[judged], minlength=train.n_clients)
    rated = np.bincount(owners, minlength=train.n_clients) > 0
    return np.asarray(sums[rated] * (np.count_nonzero(rated) / len(owners)))


def _best_constant(train: RatingTable, judged: BoolArray) -> FloatArray:
    """What public knowledge says of every rating: float64[N].

    The most frequent rating, or that of the item among the other clients where that is right more
    often of those judged.
    """
    levels, place = np.unique(train.ratings, return_inverse=True)
    overall = levels[np.bincount(place).argmax()]
    counts = np.zeros((train.n_items, len(levels)), dtype=np.int64)
    np.add.at(counts, (train.items, place), 1)
    others = counts[train.items]
    others[np.arange(len(place)), place] -= 1
    of_item = np.where(others.any(axis=1), levels[others.argmax(axis=1)], overall)
    right = [(one == train.ratings)[judged].sum() for one in (overall, of_item)]
    return of_item if right[1] > right[0] else np.full(len(place), overall)


def link_figures(claim: LinkClaim, recorded: Truth, corrupted: frozenset[int]) -> Figures:
    """Share of messages linked to their sender, by each kind of evidence.

    Where several clients fit a message, the adversary guesses among them: the message counts by the
    odds of naming its sender, the expected top-1 accuracy with ties broken at random.
    """
    columns = recorded.columns(claim.round, "noise-origins")
    if columns is None:
        return {"linked_share": None}
    order = np.argsort(columns["tags"])
    found = order[np.searchsorted(columns["tags"][order], claim.tags)]
    sender = columns["clients"][found]
    honest = is_honest(sender, corrupted)
    if not honest.any():
        return {"linked_share": None}
    figures: Figures = {}
    place = np.searchsorted(claim.senders, sender).clip(max=len(claim.senders) - 1)
    known = claim.senders[place] == sender
    for kind, candidates in claim.candidates.items():
        fits = known & claim.fits[kind][np.arange(len(sender)), place]
        odds = np.where(fits, 1.0 / np.maximum(candidates, 1), 0.0)
        figures[f"linked_by_{kind}_share"] = float(np.mean(odds[honest]))
        figures[f"candidates_by_{kind}_median"] = float(np.median(candidates[honest]))
    figures["linked_share"] = max(
        value for name, value in figures.items() if name.startswith("linked_") and value is not None
    )
    return figures


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
    constant[train.items[there]] = _best_constant(train, there)[there]
    own_alone = (raters == 0) & np.isin(np.arange(train.n_items), train.items[summed & own])
    keep = ~own_alone[claim.items]
    items, groups = claim.items[keep], claim.groups[keep]
    whose, owner = rater[items], claim.owners[groups]
    one, other = np.nonzero(np.triu(groups[:, None] == groups[None, :], k=1))
    return {
        "rows": whose >= 0,
        "ratings": ((whose >= 0) & (claim.ratings[keep] == rating[items]))[claim.named[keep]],
        "modal": ((whose >= 0) & (constant[items] == rating[items]))[claim.named[keep]],
        "pairs": (whose[one] >= 0) & (whose[one] == whose[other]),
        "owners": (owner == whose)[owner >= 0],
        "vectors": _vector_truths(claim, groups, whose, recorded),
        "tail": rater >= 0,
    }


def _summed(train: RatingTable, cohort: IntArray, recorded: Truth, round_: int) -> BoolArray:
    """Whether each rating has a row in the sum of a round: bool[N].

    Denoisers upload nothing and are in the sum; a randomized response leaves rated items out of it.
    """
    columns = recorded.columns(round_, "own")
    if columns is None:
        return np.isin(train.clients, cohort)
    sent = np.zeros((train.n_clients, train.n_items), dtype=bool)
    sent[np.repeat(columns["senders"], columns["lengths"]), columns["rows"]] = True
    return np.asarray(sent[train.clients, train.items])


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
