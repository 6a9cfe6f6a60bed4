"""A server that tells clients different stories of who shared: every state of a small ring.

Each place of the ring holds one of

- *corrupt*: works with the server: it signs anything, and gives both shares of every neighbour;
- *dropped*: honest, among the sharers and not among the survivors;
- *absent*: honest, and among the sharers of nobody's view;
- *inside*: honest survivor of the group whose sum is wanted, told the common view;
- *divergent*: the same, but told of other sharers;
- *outside*: honest survivor that is not of the group, told the common view.

The common view has all but the absent as sharers, and the survivors are all but the absent and the
dropped. A divergent client is told of these sharers less those of its neighbours whose pair masks
would stay on (the outside ones, and dropped ones whose mask seed the server cannot restore); with
fewer it could only refuse more often, since every rule asks for at least so many. For the same
reason corrupt clients share and survive, and every honest client that can be made to reveal is.

Who accepts what it was told is read in the tables (``settings``). Those with the common view sign
one statement; divergent ones sign others, which find no quorum. If the common one finds it, the
server learns the self-mask seed of who revealed it or of whom t shares are revealed, and the mask
seed of dropped clients of whom t shares are.

*Opens.* Uploads are linear in vectors, self masks and pair masks, masks are independent and
uniform. A sum of uploads is free of unknown masks exactly if each member's self mask is known, and
every pair mask of a member is known or on the uploads of two members (where it cancels). So what
the server can compute are the sums over connected components of the graph of the unknown pair
masks, if all self masks in them are known and no unknown pair mask is on one upload alone; and
their combinations. *Inside* and *divergent* clients together are open if they are such components.

A state is an *attack* if the group is not empty, is open, and is not the honest survivors as a
whole, or if these are open and the survivors are fewer than ``min_survivors``.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from tests.model_check.settings import SELF, Tables

__all__ = ["KINDS", "SharerState", "Verdict", "ones", "opens", "orbit", "search_sharers"]

KINDS: Final = ("single victim", "group", "mixed cut", "cut", "small sum")
"""Attacks: a divergent client alone; several; with inside ones; inside ones alone; all of few."""

_KEPT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SharerState:
    """One attack: sets of ring places.

    Args:
        kind: of ``KINDS``.
        unknown: the dropped whose mask seeds stay unknown.
        fakes: whether the absent are told to be survivors.
    """

    kind: str
    corrupt: int
    dropped: int
    absent: int
    inside: int
    divergent: int
    outside: int
    unknown: int
    fakes: bool

    @property
    def group(self) -> int:
        """Whose sum is wanted."""
        return self.inside | self.divergent

    @property
    def allowed(self) -> tuple[int, ...]:
        """The sums that may open: of the honest survivors."""
        return (self.inside | self.divergent | self.outside,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a search found.

    Args:
        states: states of the model, all decided.
        attacks: number of attacks by kind.
        examples: some of them.
    """

    states: int
    attacks: dict[str, int]
    examples: tuple[SharerState, ...]


def opens(tables: Tables, state: SharerState) -> tuple[bool, SharerState]:
    """Whether the group of any one state is open, and the state with its unknown seeds."""
    n, full = tables.setting.n, 2**tables.setting.n - 1
    gone = state.dropped | state.absent
    told = full & ~(state.dropped if tables.fakes else gone)
    common = full & ~state.absent
    if not (state.group and tables.survivors[told] and tables.sharers[common]):
        return False, state
    row = np.array(
        [
            state.corrupt,
            state.dropped,
            state.absent,
            state.inside,
            state.divergent,
            state.outside,
            0,
        ]
    )
    found = _attack(
        n,
        tables.setting.threshold,
        tables.near,
        tables.sharers,
        tables.live,
        tables.agreed,
        tables.due,
        told,
        row,
    )
    return bool(found), replace(state, unknown=int(row[6]))


def search_sharers(tables: Tables) -> Verdict:
    """Decide every state; states that are rotations of one another are decided once."""
    setting = tables.setting
    counts = np.zeros(len(KINDS), dtype=np.int64)
    kept = np.zeros((len(KINDS), _KEPT, 7), dtype=np.int64)
    _search(
        setting.n,
        setting.threshold,
        setting.min_survivors,
        tables.near,
        tables.survivors,
        tables.sharers,
        tables.live,
        tables.agreed,
        tables.due,
        tables.corrupt,
        tables.fakes,
        counts,
        kept,
    )
    examples = tuple(
        SharerState(
            kind=kind,
            corrupt=row[0],
            dropped=row[1],
            absent=row[2],
            inside=row[3],
            divergent=row[4],
            outside=row[5],
            unknown=row[6],
            fakes=tables.fakes,
        )
        for index, kind in enumerate(KINDS)
        for row in kept[index][(kept[index, :, 3] | kept[index, :, 4]) != 0].tolist()
    )
    return Verdict(
        states=sum(5 ** (setting.n - int(mask).bit_count()) for mask in tables.corrupt),
        attacks={kind: int(count) for kind, count in zip(KINDS, counts, strict=True) if count},
        examples=examples,
    )


@compiled_loop
def ones(mask: int) -> int:
    """Members of a set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled_loop
def orbit(n: int, mask: int) -> int:
    """Distinct rotations of a set, or 0 if one of them is a smaller number."""
    full, turned = (1 << n) - 1, mask
    for step in range(1, n + 1):
        turned = ((turned << 1) | (turned >> (n - 1))) & full
        if turned < mask:
            return 0
        if turned == mask:
            return step
    return n


@compiled_loop
def _attack(
    n: int,
    threshold: int,
    near: IntArray,
    sharers: BoolArray,
    live: BoolArray,
    agreed: BoolArray,
    due: IntArray,
    told: int,
    row: IntArray,
) -> bool:
    """Whether the group is open; ``row`` holds the sets, and is given those of unknown seeds."""
    corrupt, dropped, absent = row[0], row[1], row[2]
    inside, divergent, outside = row[3], row[4], row[5]
    common_view = ((1 << n) - 1) & ~absent
    helpers = corrupt  # who gives shares
    for place in range(n):
        bit = 1 << place
        if (inside | outside) & bit:
            uploads = live[place, common_view]
            if uploads and live[place, told]:
                helpers |= bit
            elif inside & bit and not uploads:
                return False
    if not agreed[ones(helpers & told)]:
        helpers = corrupt
    unknown = 0
    for place in range(n):
        shares = ones(near[place] & helpers)
        if dropped >> place & 1 and shares < threshold:
            unknown |= 1 << place
    row[6] = unknown
    for place in range(n):
        bit = 1 << place
        if inside & bit:
            if near[place] & (unknown | outside):
                return False
            if helpers & bit == 0:
                given = helpers if due[1, 1] == SELF else corrupt
                if ones(near[place] & given) < threshold:
                    return False
        elif divergent & bit:
            view = common_view & ~(near[place] & (outside | unknown))
            if view == common_view:  # an inside client by another name
                return False
            given = helpers if due[1, 0] == SELF else corrupt
            if ones(near[place] & given) < threshold:
                return False
            if not sharers[view] or not live[place, view]:
                return False
    return True


@compiled_loop
def _search(
    n: int,
    threshold: int,
    floor: int,
    near: IntArray,
    survivors: BoolArray,
    sharers: BoolArray,
    live: BoolArray,
    agreed: BoolArray,
    due: IntArray,
    corrupt_sets: IntArray,
    fakes: bool,
    counts: IntArray,
    kept: IntArray,
) -> None:
    full = (1 << n) - 1
    row = np.zeros(7, dtype=np.int64)
    for corrupt in corrupt_sets:
        turns = 1
        if corrupt:
            turns = orbit(n, corrupt)
            if turns == 0:
                continue
        honest = full & ~corrupt
        gone = honest + 1
        while gone:
            gone = (gone - 1) & honest
            weight = turns
            if corrupt == 0:
                weight = orbit(n, gone)
            if weight == 0:
                if gone == 0:
                    break
                continue
            absent = gone
            while True:
                told = full & ~gone
                if fakes:
                    told |= absent
                if survivors[told] and sharers[full & ~absent]:
                    row[0], row[1], row[2] = corrupt, gone & ~absent, absent
                    _groups(
                        n, threshold, floor, near, sharers, live, agreed, due, told,
                        full & ~gone, weight, row, counts, kept,
                    )  # fmt: skip
                if absent == 0:
                    break
                absent = (absent - 1) & gone
            if gone == 0:
                break


@compiled_loop
def _groups(
    n: int,
    threshold: int,
    floor: int,
    near: IntArray,
    sharers: BoolArray,
    live: BoolArray,
    agreed: BoolArray,
    due: IntArray,
    told: int,
    there: int,
    weight: int,
    row: IntArray,
    counts: IntArray,
    kept: IntArray,
) -> None:
    """Every way to part the honest survivors into inside, divergent and outside ones."""
    honest = there & ~row[0]
    outside = honest
    while True:
        rim = 0
        for place in range(n):
            if outside >> place & 1:
                rim |= near[place]
        # A neighbour of an outside client that has the common view keeps a mask with it.
        rim &= honest & ~outside
        free = honest & ~outside & ~rim
        extra = free if outside else 0
        while True:
            divergent = rim | extra
            inside = honest & ~outside & ~divergent
            row[3], row[4], row[5] = inside, divergent, outside
            if (
                inside | divergent
                and (outside or ones(there) < floor)
                and _attack(n, threshold, near, sharers, live, agreed, due, told, row)
            ):
                if outside == 0:
                    kind = 4
                elif divergent == 0:
                    kind = 3
                elif inside:
                    kind = 2
                elif divergent & (divergent - 1):
                    kind = 1
                else:
                    kind = 0
                at = counts[kind]
                counts[kind] += weight
                # Thinned out, so that examples come from everywhere.
                size = kept.shape[1]
                slot = at if at < size else (at * 2654435761) % (8 * size)
                if slot < size:
                    kept[kind, slot] = row
            if extra == 0:
                break
            extra = (extra - 1) & free
        if outside == 0:
            break
        outside = (outside - 1) & honest
