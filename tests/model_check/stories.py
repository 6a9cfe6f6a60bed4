"""A server that tells clients different stories of who survived: every state of a small ring.

All clients share, and all are told so. Each honest client is in none, the first, the second or both
of two sets of survivors; who is in a set can be told it (nobody agrees to a sum without itself),
who is in both is told one of them, or, where clients answer repeatedly, both. Corrupt clients are
in both sets and sign both. On a sparse graph a committee may be drawn, any that has so few corrupt
members as its quorum withstands; then its members alone sign, and all reveal. Telling fewer
clients, or leaving corrupt ones out, would only make rules harder to meet. Two stories are enough:
among honest clients that sign once no two sets find a quorum, so a third is only more of what the
quorum excludes.

What opens is a matter of the graph of unknown pair masks, as in ``sharers``: the sums over its
components whose self masks are all known. A state is an *attack* if such a component is not
the honest survivors of the one story that found a quorum.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from tests.model_check.settings import MASK, SELF, Tables
from tests.model_check.sharers import ones, orbit

__all__ = ["StoryState", "StoryVerdict", "search_stories"]

_KEPT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryState:
    """One attack: sets of ring places.

    Args:
        corrupt: corrupt clients.
        stories: the two sets of survivors, corrupt ones included.
        listeners: the honest clients that are told each story.
        opened: members of one open sum.
        committee: who signs.
    """

    corrupt: int
    stories: tuple[int, int]
    listeners: tuple[int, int]
    opened: int
    committee: int

    @property
    def group(self) -> int:
        """Whose sum is wanted."""
        return self.opened

    @property
    def allowed(self) -> tuple[int, ...]:
        """The sums of which one may open: of the honest survivors of either story."""
        return tuple(story & ~self.corrupt for story in self.stories)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryVerdict:
    """States that were decided, attacks among them, and some of these."""

    states: int
    attacks: int
    examples: tuple[StoryState, ...]


def search_stories(tables: Tables) -> StoryVerdict:
    """Decide every state; states that are rotations of one another are decided once."""
    setting = tables.setting
    totals = np.zeros(2, dtype=np.int64)
    kept = np.zeros((_KEPT, 8), dtype=np.int64)
    accepted = np.flatnonzero(tables.survivors).astype(np.int64)
    _search(
        setting.n,
        setting.threshold,
        tables.near,
        accepted,
        tables.live,
        tables.agreed,
        tables.committees,
        2 * setting.quorum - (setting.committee or 0),
        tables.due,
        tables.corrupt,
        tables.repeats,
        totals,
        kept,
    )
    examples = tuple(
        StoryState(
            corrupt=row[0],
            stories=(row[1], row[2]),
            listeners=(row[3], row[4]),
            opened=row[5],
            committee=row[6],
        )
        for row in kept[kept[:, 5] != 0].tolist()
    )
    return StoryVerdict(states=int(totals[0]), attacks=int(totals[1]), examples=examples)


@compiled_loop
def _opened(
    n: int, threshold: int, near: IntArray, agreed: BoolArray, due: IntArray, row: IntArray
) -> int:
    """A component that opens and should not, or 0."""
    corrupt, first, second = row[0], row[1], row[2]
    one = row[3] if agreed[ones((row[3] | corrupt) & row[7])] else 0
    other = row[4] if agreed[ones((row[4] | corrupt) & row[7])] else 0
    if not one | other:
        return 0
    honest = ((1 << n) - 1) & ~corrupt
    clear = (one | other) | corrupt  # self masks that are known
    known = corrupt  # mask seeds that are known
    for place in range(n):
        bit = 1 << place
        shares_self = shares_mask = corrupt
        if due[int(first & bit != 0), 1] == SELF:
            shares_self |= one
        if due[int(second & bit != 0), 1] == SELF:
            shares_self |= other
        if due[int(first & bit != 0), 1] == MASK:
            shares_mask |= one
        if due[int(second & bit != 0), 1] == MASK:
            shares_mask |= other
        if ones(near[place] & shares_self) >= threshold:
            clear |= bit
        if ones(near[place] & shares_mask) >= threshold:
            known |= bit
    legitimate = 0
    if one and not other:
        legitimate = first & honest
    elif other and not one:
        legitimate = second & honest
    left, found = honest, 0
    while left:
        component = reached = left & -left
        while reached:
            grown = 0
            for place in range(n):
                if reached >> place & 1 and known >> place & 1 == 0:
                    grown |= near[place]
            reached = grown & honest & ~known & ~component
            component |= reached
        left &= ~component
        if component & ~clear == 0 and component != legitimate:
            # The sum of one story is less of an example than what no story says.
            if component not in (first & honest, second & honest):
                return int(component)
            found = component
    return int(found)


@compiled_loop
def _search(
    n: int,
    threshold: int,
    near: IntArray,
    accepted: IntArray,
    live: BoolArray,
    agreed: BoolArray,
    committees: IntArray,
    broken: int,
    due: IntArray,
    corrupt_sets: IntArray,
    repeats: bool,
    totals: IntArray,
    kept: IntArray,
) -> None:
    row = np.zeros(8, dtype=np.int64)
    for corrupt in corrupt_sets:
        for first in accepted:
            turns = orbit(n, corrupt if corrupt else first)
            if turns == 0 or first & corrupt != corrupt:
                continue
            for second in accepted:
                if second & corrupt != corrupt or second == first:
                    continue
                both = first & second & ~corrupt
                able_one = able_other = 0
                for place in range(n):
                    bit = 1 << place
                    if first & ~corrupt & bit and live[place, first]:
                        able_one |= bit
                    if second & ~corrupt & bit and live[place, second]:
                        able_other |= bit
                for committee, signing in committees:
                    if committee != (1 << n) - 1 and ones(committee & corrupt) >= broken:
                        continue  # the event *committee* of the proof
                    row[6], row[7] = committee, signing
                    told = both
                    while True:  # who of those in both is told the first story
                        row[0], row[1], row[2] = corrupt, first, second
                        row[3] = able_one & (~both | told)
                        row[4] = able_other & (~both | (both & ~told))
                        if repeats:
                            row[3], row[4] = able_one, able_other
                        totals[0] += turns
                        opened = _opened(n, threshold, near, agreed, due, row)
                        if opened:
                            row[5] = opened
                            at = totals[1] // turns
                            totals[1] += turns
                            size = kept.shape[0]
                            slot = at if at < size else (at * 2654435761) % (64 * size)
                            if slot < size and (at >= size or kept[slot, 5] == 0):
                                kept[slot] = row
                        if told == 0 or repeats:
                            break
                        told = (told - 1) & both
