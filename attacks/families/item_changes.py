"""Changes of an item table per client: lengths, direction and side of its rows.

A recommender that scores items by a vector of the client, p = sigmoid(w . V_i), moves row i by
(y - p) w: all rows along w, rated items in one direction and sampled ones in the opposite
direction. Whatever the model, the rows of one client share a main direction, and more of them are
sampled than rated.
"""

from typing import NamedTuple

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, need
from attacks.scoring.vectors import VectorClaim
from attacks.view.coalition import words_of
from attacks.view.knowledge import Knowledge, item_view
from attacks.view.named import named_payload_rounds, read_rows, sees_named_rows
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import Step, View

SCORE_TABLE = "own_parameters"
"""Private table whose rows begin with the true score vectors."""

_ALIKE = 1e-4
"""A row whose deviation from the decay, relative to its length, is smaller moved only by the
decay."""

_DEVIATIONS = 5.0
"""If no row is exactly zero, a row counts as touched from this many deviations above the median."""

_FEWEST = 16
"""Fewest rows with the same relative change that count as a decay; fewer may be equal by chance."""


class ItemChanges(NamedTuple):
    """The changes of the item table's rows by the uploads of one round.

    Attributes:
        round: which round.
        clients: int64[B], ascending.
        sizes: float64[B, m], lengths of the changes, without a decay of all rows.
        signed: float64[B, m], their projections on the client's main direction, which is turned so
            that fewer of them are positive.
        main: float64[B, d], the main directions.
        visible: bool[B, m], rows that were sent; all of a client whose upload cannot be read, of
            which the others are 0.
        plain: bool[B], clients whose upload can be read.
    """

    round: int
    clients: IntArray
    sizes: FloatArray
    signed: FloatArray
    main: FloatArray
    visible: BoolArray
    plain: BoolArray

    @classmethod
    def read(cls, view: View) -> "ItemChanges | None":
        """Read the first round whose payloads were kept; None if rows are not such changes."""
        if not Knowledge.of(view).trained_rows:
            return None
        items = need(item_view(view), "no block of the uploads has the items as its rows")
        need(sees_named_rows(items), "the view holds no uploads")
        rounds = need(named_payload_rounds(items), "no payload of an upload was recorded")
        uploads, block, plain = read_rows(items, rounds[0])
        changes, ends = items.codec.decode(words_of(block)), block.indptr
        table = None
        if items.sees(Step.MODEL) and rounds[0] in items.payload_rounds(Step.MODEL):
            table = items.table(rounds[0])
        size = (len(block), int(items.public["n_items"]))
        found = cls(
            round=rounds[0],
            clients=uploads.senders.ids,
            sizes=np.zeros(size),
            signed=np.zeros(size),
            main=np.zeros((size[0], changes.shape[1])),
            visible=np.repeat(~plain[:, None], size[1], axis=1),
            plain=plain,
        )
        for place in np.flatnonzero(plain).tolist():
            own = slice(ends[place], ends[place + 1])
            rows, moved = block.rows[own], changes[own]
            whole = len(rows) == size[1]
            if table is not None and whole:
                moved = without_decay(moved, table[rows])
            lengths = np.sqrt((moved**2).sum(axis=1))
            # A client that sends only the rows of its examples names them.
            by_examples = touched(lengths[None])[0] if whole else lengths > 0
            found.visible[place, rows], found.sizes[place, rows] = True, lengths
            found.signed[place, rows], found.main[place] = along_main(moved, by_examples)
        return found


def need_outnumbered(view: View) -> None:
    """Need two sampled negatives or more for each positive, which tell the sides apart."""
    few = "positives are not outnumbered by sampled negatives"
    need(int(view.public["negatives"]) >= 2, few)


def touched(sizes: FloatArray) -> BoolArray:
    """Which rows a client has changed: bool[B, rows].

    Args:
        sizes: float64[B, rows], lengths of the changes.
    """
    middle = np.median(sizes, axis=1, keepdims=True)
    spread = np.median(np.abs(sizes - middle), axis=1, keepdims=True)
    exact = (sizes == 0).any(axis=1, keepdims=True)
    return np.asarray(sizes > np.where(exact, 0.0, middle + _DEVIATIONS * spread))


def along_main(changes: FloatArray, by_examples: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Projections of rows on their main direction, float64[k], and that direction, float64[d].

    It is turned so that fewer of the rows that examples moved have a positive one.

    Args:
        changes: float64[k, d].
        by_examples: bool[k], which rows these are.
    """
    main = np.linalg.eigh(changes.T @ changes)[1][:, -1]
    along = changes @ main
    counted = along[by_examples]
    if (counted > 0).sum() > (counted < 0).sum():
        along, main = -along, -main
    return along, main


def without_decay(changes: FloatArray, table: FloatArray) -> FloatArray:
    """Changes minus those by a decay c of the table, c V_i; exactly 0 if that is all.

    Rows that no example moved share their c to the last digits, and no others do. Without such rows
    the changes are as they were.

    Args:
        changes: float64[m, d].
        table: float64[m, d], the rows before.
    """
    lengths = (table**2).sum(axis=1)
    known = lengths > 0
    shares = (changes * table).sum(axis=1)[known] / lengths[known]
    if len(shares) < _FEWEST:
        return changes
    ordered = np.sort(shares)
    spans = ordered[_FEWEST - 1 :] - ordered[: len(ordered) - _FEWEST + 1]
    first = int(np.argmin(spans))
    rest = changes - np.median(ordered[first : first + _FEWEST]) * table
    alike = (rest**2).sum(axis=1) <= _ALIKE**2 * lengths
    if alike.sum() < _FEWEST:
        return changes
    return np.asarray(np.where(alike[:, None], 0.0, rest))


class ScoreVectors(OneRound, SuiteAttack):
    """Reads a client's score vector from the direction in which rows of the item table move.

    Game: Given one upload of a client that scores items by a private vector, tell the direction of
        that vector.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round; rows that are changes by training on rated items and
        on two or more sampled negatives for each, all along one vector of the client.
    Statistic: Main direction of the rows of one upload, without the part due to a decay of the
        whole table; its sign is chosen so that fewer of the rows that examples moved point along
        it, since negatives outnumber positives.
    Reference: Gradients of a matrix factorization are multiples of the user vector (Chai et al.
        2021), applied to PFedRec's score functions and FedRAP's.
    Limits: Tells no length. If the vector changes within the round, an intermediate value is read.
        If all clients start with equal vectors, they are not named before the second round.
    """

    name = "score-vector"
    control = Control(measure="reidentified_share", on="untouched", floor=0.9, breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the direction of the score vector of every client of the first usable round."""
        known = Knowledge.of(view)
        need(known.item_rows, "the rows of the shared table are not items")
        need(known.scored_rows, "rows are not said to move along a vector of the client")
        need_outnumbered(view)
        changes = need(ItemChanges.read(view), "no rows are changes of an item table")
        claim = VectorClaim(
            round=changes.round,
            clients=changes.clients,
            vectors=changes.main,
            table=SCORE_TABLE,
            told=changes.plain,
        )
        return Claims(rounds=(changes.round,), made=(claim,))
