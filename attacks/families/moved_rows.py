"""Who rated what, from the rows of hidden sums that moved: group tests with changing cohorts.

A row that did not move in a round clears everybody who took part of having rated the item, and a
row that moved where all but one of them are cleared was moved by that one. Sums hide who moved a
row, and not that nobody did.
"""

from dataclasses import replace

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, need
from attacks.families.item_changes import without_decay
from attacks.families.split.architecture import Architecture
from attacks.families.sums.round_sums import SURE_BITS
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.view.blocks import flat_view, item_view
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.wire import Step, View

_ABOVE_ROUNDING = 2.0**10
"""Ring units: where rows move by less, some may move by nothing at all."""

_CERTAIN = 1e6
"""Bits that stand for a proof."""


class MovedRows(SuiteAttack):
    """Reads which rows of the item table moved in which rounds, and who took part in these.

    Game: Given sums of item rows, or public tables, and who took part in which round, tell a
        client's rated items from all others.
    Adversary: Honest-but-curious server; or clients who tap the network, and so know the cohorts.
    Needs: Payloads of sums or public tables, without noise or virtual rows; clients that report
        all of their rated items, and do not all take part in every round.
    Statistic: A row that did not move clears the round's cohort. The others are ranked by the mean,
        over the client's rounds, of one over the clients that are left. A row that moved where one
        is left is of that client: for certain where clients send rows of rated items alone, or
        where sampled negatives, as frequent as rows that moved, would do so in all of these rounds
        with odds of 2^-20 over all pairs.
    Reference: Group testing, Dorfman 1943; sums of whole tables hide no row that nobody moved.
    Limits: Silent where every row moves in every round. A decay of the whole table is taken off,
        which no regulariser of another form is. Nothing is certain of models in which an example
        may leave its row where it is.
    """

    name = "moved-rows"
    reads_item_rows = False
    control = Control(measure="clients_exposed", on="cohorts")

    def claim(self, view: View) -> Claims:
        """Claim what the cohorts of all recorded rounds leave."""
        known = Knowledge.of(view)
        need(known.sums_are_real and known.exact, "virtual rows or noise are in the sums")
        need(known.reports_all, "uploads of rated items are drawn afresh every round")
        need(known.rated_too, "clients send rows of some of their rated items")
        step = Step.AGGREGATE if view.sees(Step.AGGREGATE) else Step.MODEL
        taps = "network" in view.adversary.taps
        told = view.sees(step) and (taps or view.sees(Step.AGGREGATE))
        need(told, "the view holds no sums or tables, or does not tell who took part")
        rounds = need(view.payload_rounds(step), "no payload of a sum or a table was recorded")
        present = np.array([_present(view, round_) for round_ in rounds])
        need(not present.all(), "everybody takes part in every round")
        clients = np.flatnonzero(present.any(axis=0))
        sizes = np.array([_sizes(view, step, round_) for round_ in rounds])
        tests = _Tests(present[:, clients], sizes > 0)
        need(not tests.moved.all(), "every row moves in every round")
        odds = np.zeros(len(rounds))  # log2 of how often a row moves of which nobody is a rater
        if sizes[tests.moved].min(initial=np.inf) >= _ABOVE_ROUNDING and (
            known.factorized or known.scored_rows
        ):
            odds = np.log2(tests.moved.mean(axis=1)) if known.rated_always else odds
            odds = np.full(len(rounds), -np.inf) if known.every_row else odds
        bits = tests.bits(odds)
        who, items = np.nonzero(tests.alone)
        certain = bits[who, items] >= SURE_BITS + np.log2(bits.size)
        named = Disclosures.named(rounds[0], clients[who], items)
        claim = RatedSetClaim(
            clients=clients, scores=tests.scores, visible=np.ones(bits.shape, dtype=bool)
        )
        details = {"pairs_cleared": int((~tests.left).sum()), "pairs_alone": len(items)}
        part = replace(named, certain=certain)
        return Claims(rounds=rounds, made=(claim, DisclosureClaim(parts=(part,))), details=details)


class _Tests:
    """What rounds leave.

    Args:
        present: bool[T, B], who took part in which.
        moved: bool[T, m], which rows did.
    """

    def __init__(self, present: BoolArray, moved: BoolArray) -> None:
        self.moved, self._own = moved, present.astype(np.float32)
        self.left = np.asarray(self._own.T @ ~moved == 0)  # bool[B, m], pairs not cleared
        candidates = self._own @ self.left.astype(np.float32)
        self._alone = moved & (candidates == 1)
        shares = np.where(moved, 1.0 / np.maximum(candidates, 1.0), 0.0)
        own = np.maximum(self._own.sum(axis=0), 1.0)[:, None]
        self.scores = np.where(self.left, self._own.T @ shares / own, 0.0)
        self.alone = self.left & (self._own.T @ self._alone.astype(np.float32) > 0)

    def bits(self, odds: FloatArray) -> FloatArray:
        """Bits that the rounds hold in which the pair alone is left: float64[B, m]."""
        weights = np.where(self._alone, np.maximum(-odds, 0.0)[:, None], 0.0)
        return np.where(self.alone, self._own.T @ np.minimum(weights, _CERTAIN), 0.0)


def _present(view: View, round_: int) -> BoolArray:
    """Who took part in a round: bool[n]."""
    present = np.zeros(int(view.public["n_clients"]), dtype=bool)
    if view.sees(Step.AGGREGATE):
        present[view.messages(Step.UPLOAD, round_).senders.ids] = True
    else:
        present[view.traffic(round_)[Step.UPLOAD][0]] = True
    return present


def _sizes(view: View, step: Step, round_: int) -> FloatArray:
    """Largest change of a value in each item's row, in ring units: float64[m]."""
    items = item_view(view) if Knowledge.of(view).item_rows else None
    seen = need(items or flat_view(view), "no block of the uploads has rows of items")
    before = seen.table(round_) if seen.sees(Step.MODEL) else None
    if step is Step.MODEL and before is not None:
        change = seen.table(round_, after=True) - before
    else:
        _, block = rows_of(seen.messages(step, round_, payload=True))
        words = seen.codec.decode(words_of(block))
        change = np.zeros((1 + int(block.rows.max(initial=0)), words.shape[1]))
        change[block.rows] = words
    if items is None:
        name = view.public["item_table"]
        tables = {each.name: each for each in Architecture.of(view).tables()}
        table = need(tables.get(name), "no federated table has the items as its rows")
        change = change.reshape(-1)[table.start : table.stop].reshape(table.shape)
    else:
        whole = np.zeros((int(view.public["n_items"]), change.shape[1]))
        whole[: len(change)] = change
        change = whole if before is None else without_decay(whole, before)
    return np.asarray(np.abs(change).max(axis=1) / seen.codec.resolution)
