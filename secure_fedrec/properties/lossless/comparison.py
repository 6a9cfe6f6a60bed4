"""What a comparison with plain uploads is relative to, and its outcome."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.lossless.explanation import Explanation


def lossless_words(*, reports_dropped: bool, sat_out: bool) -> str:
    """The words for a claim that holds, relative to what was left out."""
    relative = ["what it reports"] if reports_dropped else []
    relative += ["those who take part"] if sat_out else []
    return "lossless" + (f" relative to {' and '.join(relative)}" if relative else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a protocol leaves out by its own rules; by default nothing.

    The tester states this, not the tested stack. Leaving out something that is not stated here is a
    difference; leaving out something that is stated makes the outcome relative.

    Args:
        taking_part: which of the invited clients (int64[c], ascending) take part, by the protocol's
            rule, implemented independently; None for all.
        drops_reports: whether the cloak may leave rows out (SDCF).
    """

    taking_part: Callable[[IntArray], IntArray] | None = None
    drops_reports: bool = False

    def due(self, invited: IntArray) -> IntArray:
        """Clients that must take part: int64[P], ascending.

        Raises:
            ConfigError: the rule names a client that was not invited, or a client twice.
        """
        if self.taking_part is None:
            return np.sort(invited)
        due = np.sort(np.asarray(self.taking_part(invited.copy()), dtype=np.int64))
        if not np.isin(due, invited).all() or len(np.unique(due)) != len(due):
            raise ConfigError("scope.taking_part", due.tolist(), "must be some of the invited")
        return due


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outcome of running a stack beside plain sums of the algorithm's own uploads.

    All numbers are over all rounds compared.

    Args:
        rounds: rounds compared.
        holds: whether every upload, sum, count, bag and table was equal in every bit, and there
            was something to compare.
        first_difference: the first differing place, in words; None without one.
        blames: "the stack" or "the algorithm", whichever caused the difference; None without one.
        largest_difference: largest absolute difference of the last compared public tables.
        invited: clients invited, counted once per round.
        taken: of those, clients that took part.
        exempt: of those, clients that were exempt from the cloak.
        rows: rows of the plain uploads of the clients that must take part.
        unreported: of those, rows that the cloak left out.
        virtual_rows: further rows that their clients sent and marked as virtual.
        compared: rows that are summed and vectors that are collected, without those that are zero
            in the ring; at 0 nothing was tested.
        explanation: the clients whose rows make up the whole difference, and what happened to these
            rows; None if no clients' rows do so exactly, or if they may do so by chance.
    """

    rounds: int
    holds: bool
    first_difference: str | None
    blames: str | None
    largest_difference: float
    invited: int
    taken: int
    exempt: int
    rows: int
    unreported: int
    virtual_rows: int
    compared: int
    explanation: Explanation | None = None

    @property
    def vacuous(self) -> bool:
        """Whether there was no difference because nothing was compared."""
        return not self.holds and self.first_difference is None

    @property
    def verdict(self) -> str:
        """The outcome in words: lossless, and relative to what."""
        if self.vacuous:
            return "nothing compared"
        if not self.holds:
            return f"not lossless: {self.blames}"
        return lossless_words(
            reports_dropped=self.unreported > 0, sat_out=self.taken < self.invited
        )

    @property
    def counts(self) -> str:
        """What was compared, in numbers."""
        parts = (
            f"{self.invited:,} invited, {self.taken:,} taken, {self.exempt:,} exempt",
            f"{self.rows:,} rows, {self.unreported:,} of them not reported",
            f"{self.virtual_rows:,} virtual rows",
        )
        return "; ".join(parts)

    def __str__(self) -> str:
        """Verdict, place and numbers."""
        if self.vacuous:
            why = "every upload was empty or zero in the ring"
            why = why if self.taken else "no client took part in any round"
            return f"nothing was compared over {self.rounds} rounds: {why} ({self.counts})"
        if self.first_difference is not None:
            return f"{self.verdict}: {self.first_difference} ({self.counts})"
        return f"{self.verdict}: {self.rounds} rounds, bit for bit ({self.counts})"
