"""Vectors and rows that were decoded from the sums of a round, and when they count as certain.

A fit alone is not certain. Every tolerance is a bound on rounding errors, propagated to derived
values; a fit within it is evidence of some number of bits (``Spread.bits``). It is certain if these
exceed the bits of the number of candidates searched by 20: then fewer than 2^-20 false fits are
expected in all. Bits are counted relative to the spread of the clients' vectors around their mean,
and separately for each member of a group, since one may be right and the next belong to another
client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import NamedTuple, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

SURE_BITS = 20.0
"""Bits beyond those of the search, so that the probability of any false certain claim is 2^-20.
"""

BUDGET = 2.0**25
"""Sums that are formed or looked up, over all rounds."""

LIGHT = 0.05
"""Relative to the largest rating: a smaller error hardly changes a row."""

UNTOLD = float("nan")
"""Marks an unknown rating."""


class Entry(NamedTuple):
    """A possible vector of a client.

    Attributes:
        who: number of the pseudonym.
        vector: float64[d].
        error: bound of its error, Euclidean.
        origin: places of rows that it was made to fit, which are not evidence for it.
        mate: the other pseudonym made to fit the same rows.
    """

    who: int
    vector: FloatArray
    error: float
    origin: frozenset[int] = frozenset()
    mate: int = -1


class Columns(NamedTuple):
    """What each possible vector would add to an item's row, for each rating.

    Attributes:
        values: float64[M, d].
        errors: float64[M].
        sizes: float64[M], magnitude of the rating's error e, less for vectors shorter than usual.
        entries: int64[M], the entry that it belongs to.
        who: int64[M], its pseudonym.
        levels: float64[M].
    """

    values: FloatArray
    errors: FloatArray
    sizes: FloatArray
    entries: IntArray
    who: IntArray
    levels: FloatArray


Interaction: TypeAlias = tuple[int, int]
"""A pseudonym, and the place of a row whose item it rated."""


@dataclass(slots=True, kw_only=True, eq=False)
class Decoded:
    """The result of a search in a round.

    Args:
        entries: possible vectors by pseudonym.
        directions: float64[d] of each pseudonym without possible vectors.
        sure: pseudonyms that stand for one client for certain.
        solved: rows whose one remaining vector is certain as well.
        ties: rating of each interaction, NaN where several fit; and whether it is certain.
        explained: places of rows whose raters are all found.
        most: raters of the largest sum that was explained for certain.
        tried: number of candidates.
        budget, spent: sums that may be formed or looked up, and those that were.
        beyond: rows that the budget left out.
        odds: by search, how many of its certain fits are expected to be false.
        stages: searches so far.
        needed: bits that a fit of the present search needs to be certain.
        known: pseudonyms known beforehand, the first ones: as many different clients.
        unclear: pseudonyms that cannot be told from another one.
        lacking: what another search would need in order to run, in words.
    """

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    directions: dict[int, FloatArray] = field(default_factory=dict)
    sure: set[int] = field(default_factory=set)
    solved: set[int] = field(default_factory=set)
    ties: dict[Interaction, tuple[float, bool]] = field(default_factory=dict)
    explained: set[int] = field(default_factory=set)
    most: int = 0
    tried: float = 0.0
    budget: float = BUDGET
    spent: float = 0.0
    beyond: int = 0
    odds: dict[int, float] = field(default_factory=dict)
    stages: int = 0
    needed: float = np.inf
    known: int = 0
    unclear: frozenset[int] = frozenset()
    lacking: str = ""

    @property
    def false(self) -> float:
        """How many certain fits are expected to be false, of all searches."""
        return sum(self.odds.values())

    def stage(self, tried: float) -> None:
        """Begin a search among so many candidates.

        The error probability of 2^-20 is divided among all searches: the j-th has a share of 1 / (j
        (j + 1)).
        """
        self.stages += 1
        self.tried += tried
        share = log2(self.stages * (self.stages + 1))
        self.needed = log2(max(1.0, tried)) + SURE_BITS + share

    def holds(self, bits: float) -> bool:
        """Whether a fit of so many bits is certain; if so, its error probability is counted."""
        if bits < self.needed:
            return False
        share = 2.0**-SURE_BITS / (self.stages * (self.stages + 1))
        before = self.odds.get(self.stages, 0.0)
        self.odds[self.stages] = max(before, share * 2.0 ** (self.needed - bits))
        return True

    def add(self, found: Sequence[tuple[FloatArray, float]]) -> int:
        """A new pseudonym with its possible vectors."""
        who = len(self.entries)
        self.entries[who] = [Entry(who, vector, error) for vector, error in found]
        return who

    def settle(self, who: int, entry: Entry | None = None) -> None:
        """Note that a pseudonym is certain, and which of its entries is the right one."""
        self.sure.add(who)
        if entry is not None:
            self.entries[who] = [entry]
        if len(self.entries[who]) == 1:
            self.solved.add(who)

    def tie(self, who: int, row: int, rating: float, *, certain: bool) -> None:
        """Note an interaction; a certain one stays certain."""
        before = self.ties.get((who, row))
        if before is None or certain >= before[1]:
            self.ties[who, row] = (rating, certain)

    def unite(self, who: int, other: int) -> None:
        """Assign all results of another pseudonym to this one."""
        self.entries[other] = []
        for kind in (self.sure, self.solved):
            if other in kind:
                kind.add(who)
                kind.discard(other)
        for _, row in [tie for tie in self.ties if tie[0] == other]:
            rating, certain = self.ties.pop((other, row))
            self.tie(who, row, rating, certain=certain)

    def possible(self, *, alone: bool = False) -> list[Entry]:
        """Possible vectors; ``alone`` leaves out pseudonyms that are unsure and have several."""
        sure = self.sure if alone else self.entries.keys()
        kept = (own for who, own in self.entries.items() if len(own) == 1 or who in sure)
        return [each for own in kept for each in own]

    def evident(self, entries: Sequence[Entry], place: int) -> BoolArray:
        """For which possible vectors a row counts as evidence: bool[E]."""
        sure, unclear = self.sure, self.unclear
        told = (place not in e.origin or e.who in sure or e.mate in sure for e in entries)
        both = zip(entries, told, strict=True)
        return np.array([fits and e.who not in unclear for e, fits in both], dtype=bool)

    def raters(self, counts: IntArray) -> dict[int, tuple[int, ...]]:
        """Pseudonyms of rows, by their place, all of whose raters are known for certain."""
        found: dict[int, list[int]] = {}
        for (who, row), (_, certain) in self.ties.items():
            if certain:
                found.setdefault(row, []).append(who)
        return {row: tuple(who) for row, who in found.items() if len(who) == counts[row]}

    def keep_smaller_side(self, rows: FloatArray, bits: float) -> None:
        """Keep, for each direction, the rows on the side with fewer rows, as far as it is certain.

        Args:
            rows: float64[N, d], all rows.
            bits: evidence of each surplus row on the larger side.
        """
        self.stage(len(self.directions))
        for who, direction in self.directions.items():
            own = [row for of, row in self.ties if of == who]
            ahead = {row: bool(rows[row] @ direction > 0) for row in own}
            few = 2 * sum(ahead.values()) < len(own)
            certain = self.holds(abs(len(own) - 2 * sum(ahead.values())) * bits)
            for row in own:
                del self.ties[who, row]
                if ahead[row] is few:
                    self.ties[who, row] = (UNTOLD, certain)
