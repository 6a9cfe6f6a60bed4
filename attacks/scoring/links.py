"""Senders of anonymous messages: the claim, its figure, and how it is judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attacks.scoring.gains import Figures, Gain, Gains
from attacks.scoring.truth import Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.core.kernels import bounds_of


@dataclass(frozen=True, slots=True, eq=False)
class Fits:
    """Which senders fit which message.

    Args:
        messages: int64[P], the message of each pair that fits, ascending.
        places: int64[P], the place of its sender, ascending for each message.
        count: number of messages, K.
    """

    messages: IntArray
    places: IntArray
    count: int

    @property
    def candidates(self) -> IntArray:
        """int64[K], how many senders fit each message."""
        return np.bincount(self.messages, minlength=self.count)

    @property
    def first(self) -> IntArray:
        """int64[K], the place of the first fit; meaningless without a fit."""
        return np.append(self.places, 0)[bounds_of(self.candidates)[:-1]]

    def holds(self, places: IntArray) -> BoolArray:
        """Whether a sender fits, one place per message: int64[K] -> bool[K]."""
        width = 1 + max(int(self.places.max(initial=0)), int(places.max(initial=0)))
        asked = np.arange(self.count) * width + places
        return np.isin(asked, self.messages * width + self.places)


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
        """Evidence -> int64[K], the only client that fits; -1 if none or several fit."""
        return {
            kind: np.where(fit.candidates == 1, self.senders[fit.first], -1)
            for kind, fit in self.fits.items()
        }

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the true senders: share of messages linked, by each kind of evidence.

        Where several clients fit a message, the adversary guesses among them: the message counts by
        the odds of naming its sender, the expected top-1 accuracy with ties broken at random.

        - ``linked_share``: by the evidence that names most; ``linked_lift``: beyond one over the
          senders.
        """
        nothing = Scored(figures={"linked_share": None}, units={})
        columns = case.truth.recorded.columns(self.round, "noise-origins")
        if columns is None:
            yield nothing
            return
        order = np.argsort(columns["tags"])
        found = order[np.searchsorted(columns["tags"][order], self.tags)]
        sender = columns["clients"][found]
        honest = is_honest(sender, case.corrupted)
        if not honest.any():
            yield nothing
            return
        figures: Figures = {}
        best = np.zeros(np.count_nonzero(honest))
        place = np.searchsorted(self.senders, sender).clip(max=len(self.senders) - 1)
        known = self.senders[place] == sender
        for kind, fit in self.fits.items():
            candidates = fit.candidates
            fits = known & fit.holds(place)
            odds = np.where(fits, 1.0 / np.maximum(candidates, 1), 0.0)[honest]
            figures[f"linked_by_{kind}_share"] = float(np.mean(odds))
            figures[f"candidates_by_{kind}_median"] = float(np.median(candidates[honest]))
            best = max(best, odds, key=np.mean)
        chance = 1.0 / max(1, int(np.count_nonzero(is_honest(self.senders, case.corrupted))))
        figures["linked_share"] = float(np.mean(best))
        gains: Gains = {"linked_lift": Gain(best - chance, guesses=True)}
        yield Scored(figures=figures, gains=gains, units={})
