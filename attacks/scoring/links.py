"""Senders of anonymous messages: the claim, its figure, and how it is judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from attacks.scoring.gains import Figures, Gain, Gains
from attacks.scoring.scored import Scored, is_honest
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.wire import Truth


class Relation(Protocol):
    """Which senders fit which message; of data alone, as all that is claimed."""

    def holds(self, places: IntArray) -> BoolArray:
        """Whether a sender fits, one place per message: int64[K] -> bool[K]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """A relation of few pairs: messages of ``count`` and places, ascending by both."""

    messages: IntArray
    places: IntArray
    count: int

    def holds(self, places: IntArray) -> BoolArray:
        """Whether the pair is listed."""
        width = 1 + max(int(self.places.max(initial=0)), int(places.max(initial=0)))
        asked = np.arange(self.count) * width + places
        return np.isin(asked, self.messages * width + self.places)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fits:
    """Which senders fit which message, without a grid of them.

    Args:
        candidates: int64[K], how many senders fit each message.
        first: int64[K], the place of the lowest; of no meaning where none does.
        relation: whether one of them does.
    """

    candidates: IntArray
    first: IntArray
    relation: Relation

    @classmethod
    def of_pairs(cls, messages: IntArray, places: IntArray, count: int) -> "Fits":
        """Listed pairs, ascending by message and place, of ``count`` messages."""
        candidates = np.bincount(messages, minlength=count)
        first = np.append(places, 0)[np.cumsum(candidates) - candidates]
        listed = Listed(messages=messages, places=places, count=count)
        return cls(candidates=candidates, first=first, relation=listed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkClaim:
    """Senders of the anonymous messages of a round, by several kinds of evidence.

    Args:
        round: which round.
        tags: uint64[K], the messages.
        senders: int64[B], the clients that could have sent them.
        fits: evidence -> which of them fit which message.
    """

    round: int
    tags: WordArray
    senders: IntArray
    fits: Mapping[str, Fits]

    @property
    def guesses(self) -> dict[str, IntArray]:
        """Evidence -> int64[K], the one client that fits; -1 where none or several do."""
        return {
            kind: np.where(fit.candidates == 1, self.senders[fit.first], -1)
            for kind, fit in self.fits.items()
        }

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by who sent what."""
        figures, gains = link_figures(self, case.truth.recorded, case.corrupted)
        yield Scored(figures=figures, gains=gains, units={})


def link_figures(
    claim: LinkClaim, recorded: Truth, corrupted: frozenset[int]
) -> tuple[Figures, Gains]:
    """Share of messages linked to their sender, by each kind of evidence.

    Where several clients fit a message, the adversary guesses among them: the message counts by the
    odds of naming its sender, the expected top-1 accuracy with ties broken at random.

    - ``linked_share``: by the evidence that names most; ``linked_lift``: beyond one over the
      senders.
    """
    nothing: Figures = {"linked_share": None}
    columns = recorded.columns(claim.round, "noise-origins")
    if columns is None:
        return nothing, {}
    order = np.argsort(columns["tags"])
    found = order[np.searchsorted(columns["tags"][order], claim.tags)]
    sender = columns["clients"][found]
    honest = is_honest(sender, corrupted)
    if not honest.any():
        return nothing, {}
    figures: Figures = {}
    best = np.zeros(np.count_nonzero(honest))
    place = np.searchsorted(claim.senders, sender).clip(max=len(claim.senders) - 1)
    known = claim.senders[place] == sender
    for kind, fit in claim.fits.items():
        candidates = fit.candidates
        fits = known & fit.relation.holds(place)
        odds = np.where(fits, 1.0 / np.maximum(candidates, 1), 0.0)[honest]
        figures[f"linked_by_{kind}_share"] = float(np.mean(odds))
        figures[f"candidates_by_{kind}_median"] = float(np.median(candidates[honest]))
        best = max(best, odds, key=np.mean)
    chance = 1.0 / max(1, int(np.count_nonzero(is_honest(claim.senders, corrupted))))
    figures["linked_share"] = float(np.mean(best))
    return figures, {"linked_lift": Gain(best - chance, guesses=True)}
