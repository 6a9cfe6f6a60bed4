"""Which uploads a message without a name fits: counted message by message, never all pairs at once.

A message starts from the uploads with its rarest item; each further item leaves fewer of them.
"""

from dataclasses import dataclass
from math import floor
from typing import Final

import numpy as np

from attacks.scoring.links import Fits
from attacks.scoring.loops import places
from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.uploads import RowBlock

_OUTSIDE: Final = -1
_OTHER_SIZE, _EXACT, _CAPPED = 0, 1, 2
"""How the size of an upload goes with that of a message that it contains."""


@compiled_loop
def size_class(sent: int, heard: int, ratio: float, n_items: int) -> int:
    """How an upload's rows go with a message's: by the ratio, capped by the catalogue, or not."""
    rated = sent - heard
    if rated <= 0:
        return 0
    if not ratio >= 0:
        return 1
    asked, room = floor(ratio * rated), n_items - rated
    if asked > room:
        return 2 if room == heard else 0
    return 1 if asked == heard else 0


@compiled_loop
def count_containing(
    ends: IntArray,
    items: IntArray,
    holder_ends: IntArray,
    holders: IndexArray,
    sizes: IntArray,
    ratio: float,
    n_items: int,
    candidates: IndexArray,
    counts: IntArray,
    firsts: IntArray,
) -> None:
    """Uploads that contain each message, and of these the ones of each class of size.

    Message k has ``items[ends[k]:ends[k + 1]]``, the rarest first; uploads with item i are
    ``holders[holder_ends[i]:holder_ends[i + 1]]``, ascending. ``counts[k, 0]`` is of all,
    ``counts[k, c]`` of class c; ``firsts`` are the lowest. ``candidates`` is scratch.
    """
    for message in range(len(ends) - 1):
        found, heard = 0, ends[message + 1] - ends[message]
        for place in range(ends[message], ends[message + 1]):
            low, high = holder_ends[items[place]], holder_ends[items[place] + 1]
            if place == ends[message]:
                found = high - low
                candidates[:found] = holders[low:high]
                continue
            kept = 0
            for candidate in range(found):
                upload = candidates[candidate]
                low += places(holders, low, high, upload, False)
                if low < high and holders[low] == upload:
                    candidates[kept] = upload
                    kept += 1
            found = kept
        for candidate in range(found):
            upload = candidates[candidate]
            kind = size_class(sizes[upload], heard, ratio, n_items)
            if counts[message, 0] == 0:
                firsts[message, 0] = upload
            counts[message, 0] += 1
            if kind > 0:
                if counts[message, kind] == 0:
                    firsts[message, kind] = upload
                counts[message, kind] += 1


@compiled_loop
def class_of_pairs(
    heard: Ragged, sent: Ragged, uploads: IntArray, ratio: float, n_items: int, kinds: IntArray
) -> None:
    """Class of size of one upload per message; -1 where it does not contain the message."""
    (ends, items), (sent_ends, rows) = heard, sent
    for message in range(len(uploads)):
        low, high = sent_ends[uploads[message]], sent_ends[uploads[message] + 1]
        size = high - low
        kinds[message] = size_class(size, ends[message + 1] - ends[message], ratio, n_items)
        for place in range(ends[message], ends[message + 1]):
            low += places(rows, low, high, items[place], False)
            if low == high or rows[low] != items[place]:
                kinds[message] = -1
                break


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Containment:
    """Uploads that contain each message, by their sets alone and with their sizes.

    Args:
        sent: B uploads under names.
        heard: K messages without.
        n_items: of the catalogue.
        ratio: virtual rows per rated one, or NaN if sizes follow no rule.
    """

    sent: RowBlock
    heard: RowBlock
    n_items: int
    ratio: float

    def fits(self) -> tuple[Fits, Fits]:
        """By the set, and by set and size.

        The few clients that upload the whole catalogue contain every message and, being capped, fit
        every large enough size. They are considered only where no exact size fits.
        """
        counts, firsts = self._counted()
        kind = np.where(counts[:, _EXACT] > 0, _EXACT, _CAPPED)
        every = np.arange(len(kind))
        whole, sized = Contained(within=self, kinds=None), Contained(within=self, kinds=kind)
        by_set = Fits(candidates=counts[:, 0], first=firsts[:, 0], relation=whole)
        counts, firsts = counts[every, kind], firsts[every, kind]
        return by_set, Fits(candidates=counts, first=firsts, relation=sized)

    def _counted(self) -> tuple[IntArray, IntArray]:
        sent, heard, messages = self.sent, self.heard, len(self.heard)
        popularity = np.bincount(sent.rows, minlength=self.n_items)
        by_item = np.argsort(sent.rows, kind="stable")
        uploads = np.repeat(np.arange(len(sent), dtype=np.int32), sent.lengths)
        owners = np.repeat(np.arange(messages), heard.lengths)
        rarest_first = np.lexsort((popularity[heard.rows], owners))
        counts, firsts = (np.zeros((messages, 3), dtype=np.int64) for _ in range(2))
        count_containing(
            heard.indptr,
            heard.rows[rarest_first].astype(np.int64),
            bounds_of(popularity),
            uploads[by_item],
            sent.lengths,
            self.ratio,
            self.n_items,
            np.empty(int(popularity.max(initial=0)), dtype=np.int32),
            counts,
            firsts,
        )
        return counts, firsts

    def kinds(self, uploads: IntArray) -> IntArray:
        """Class of size of one upload per message, -1 outside: int64[K] -> int64[K]."""
        kinds = np.empty(len(uploads), dtype=np.int64)
        heard, sent = (Ragged(each.indptr, each.rows) for each in (self.heard, self.sent))
        class_of_pairs(heard, sent, uploads, self.ratio, self.n_items, kinds)
        return kinds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contained:
    """Uploads that contain a message; given ``kinds`` int64[K], of the message's class of size."""

    within: Containment
    kinds: IntArray | None

    def holds(self, places: IntArray) -> BoolArray:
        """Whether an upload does, one place per message: int64[K] -> bool[K]."""
        found = self.within.kinds(places)
        return found > _OUTSIDE if self.kinds is None else found == self.kinds
