"""Rows proven to be virtual: the claim, its figure, and how it is judged."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.scoring.gains import Figures, Gain, Gains
from attacks.scoring.measures import SHARE, Behind, Measure, Page, Scale, gain, records
from attacks.scoring.ratings import rated_grid
from attacks.scoring.scored import Scored, is_honest
from attacks.scoring.sets import popularity_of
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

MEASURES = records(
    unmasked_share=Measure(
        "Virtual rows proven virtual",
        "Share of the virtual rows that are proven to be virtual.",
        Scale(SHARE, "the share of rated rows that are 'proven' virtual", "stays hidden"),
        Behind(("unmasked_lift",), 0.9),
        Page(listed=False),
        words="proves {unmasked_share:%} of the virtual rows to be virtual",
        said=(0.0, math.inf),
    ),
    unmasked_lift=gain(
        0.5,
        about="Share of a client's virtual rows that are proven virtual, less that of its rated "
        "rows that are, beyond what naming as many of its least popular rows gives.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnmaskedClaim:
    """Items whose rows are proven to be virtual.

    Args:
        clients: int64[B].
        visible: bool[B, m], items the adversary saw in any message of that client.
        proven: bool[B, m], those of them that are virtual.
    """

    clients: IntArray
    visible: BoolArray
    proven: BoolArray

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the rated sets."""
        if case.truth.train is not None:
            grid = rated_grid(case.truth.train)
            figures, gains = unmasked_figures(self, grid, case.corrupted)
            yield Scored(figures=figures, gains=gains, units={})


def unmasked_figures(
    claim: UnmaskedClaim, truth: BoolArray, corrupted: frozenset[int]
) -> tuple[Figures, Gains]:
    """Share of the virtual rows that were proven virtual, and of clients with over 90 % of them.

    The gain is a client's share less that of its rated rows that were "proven" virtual, beyond what
    naming as many of the least popular rows gives; a client of whom rows of one kind alone were
    seen has none.

    Args:
        claim: what is proven of whom.
        truth: bool[n, m], which items every client rated.
        corrupted: the adversary's own clients; they are left out.
    """
    honest = is_honest(claim.clients, corrupted)
    labels, proven = truth[claim.clients[honest]], claim.proven[honest]
    virtual = claim.visible[honest] & ~labels
    if not virtual.any():
        return {"unmasked_share": None, "clients_mostly_unmasked_share": None}, {}
    right, wrong = virtual & proven, labels & proven
    rated = claim.visible[honest] & labels
    unpopular = _least(popularity_of(truth, labels), claim.visible[honest], proven.sum(axis=1))
    per_client = _share(right, virtual)
    guessed = np.maximum(_share(unpopular * virtual, virtual) - _share(unpopular * rated, rated), 0)
    told = virtual.any(axis=1) & rated.any(axis=1)  # else "all of them" would be a gain
    gain = np.where(told, per_client - _share(rated & proven, rated) - guessed, np.nan)
    return {
        "unmasked_share": float(right.sum() / virtual.sum()),
        "wrongly_unmasked_share": float(wrong.sum() / max(1, labels.sum())),
        "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
    }, {"unmasked_lift": Gain(gain)}


def _least(popularity: FloatArray, visible: BoolArray, sizes: IntArray) -> FloatArray:
    """How much of each visible row is among a client's so many least popular: float64[B, m].

    Rows that tie for the last places share them.
    """
    counts = np.where(visible, popularity, np.inf)
    last = np.take_along_axis(np.sort(counts, axis=1), np.maximum(sizes, 1)[:, None] - 1, axis=1)
    below, at = visible & (counts < last), visible & (counts == last)
    places = (sizes - below.sum(axis=1)) / np.maximum(at.sum(axis=1), 1)
    return np.asarray(below + at * np.maximum(places, 0)[:, None])


def _share(part: npt.NDArray[Any], whole: BoolArray) -> FloatArray:
    return np.asarray(part.sum(axis=1) / np.maximum(whole.sum(axis=1), 1))
