"""Which pseudonyms are the same person, and the name of a person if only one is possible."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attacks.families.sums.decoded import Decoded
from attacks.families.sums.round_sums import RoundSums
from attacks.scoring.disclosures import Disclosures
from attacks.scoring.vectors import VECTOR_ERROR
from attacks.view.coalition import Presence
from secure_fedrec.core.arrays import BoolArray, IntArray


class Part(NamedTuple):
    """A round, solved as far as possible; ``names`` are those of its first pseudonyms."""

    round: int
    sums: RoundSums
    found: Decoded
    names: tuple[int, ...] = ()

    def disclosed(self, people: IntArray, names: Mapping[int, int]) -> Disclosures:
        """As a claim; a vector that is not known accurately enough is left out.

        Args:
            people: int64[G], which person each pseudonym is.
            names: names of people, if known.
        """
        found, width = self.found, self.sums.rows.shape[1]
        size = len(found.entries)
        vectors, solved = np.zeros((size, width)), np.zeros(size, dtype=bool)
        for who, entries in found.entries.items():
            if len(entries) == 1:
                vectors[who] = entries[0].vector
                close = entries[0].error < VECTOR_ERROR * np.linalg.norm(vectors[who])
                # A vector known beforehand is not counted as computed.
                solved[who] = close and who in found.solved and who >= len(self.names)
        known = [names.get(person, -1) for person in people.tolist()]
        known[: len(self.names)] = self.names
        ties = [(who, row, *told) for (who, row), told in found.ties.items()]
        table = np.array(ties, dtype=np.float64).reshape(-1, 4)
        return Disclosures(
            round=self.round,
            names=np.array(known, dtype=np.int64),
            vectors=vectors,
            solved=solved,
            whose=table[:, 0].astype(np.int64),
            items=self.sums.items[table[:, 1].astype(np.int64)],
            ratings=table[:, 2],
            certain=table[:, 3] > 0,
            people=people,
        )


def people_of(parts: Sequence[Part], cohorts: Sequence[Hashable]) -> list[IntArray]:
    """Which person each pseudonym is, counted over all rounds: int64[G] each.

    Two rounds with the same cohort have the same clients and the same raters of each item: if all
    raters but one are matched, the last one is matched as well.

    Args:
        parts: the rounds.
        cohorts: participants of each; equal if the same clients came and sent all that they rated.
    """
    people: list[IntArray] = []
    behind: dict[Hashable, frozenset[int]] = {}
    for part, cohort in zip(parts, cohorts, strict=True):
        raters = part.found.raters(part.sums.counts)
        rows = {(cohort, int(part.sums.items[row])): whose for row, whose in raters.items()}
        same, before = dict[int, int](), -1
        while len(same) > before:
            before = len(same)
            for row, whose in rows.items():
                new = [who for who in whose if who not in same]
                left = behind.get(row, frozenset()) - {same[w] for w in whose if w in same}
                if len(new) == len(left) == 1:
                    (same[new[0]],) = left
        first = sum(map(len, people))
        numbers = [same.get(who, first + who) for who in range(len(part.found.entries))]
        behind |= {row: frozenset(numbers[who] for who in whose) for row, whose in rows.items()}
        people.append(np.array(numbers, dtype=np.int64))
    return people


def names_of(
    parts: Sequence[Part], people: Sequence[IntArray], presence: Presence, possible: BoolArray
) -> tuple[dict[int, int], BoolArray]:
    """The only client that a person can be, if one is left, and the items of that client.

    Args:
        parts: the rounds; those without a cohort are not used.
        people: which person each of their pseudonyms is.
        presence: the participants.
        possible: bool[G, m], what each of these clients can have rated.
    """
    names: dict[int, int] = {}
    can: dict[int, BoolArray] = {}
    items: dict[int, list[int]] = {}
    for part, numbers in zip(parts, people, strict=True):
        if part.round not in presence.rounds:
            continue
        there = presence.present[presence.rounds.index(part.round)]
        names |= {int(numbers[who]): name for who, name in enumerate(part.names)}
        for (who, row), (_, certain) in part.found.ties.items():
            if certain:
                person, item = int(numbers[who]), int(part.sums.items[row])
                can[person] = can.get(person, there) & there & possible[:, item]
                items.setdefault(person, []).append(item)
    unnamed = {p: np.flatnonzero(marks) for p, marks in can.items() if p not in names}
    places = {person: int(who[0]) for person, who in unnamed.items() if len(who) == 1}
    came = {name: place for place, name in enumerate(presence.clients.tolist())}
    places |= {p: came[names[p]] for p in items if names.get(p) in came}
    rated = np.zeros_like(possible)
    for person, place in places.items():
        rated[place, items[person]] = True
    return names | {person: int(presence.clients[place]) for person, place in places.items()}, rated
