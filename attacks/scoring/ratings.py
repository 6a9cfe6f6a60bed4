"""Named ratings: the claim, its figures, and how it is judged."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attacks.scoring.chance import by_client
from attacks.scoring.gains import Figures, Gain, Gains, headroom
from attacks.scoring.truth import Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingClaim:
    """Ratings of (client, item) pairs.

    Args:
        clients: int64[N].
        items: int64[N].
        ratings: float64[N].
        about: int64[B], clients whose ratings all count, named or not; None for those above.
    """

    clients: IntArray
    items: IntArray
    ratings: FloatArray
    about: IntArray | None = None

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it: share of the clients' ratings named exactly, compared with a constant.

        Every rating of the clients counts. If the attack abstains, the best public guess counts:
        the most frequent rating of all, or of the item among the other clients, whichever is right
        more often. All figures are shares of all these ratings; gains are resampled by client:

        - ``rating_accuracy``; ``rating_mode_accuracy`` of that constant alone;
        - ``coverage``: share of the ratings that the attack names at all;
        - ``rating_lift``; ``rating_headroom_lift``: its share of what the constant leaves.
        """
        train = case.truth.train
        if train is None:
            return
        about = np.zeros(train.n_clients, dtype=bool)
        about[self.clients], about[() if self.about is None else self.about] = True, True
        about &= is_honest(np.arange(train.n_clients), case.corrupted)
        judged = about[train.clients]
        if not judged.any():
            unknown = ("rating_accuracy", "rating_mode_accuracy", "coverage")
            yield Scored(figures=dict.fromkeys(unknown), units={})
            return
        said = _said(self, train)
        covered = np.isfinite(said)
        constant = best_constant(train, judged)
        right = np.where(covered, said, constant) == train.ratings
        known = constant == train.ratings

        gain, room = (
            by_client(each[judged], train.clients[judged])
            for each in (right.astype(np.float64) - known, 1.0 - known.astype(np.float64))
        )
        figures: Figures = {
            "rating_accuracy": float(right[judged].mean()),
            "rating_mode_accuracy": float(known[judged].mean()),
            "coverage": float(covered[judged].mean()),
        }
        gains: Gains = {"rating_lift": Gain(gain), "rating_headroom_lift": headroom(gain, room)}
        yield Scored(figures=figures, gains=gains, units={})


def _said(claim: RatingClaim, train: RatingTable) -> FloatArray:
    """The claim about every rating: float64[N]; NaN where there is none."""
    keys, asked = (
        each.clients.astype(np.int64) * train.n_items + each.items for each in (claim, train)
    )
    order = np.argsort(keys, kind="stable")  # of two names for one rating the last one counts
    place = np.searchsorted(keys[order], asked, side="right") - 1
    said = np.full(len(asked), np.nan)
    if len(keys):
        found = order[np.maximum(place, 0)]
        known = (place >= 0) & (keys[found] == asked)
        said[known] = claim.ratings[found[known]]
    return said


def best_constant(train: RatingTable, judged: BoolArray) -> FloatArray:
    """The best constant guess for every rating from public knowledge: float64[N].

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
