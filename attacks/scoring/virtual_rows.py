"""Rows proven to be virtual: the claim, its figure, and how it is judged."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attacks.scoring.gains import Figures, Gain, Gains
from attacks.scoring.measures import SHARE, Behind, Measure, Page, Scale, gain, records
from attacks.scoring.ratings import rated_grid
from attacks.scoring.scored import Scored, is_honest
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import BoolArray, IntArray

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
    unmasked_lift=gain(0.9),
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

    The gain is a client's share less that of its rated rows that were "proven" virtual; a client of
    whom rows of one kind alone were seen has none.

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
    right = virtual & proven
    per_client = right.sum(axis=1) / np.maximum(virtual.sum(axis=1), 1)
    wrong = labels & proven
    rated_rows = claim.visible[honest] & labels
    false = (rated_rows & proven).sum(axis=1) / np.maximum(rated_rows.sum(axis=1), 1)
    told = virtual.any(axis=1) & rated_rows.any(axis=1)  # else "all of them" would be a gain
    gain = np.where(told, per_client - false, np.nan)
    return {
        "unmasked_share": float(right.sum() / virtual.sum()),
        "wrongly_unmasked_share": float(wrong.sum() / max(1, labels.sum())),
        "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
    }, {"unmasked_lift": Gain(gain)}
