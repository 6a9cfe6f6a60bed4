"""Compare readable uploads with their sum, which is the rater's row if there is one rater."""

from collections.abc import Sequence

import numpy as np

from attacks.base import Claims
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.item_sets import ItemSets, keys_of, listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import others_sum, others_uploads, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import View


def told_by_words(view: View, knowledge: Knowledge, rounds: Sequence[int]) -> Claims:
    """Compare the uploads of every round with its sums; proofs hold for all rounds."""
    n_items = int(view.public["n_items"])
    senders = [others_uploads(view, r, payload=True)[0].senders.ids for r in rounds]
    clients = np.unique(np.concatenate(senders))
    listed, tail = ItemSets.empty(len(clients), n_items), np.zeros(n_items, dtype=bool)
    keys: list[list[IntArray]] = [[np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]]
    for round_ in rounds:
        uploads, block = others_uploads(view, round_, payload=True)
        total = others_sum(view, round_, payload=True)
        seen, place = listed_rows(clients, uploads.senders.ids, block, n_items)
        counts = np.zeros(n_items, dtype=np.int64) if total.counts is None else total.counts
        for proven, found in zip(_compare(block, total, counts), keys, strict=True):
            found.append(keys_of(seen)[place[proven]])
        listed = listed.united(seen)
        tail |= counts == 1
    real, fake = (np.isin(keys_of(listed), np.concatenate(each)) for each in keys)
    fake &= knowledge.exact
    sure = real & knowledge.exact
    whose, items = clients[listed.owners[sure]], listed.items[sure].astype(np.int64)
    told = Disclosures.named(rounds[0], whose, items)
    return Claims(
        rounds=tuple(rounds),
        made=(*verdicts_on(clients, listed, real, fake), DisclosureClaim(parts=(told,))),
        details={
            "tail_items": int(tail.sum()),
            "rows_proven_real": int(real.sum()),
            "rows_proven_virtual": int(fake.sum()),
        },
    )


def verdicts_on(
    clients: IntArray, listed: ItemSets, real: BoolArray, virtual: BoolArray
) -> tuple[RatedSetClaim, UnmaskedClaim]:
    """Rows that are seen, int64[B] and ragged, and which of them are proven: bool[K] each."""
    scores = np.where(real, 2.0, np.where(virtual, 0.5, 1.0))  # 0 unseen, 1 undecided
    claim = RatedSetClaim.of_listed(clients, listed, scores, real)
    proven = Rows.marked(listed, virtual)
    return claim, UnmaskedClaim(clients=clients, visible=claim.visible, proven=proven)


def _compare(block: RowBlock, total: RowBlock, counts: IntArray) -> tuple[BoolArray, BoolArray]:
    """Rows proven real and rows proven virtual: bool[N] each."""
    of_item = counts[block.rows]
    equal = (of_item == 1) & np.all(words_of(block) == words_of(total)[block.rows], axis=1)
    # In a coarse ring two uploads can hold the same words: then neither is proven real.
    alike = np.bincount(block.rows[equal], minlength=len(counts))
    return equal & (alike[block.rows] == 1), ~equal & (of_item <= 1)
