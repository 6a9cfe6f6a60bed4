"""What a client's examples contain, from the rows of embedding tables that its upload changes.

The gradient of a table of vectors is zero in every row that no example looks up. So one upload
tells the items that a client rated, or the characters of all texts of a writer. Sampled negatives
hide among the touched rows, but they pull the other way: the change of a row is
(y - p) times a direction that hardly depends on the item.
"""

import numpy as np

from attacks.base import Claim, Claims, Control, OneRound, SuiteAttack, need
from attacks.families.item_changes import ItemChanges, along_main, need_outnumbered, touched
from attacks.families.split.flat_uploads import FlatUploads
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.sets import SetClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.wire import View


class TouchedRows(OneRound, SuiteAttack):
    """Reads which rows of every embedding table a client has changed.

    Game: Given one upload of a client, tell which items (or characters) its examples contain.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round; rows that are changes of an item table, or names and
        shapes of the federated parameters and a federated embedding table.
    Statistic: Length of the change of every row. The guessed set is all rows that changed or, if
        all did, those five median absolute deviations above the median.
    Reference: Reading touched rows, on a dense upload.
    Limits: Does not tell how often a row was used, nor sampled negatives from positives. If a
        regulariser or optimiser moves untouched rows, only the ranking is left, unless it is a
        decay common to all rows of a table that the adversary knows, which is subtracted.
    """

    name = "touched-rows"
    control = Control(measure="exact_set_share", on="split", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the rows used by every client of the first usable round."""
        changes = ItemChanges.read(view)
        if changes is not None:
            moved = _rated(changes, changes.sizes, touched(changes.sizes))
            return Claims(rounds=(changes.round,), made=(moved,))
        uploads = FlatUploads.read(view)
        clients, made = uploads.clients, list[Claim]()
        for table in need(uploads.architecture.tables(), "no embedding table is federated"):
            sizes = uploads.each(table, row_changes)
            # Where nobody states which table is of items, rows are told by their numbers alone.
            if table.name == view.public.get("item_table"):
                made.insert(0, _rated(uploads, sizes, touched(sizes)))
                continue
            told = touched(sizes)
            made.append(SetClaim(name=table.name, clients=clients, scores=sizes, predicted=told))
        return Claims(rounds=(uploads.round,), made=tuple(made))


class SignedRows(OneRound, SuiteAttack):
    """Tells a client's positive items from its sampled negatives.

    Game: Given one upload of a client that trains on positives and sampled negatives, tell its
        positive items from all others.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round; rows that are changes of an item table, or names and
        shapes of the federated parameters; and the number of negatives per positive.
    Statistic: Projection of the change of every item's row on the main direction of all of them;
        the side with fewer items is that of the positives, as negatives outnumber them.
    Reference: Signs of item gradients in federated recommenders with sampled negatives.
    Limits: With at most one negative per positive the sides cannot be told apart. Once a model fits
        its positives, the direction in a single round may have either sign.
    """

    name = "signed-rows"
    control = Control(measure="auc", on="implicit", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the positives of every client of the first usable round."""
        uploads = ItemChanges.read(view) or FlatUploads.read(view)
        need_outnumbered(view)
        if isinstance(uploads, ItemChanges):
            scores, sizes = uploads.signed, uploads.sizes
        else:
            table = uploads.architecture.item_table(view)
            scores, sizes = (uploads.each(table, of) for of in (signed_changes, row_changes))
        claim = _rated(uploads, scores, touched(sizes) & (scores > 0))
        return Claims(rounds=(uploads.round,), made=(claim,))


def row_changes(change: FloatArray) -> FloatArray:
    """Length of the change of every row: float64[B, rows] of float64[B, rows, dim]."""
    return np.asarray(np.linalg.norm(change, axis=2))


def signed_changes(change: FloatArray) -> FloatArray:
    """Projection of every row's change on the client's main direction: float64[B, rows].

    Its sign makes the positive side the smaller one.
    """
    return np.stack([along_main(each, np.ones(len(each), dtype=bool))[0] for each in change])


def _rated(
    seen: ItemChanges | FlatUploads, scores: FloatArray, predicted: BoolArray
) -> RatedSetClaim:
    """Rows of the item table; a dense upload shows every item."""
    visible = seen.visible if isinstance(seen, ItemChanges) else np.ones(scores.shape, dtype=bool)
    return RatedSetClaim(clients=seen.clients, scores=scores, visible=visible, predicted=predicted)
