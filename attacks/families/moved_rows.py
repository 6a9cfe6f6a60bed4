"""Finds rated items from the rows of hidden sums that moved: group tests with changing cohorts.

If a row did not move in a round, no client that took part has rated the item. If all clients but
one are cleared in this way, that one moved the row. Sums hide which client moved a row, but not
that no client did.

In a network with one hidden layer, a row that one example moved also tells whether the item was
rated or sampled (``sides``). The gradient at an item's vector is (p - y) H' (a * w): H maps the
vector to the hidden units, w maps the units to the score, and a marks the active units. So each set
of active units gives one line along which the vector moves, up for a rated item and down for a
sampled one.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attacks.base import Claims, Control, InapplicableError, SuiteAttack, need
from attacks.families.item_changes import without_decay
from attacks.families.split.flat_uploads import Architecture, Parameter
from attacks.families.sums.decoded import SURE_BITS
from attacks.families.sums.round_sums import TableStep
from attacks.families.sums.subsets import subset_sums
from attacks.scoring.chance import unit
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.view.coalition import others_change, others_cohort, others_counts
from attacks.view.knowledge import Knowledge, flat_view, item_view
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import Step, View

_CERTAIN, _NONE = 1e6, 2.0**-1000
"""Bits of evidence that count as a proof, and log-odds of events that are neglected."""


class MovedRows(SuiteAttack):
    """Reads which rows of the item table moved in which rounds, and which clients took part.

    Game: Given sums of item rows, or public tables, and who took part in which round, tell a
        client's rated items from all others.
    Adversary: Honest-but-curious server, or clients that tap the network and so know the cohorts.
    Needs: Payloads of sums or public tables, without noise or virtual rows; clients that report
        all of their rated items, and do not all take part in every round.
    Statistic: A row that did not move clears the round's cohort. The other items are ranked by the
        mean, over the client's rounds, of one over the number of clients not cleared. If one client
        is left, a row that moved is that client's: this is certain if clients send rows of rated
        items only, or if sampled negatives, as frequent as rows that moved, would do so in all of
        these rounds with a probability below 2^-20 over all pairs. In a network with one hidden
        layer it is certain if the row moved along a line of the units, to the side of rated items.
    Reference: Group testing, Dorfman 1943; sums of whole tables do not hide rows that no client
        moved.
    Limits: Does not apply if every row moves in every round. A decay of the whole table is
        subtracted; other regularisers are not. An example may leave its row unchanged, for example
        if all units are inactive: without counts of the rows sent, nothing is certain for models
        that are not such a network, nor in a network if a row moved that none of the remaining
        clients can have moved.
    """

    name = "moved-rows"
    reads_item_rows = False
    control = Control(measure="clients_exposed", on="cohorts")

    def claim(self, view: View) -> Claims:
        """Claim what remains possible after the cohorts of all recorded rounds."""
        known = Knowledge.of(view)
        need(known.sums_are_real and known.exact, "virtual rows or noise are in the sums")
        need(known.reports_all, "uploads of rated items are drawn afresh every round")
        need(known.rated_too, "clients send rows of some of their rated items")
        server = view.sees(Step.AGGREGATE)
        step = Step.AGGREGATE if server else Step.MODEL
        told = view.sees(Step.UPLOAD) if server else "network" in view.adversary.taps
        need(
            told and view.sees(step),
            "the view does not hold both the sums or tables and the participants",
        )
        table = _Table.of(view)
        came = {round_: others_cohort(view, round_) for round_ in view.payload_rounds(step)}
        present = np.zeros((len(came), int(view.public["n_clients"])), dtype=bool)
        for place, cohort in enumerate(came.values()):
            present[place, () if cohort is None else cohort[0]] = True
        clients = np.flatnonzero(present.any(axis=0))
        need(len(clients), "no round has the payload of its sum or table, and named uploads")
        everybody = len(clients) > 1 and present[:, clients].all()
        need(not everybody, "all clients take part in every round")
        read = {
            place: _Round.read(table, step, round_)
            for place, (round_, cohort) in enumerate(came.items())
            if cohort is not None
        }
        places = [place for place, each in read.items() if each is not None]
        none = "no round tells the sum of the others' rows: see recording.payload_senders"
        found = need([each for each in read.values() if each is not None], none)
        rounds, present = tuple(np.array([*came])[places].tolist()), present[places][:, clients]
        moved = np.array([each.moved for each in found])
        tests = _Tests(present, moved, hidden=len(known.denoisers))
        need(not moved.all(), "every row moves in every round")
        # log2 of how often a row moves that nobody left has rated
        odds = np.where(known.every_row, -np.inf, np.log2(np.maximum(moved.mean(axis=1), _NONE)))
        bits = tests.bits(odds, counted=all(each.counted for each in found))
        if found[0].examples is not None and tests.consistent:
            bits += _CERTAIN * _rated(view, rounds, found, tests)
        who, items = np.nonzero(tests.alone)
        certain = bits[who, items] >= SURE_BITS + np.log2(bits.size)
        named = Disclosures.named(rounds[0], clients[who], items)
        visible = np.ones(bits.shape, dtype=bool)
        claim = RatedSetClaim(clients=clients, scores=tests.scores, visible=visible)
        details = {"pairs_cleared": int((~tests.left).sum()), "pairs_alone": len(items)}
        part = replace(named, certain=certain)
        return Claims(rounds=rounds, made=(claim, DisclosureClaim(parts=(part,))), details=details)


class _Tests:
    """The group tests of all rounds.

    Args:
        present: bool[T, B], which clients took part in which round.
        moved: bool[T, m], which rows did.
        hidden: how many others may have moved any of them, every time.
    """

    def __init__(self, present: BoolArray, moved: BoolArray, *, hidden: int) -> None:
        self.present, self._own = present, present.astype(np.float32)
        self.lone = present.sum(axis=1) + hidden == 1  # rounds
        self.left = np.asarray(self._own.T @ ~moved == 0)  # bool[B, m], pairs not cleared
        candidates = self._own @ self.left.astype(np.float32) + hidden
        self.one_left = moved & (candidates == 1)
        self.consistent = not (moved & (candidates == 0)).any()
        shares = np.where(moved, 1.0 / np.maximum(candidates, 1.0), 0.0)
        own = np.maximum(self._own.sum(axis=0), 1.0)[:, None]
        self.scores = np.where(self.left, self._own.T @ shares / own, 0.0)
        self.alone = self.left & (self._own.T @ self.one_left.astype(np.float32) > 0)

    def bits(self, odds: FloatArray, *, counted: bool = True) -> FloatArray:
        """Evidence, in bits, from rounds in which only this pair is left: float64[B, m].

        If no counts tell which rows were sent, only rounds with a single other client are used.
        """
        told = np.where(counted | self.lone, np.maximum(-odds, 0.0), 0.0)
        weights = np.where(self.one_left, told[:, None], 0.0)
        return np.where(self.alone, self._own.T @ np.minimum(weights, _CERTAIN), 0.0)


def _rated(view: View, rounds: tuple[int, ...], found: list["_Round"], tests: _Tests) -> BoolArray:
    """Pairs whose examples, as far as known, moved the row to the rated side only: bool[B, m].

    If no items are sampled, all items are rated, and any line that one example explains counts.
    """
    up, down = (np.zeros(tests.left.shape, dtype=bool) for _ in range(2))
    sampled, needed = int(view.public["negatives"]) > 0, SURE_BITS + np.log2(len(rounds))
    for place, (round_, each) in enumerate(zip(rounds, found, strict=True)):
        items = np.flatnonzero(tests.one_left[place])
        if each.examples is not None and len(items):
            whose = (tests.present[place][:, None] & tests.left[:, items]).argmax(axis=0)
            side = sides(view, round_, each.examples[items], needed)
            if side is None:
                many = "rows that one client moved lie along more lines than the search tries"
                raise InapplicableError(many)
            up[whose, items] |= side > 0 if sampled else side != 0
            down[whose, items] |= sampled & (side < 0)
    return up & ~down


class _Round(NamedTuple):
    """A round.

    Attributes:
        moved: bool[m], which items' rows moved.
        counted: whether counts say so, independent of the changes.
        examples: float64[m, d], the change that the examples of an item made, where it is known
            that nothing else does.
    """

    moved: BoolArray
    counted: bool = False
    examples: FloatArray | None = None

    @classmethod
    def read(cls, table: "_Table", step: Step, round_: int) -> "_Round | None":
        """The moved rows; None if the adversary's own clients' part is not known."""
        seen, at = table
        known = Knowledge.of(seen)
        if step is Step.MODEL and known.factorized:
            told = TableStep.read(seen, round_)
            return None if told is None else cls(told.moved)
        change = others_change(seen, round_)
        if change is None:
            return None
        if at is not None:
            change = change.reshape(-1)[at.start : at.stop].reshape(at.shape)
            return cls((change != 0).any(axis=1), examples=change)
        if seen.sees(Step.MODEL):
            change = without_decay(change, seen.table(round_))
        moved = (change != 0).any(axis=1)
        server = step is Step.AGGREGATE and known.rated_always
        counts = others_counts(seen, round_) if server else None
        return cls(moved if counts is None else moved | (counts > 0), counted=counts is not None)


class _Table(NamedTuple):
    """Rows that are items, or the one named parameter whose rows are items.

    Attributes:
        seen: the adversary's view, restricted to that block.
        at: where they stand among named parameters.
    """

    seen: View
    at: Parameter | None

    @classmethod
    def of(cls, view: View) -> "_Table":
        """Requires one of the two."""
        items = item_view(view) if Knowledge.of(view).item_rows else None
        if items is not None:
            return cls(items, None)
        seen = need(flat_view(view), "no block of the uploads has rows of items")
        at = Architecture.of(view).item_table(view)
        return cls(seen.of_values(at.start, at.stop), at)


_LAYERS, _MOST_UNITS = 2, 20
"""Most dense layers, and most units of the first layer whose sets are tried."""

_NEAR = 1e-3
"""Sine of the angle between a change and its line, at most."""


def sides(view: View, round_: int, changes: FloatArray, needed: float) -> IntArray | None:
    """1 if a change can only be that of a rated item, -1 if that of a sampled one, 0 if unknown.

    None if the network has more layers or units than the search tries.

    Args:
        view: view of an algorithm with named parameters, and the public table of the round.
        round_: whose table the clients started from.
        changes: float64[K, d], of one example each.
        needed: bits that a line has to hold beyond the choice among all lines.
    """
    found = np.zeros(len(changes), dtype=np.int64)
    flat, told, width = flat_view(view), Architecture.of(view), changes.shape[1]
    layers, place = told.dense_layers(), view.public["private_input"]
    if flat is None or len(layers) != _LAYERS:
        return None
    values = flat.table(round_).reshape(-1)
    first, output = (each.weight.of(values) for each in layers)
    inputs = np.delete(first, place["first"] + np.arange(told.private), axis=1)
    if len(first) > _MOST_UNITS or inputs.shape[1] != width or len(output) != 1:
        return None
    if width == 1:  # all lines are one
        return found
    lines = unit(subset_sums(output[0][:, None] * inputs)[1:])
    bits = needed + float(np.log2(2.0 * len(lines) * max(1, len(changes))))
    least = np.sqrt(1.0 - min(_NEAR, 2.0 ** (-bits / (width - 1))) ** 2)
    for number, change in enumerate(unit(changes)):
        along = lines @ change
        found[number] = int(along.max() >= least) - int(along.min() <= -least)
    return found
