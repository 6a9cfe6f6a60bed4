"""Whole persons in sums of co-occurrences: proofs alone.

The sums G of x x^T over people's rows x say how many people have each pair of items. Every step
below holds for any people that have these sums.

- An item that one person has: its row of G is that person's row. Less the person, G is that of all
  others, where other items have one person left.
- An item i that two persons have: an item that two people have together with i belongs to both. Two
  items that one person has with it belong to one person if no person has only one of these two, and
  to different persons if no person has both. Where these rules connect all such items the two
  persons are told apart.
- An item i whose people all have j except one: that person has every item that occurs more often
with i than with j.
- Items i and j that exactly one person has together: that person has every item that all people of
i, or all people of j, have.
"""

from typing import NamedTuple

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray

_TWO = 2
_TRIED = 64
"""Largest number of other items that are tried beside each item."""


class Persons(NamedTuple):
    """The persons that were found.

    Attributes:
        whole: items of each person whose whole row is known, one int64 array per person.
        parts: items of each person of whom only some are known.
        left: int64[m, m], the sums less the whole persons.
        consistent: whether some set of people can have the sums, as far as was checked.
    """

    whole: list[IntArray]
    parts: list[IntArray]
    left: IntArray
    consistent: bool


def persons_in(counts: IntArray, floor: int = 0) -> Persons:
    """All that is told.

    Args:
        counts: int64[m, m], symmetric; 0 stands for any number below ``floor``; other values are
            exact.
        floor: 0 or 1 where nothing is left out.
    """
    left, whole, parts = counts.copy(), list[IntArray](), list[IntArray]()
    exact, fits = floor <= 1, True
    again = exact
    while again and fits:
        again = False
        for item in np.flatnonzero((left.diagonal() >= 1) & (left.diagonal() <= _TWO)).tolist():
            found, all_told = _of_item(left, item)
            if found is None:
                return Persons([], [], counts, consistent=False)
            if all_told and left[item, item]:
                again = True
                for one in found:
                    left[np.ix_(one, one)] -= 1
                whole += found
        fits = bool((left >= 0).all())
    if not fits:
        return Persons([], [], counts, consistent=False)
    for item in np.flatnonzero(left.diagonal() > 0).tolist():
        found, _ = _of_item(left, item) if exact and left[item, item] == _TWO else ([], True)
        best = max(found or [], key=len, default=np.zeros(0, dtype=np.int64))
        single = _singled_out(left, item, 0 if exact else floor - 1)
        if len(single) >= len(best):
            parts += [single] if len(single) else []
        else:
            parts += found or []
    return Persons(whole, parts, left, consistent=True)


def _of_item(left: IntArray, item: int) -> tuple[list[IntArray] | None, bool]:
    """Items of the one or two people who have an item, and whether these are all of their items.

    None if no set of persons can have such sums; nothing for an item that was subtracted meanwhile.
    """
    row, people = left[item], int(left[item, item])
    if people == 0:
        return [], False
    if people == 1:
        return [np.flatnonzero(row == 1)], True
    both, one = np.flatnonzero(row == _TWO), np.flatnonzero(row == 1)
    if not len(one):
        return [both, both], True
    sides = _sides(left[np.ix_(one, one)])
    if sides is None:
        return None, False
    part, side = sides
    largest = np.bincount(part).argmax()
    mine = part == largest
    found = [np.sort(np.concatenate([both, one[mine & (side == which)]])) for which in (0, 1)]
    return found, bool(mine.all())


def _sides(pairs: IntArray) -> tuple[IntArray, IntArray] | None:
    """Which of an item's two people has each of the items that one of them has.

    Args:
        pairs: int64[k, k], sums of those items.

    Returns:
        (int64[k], number of the part that rules connect it to, int64[k], 0 or 1 within the part);
        None where the rules contradict each other.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - who only reads of attacks need not wait
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    own, size = pairs.diagonal(), len(pairs)
    apart: BoolArray = pairs == 0
    together = pairs == np.minimum.outer(own, own)
    if (apart & together).any():
        return None
    # Every item stands there twice, on one side and on the other.
    linked = np.block([[together, apart], [apart, together]])
    _, label = connected_components(csr_array(linked), directed=False)
    here, there = label[:size], label[size:]
    if (here == there).any():
        return None
    part = np.unique(np.minimum(here, there), return_inverse=True)[1].reshape(-1)
    return part.astype(np.int64), (here > there).astype(np.int64)


def _singled_out(left: IntArray, item: int, hidden: int) -> IntArray:
    """Items of one person whom an item and another one single out, as many as can be found.

    Args:
        left: int64[m, m].
        item: the first of the two.
        hidden: most people behind a 0.
    """
    row, own = left[item], left.diagonal()
    of_all = row == own[item]
    best: BoolArray = np.zeros(len(row), dtype=bool)
    if own[item] == 1:
        return np.flatnonzero(of_all)
    for other in np.flatnonzero(row == 1)[:_TRIED].tolist():
        found = of_all | (left[other] == own[other])
        found[other] = True
        best = found if found.sum() > best.sum() else best
    for other in np.flatnonzero((row == own[item] - 1) & (row > 0))[:_TRIED].tolist():
        most = np.where(left[other] > 0, left[other], hidden)
        found = of_all | (row > most)
        if found.sum() > max(best.sum(), 1):  # more than the item itself
            best = found
    return np.flatnonzero(best)
