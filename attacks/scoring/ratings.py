"""Figures of ratings, links and single rows.

Functions take claims and the truth and return figures by name; a figure is None where the data
cannot support it. ``games`` decides what is played and when the truth is opened.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attacks.base import AnonymousRowClaim, Claims, LinkClaim
from attacks.scoring.scored import Figures, is_honest
from attacks.scoring.vectors import VECTOR_ERROR
from secure_fedrec.arrays import BoolArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Truth

__all__ = ["link_figures", "rated_grid", "rating_figures", "row_figures"]


def rated_grid(train: RatingTable) -> BoolArray:
    """Which items the clients rated: bool[n, m]."""
    grid = np.zeros((train.n_clients, train.n_items), dtype=bool)
    grid[train.clients, train.items] = True
    return grid


def rating_figures(claims: Claims, train: RatingTable, corrupted: frozenset[int]) -> Figures:
    """Share of the clients' true, visible ratings that were named exactly."""
    claim = claims.ratings
    if claim is None:
        return {}
    truth = np.full((train.n_clients, train.n_items), np.nan)
    truth[train.clients, train.items] = train.ratings
    actual = truth[claim.clients, claim.items]
    scored = np.isfinite(actual) & is_honest(claim.clients, corrupted)
    if not scored.any():
        return {"rating_accuracy": None}
    return {"rating_accuracy": float(np.mean(claim.ratings[scored] == actual[scored]))}


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
) -> Figures:
    """Rows read off sums without a name, beside the one client that they can be of.

    A claim about an item is right only if exactly one client of the round rated it; rows of the
    adversary's own clients are left out. All figures are shares, None where nothing was claimed:

    - ``tail_row_precision`` of the claimed rows: of one client indeed;
    - ``tail_rating_accuracy`` of the named ratings: that client's rating;
    - ``tail_rating_share`` of all items with one rater in a round: rating named, and right;
    - ``tail_group_accuracy`` of the pairs of rows in one group: of one client;
    - ``tail_owner_accuracy`` of the rows with a name: of the client named;
    - ``tail_vector_share`` of the claimed vectors: right to a relative error of 1e-3.

    Args:
        claims: one per round.
        cohorts: round -> int64[P], the clients that took part.
        train: the ratings.
        recorded: private vectors by round.
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
    return {
        "tail_row_precision": share("rows"),
        "tail_rating_accuracy": share("ratings"),
        "tail_rating_share": named / tail if tail else None,
        "tail_group_accuracy": share("pairs"),
        "tail_owner_accuracy": share("owners"),
        "tail_vector_share": share("vectors"),
    }


def _row_truths(
    claim: AnonymousRowClaim,
    cohort: IntArray,
    train: RatingTable,
    recorded: Truth,
    corrupted: frozenset[int],
) -> dict[str, BoolArray]:
    """What of a round's claim is right, and which items have one (honest) rater."""
    there = np.isin(train.clients, cohort)
    raters = np.bincount(train.items[there], minlength=train.n_items)
    rater = np.full(train.n_items, -1, dtype=np.int64)
    rater[train.items[there]] = train.clients[there]
    rater[raters != 1] = -1
    rating = np.full(train.n_items, np.nan)
    rating[train.items[there]] = train.ratings[there]
    own = np.isin(rater, sorted(corrupted)) & (rater >= 0)
    keep = ~own[claim.items]
    items, groups = claim.items[keep], claim.groups[keep]
    whose, owner = rater[items], claim.owners[groups]
    one, other = np.nonzero(np.triu(groups[:, None] == groups[None, :], k=1))
    return {
        "rows": whose >= 0,
        "ratings": ((whose >= 0) & (claim.ratings[keep] == rating[items]))[claim.named[keep]],
        "pairs": (whose[one] >= 0) & (whose[one] == whose[other]),
        "owners": (owner == whose)[owner >= 0],
        "vectors": _vector_truths(claim, groups, whose, recorded),
        "tail": (rater >= 0) & ~own,
    }


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
