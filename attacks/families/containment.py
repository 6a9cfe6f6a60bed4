"""Which uploads an anonymous message fits, computed in blocks of messages."""

import numpy as np

from attacks.scoring.item_sets import ItemSets
from attacks.scoring.links import Fits
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.uploads import RowBlock

_PAIRS_AT_ONCE = 2**21


def containing(sent: ItemSets, heard: ItemSets) -> tuple[IntArray, IntArray]:
    """Messages and uploads that contain them, ascending by both: int64[P] each.

    Args:
        sent: B uploads under names, as sets in any order.
        heard: K anonymous messages, likewise.
    """
    messages, holders = heard.marks(np.int32), sent.marks(np.int32).T.tocsr()
    found = [np.zeros((2, 0), dtype=np.int64)]
    blocks = 1 + len(heard) * len(sent) // _PAIRS_AT_ONCE
    for block in np.array_split(np.arange(len(heard)), blocks):
        shared = messages[block] @ holders
        message = np.repeat(block, np.diff(shared.indptr))
        pairs = np.stack([message, shared.indices])[:, shared.data == heard.lengths[message]]
        found.append(pairs[:, np.lexsort(pairs[::-1])])
    both = np.concatenate(found, axis=1)
    return both[0], both[1]


def fits_by_set(sent: RowBlock, heard: RowBlock, n_items: int, ratio: float) -> tuple[Fits, Fits]:
    """Uploads that contain each message, by their sets alone, and by sets and sizes.

    The few clients that upload the whole catalogue contain every message and, being capped, fit
    every large enough size. They are considered only where no exact size fits.

    Args:
        sent: B uploads under names.
        heard: K messages without.
        n_items: number of items of the catalogue.
        ratio: virtual rows per rated one, or NaN if sizes follow no rule.
    """
    sets = (ItemSets(indptr=e.indptr, items=e.rows, n_items=n_items) for e in (sent, heard))
    messages, uploads = containing(*sets)
    virtual = heard.lengths[messages]
    rated = sent.lengths[uploads] - virtual
    asked, room = np.floor(ratio * rated), n_items - rated
    exact = (rated > 0) & (np.isnan(ratio) | ((asked == virtual) & (asked <= room)))
    capped = (rated > 0) & (asked > room) & (room == virtual)
    sized = exact | (capped & ~np.isin(messages, messages[exact]))
    by_set = Fits(messages, uploads, len(heard))
    return by_set, Fits(messages[sized], uploads[sized], len(heard))
