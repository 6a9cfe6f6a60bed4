"""Senders of anonymous messages: the claim, its figure, and how it is judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attacks.scoring.measures import SHARE, Context, Measure, Scale, records
from attacks.scoring.scored import Figures, Scored, is_honest
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.wire import Truth

__all__ = ["LinkClaim", "link_figures"]

MEASURES = records(
    linked_share=Measure(
        "Messages linked to their sender",
        "Share of messages joined to the right sender.",
        Scale(SHARE, "one over the senders", "no fit is a miss, several count by the odds"),
        Context("a name by itself; what it tells of the rated set is judged there", floor=0.99),
        words="names the sender of {linked_share:%} of the anonymous messages",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkClaim:
    """Senders of the anonymous messages of a round, by several kinds of evidence.

    Args:
        round: which round.
        tags: uint64[K], the messages.
        senders: int64[B], the clients that could have sent them.
        fits: evidence -> bool[K, B], which of them fit which message.
    """

    round: int
    tags: WordArray
    senders: IntArray
    fits: Mapping[str, BoolArray]

    @property
    def candidates(self) -> dict[str, IntArray]:
        """Evidence -> int64[K], how many clients fit."""
        return {kind: fit.sum(axis=1) for kind, fit in self.fits.items()}

    @property
    def guesses(self) -> dict[str, IntArray]:
        """Evidence -> int64[K], the one client that fits; -1 where none or several do."""
        return {
            kind: np.where(fit.sum(axis=1) == 1, self.senders[fit.argmax(axis=1)], -1)
            for kind, fit in self.fits.items()
        }

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by who sent what."""
        figures = link_figures(self, case.truth.recorded, case.corrupted)
        yield Scored(figures=figures, units={})


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
