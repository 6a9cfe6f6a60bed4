"""What the public table says of those who moved it: every client sees one step after the other.

Clients hold the table before and after a round, and the rule by which the server moves it is
public. They need no server to know sums: an item that moved otherwise than their own rows explain
was rated by one of the others, and a row with one of the others behind it is that client's row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, need
from attacks.families.sums.tail_rows import CHANCE, RowGroups, group_steps
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.single_rows import AnonymousRowClaim, SingleRowsClaim
from attacks.view.coalition import own_clients, rows_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.biases import BIAS_COUNTS
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Messages, OwnUploads, Step, View

_WHOLE = 0.125
"""Of a ring unit: how far from a word a sum may come out, by the rounding of floats."""


class TableSteps(SuiteAttack):
    """Reads the step from one public table to the next, less what its own clients put into it.

    Game: Given public tables before and after a round, and the rows of some clients, tell what the
        others rated.
    Adversary: Honest-but-curious clients, without the server.
    Needs: Payloads of one round, and sums free of virtual rows and of noise.
    Statistic: The server's step is carried out with the adversary's own rows alone: an item that
        moved otherwise was rated by one of the others. Less the own rows, the step of an item with
        one other rater is that rater's row; such rows of one client are collinear and decode to its
        ratings and vector, as in tail-items.
    Reference: Differences of published aggregates; the step of a mean tells the sum up to its
        count.
    Limits: Where several clients are left, it says which items one of them rated, and not which of
        them; rows are then named in groups whose odds of being means are small. With biases no row
        is decoded. Other algorithms' steps are not read.
    """

    name = "table-steps"
    control = Control(
        measure="precision", on="ratings", who="all clients but one", breaks="contribution"
    )

    def claim(self, view: View) -> Claims:
        """Claim what moved."""
        need(not view.sees(Step.AGGREGATE), "the view holds the sums themselves")
        need(view.public["algorithm"]["name"] == "pmf", "the steps of this algorithm are not read")
        need(view.sees(Step.MODEL), "the view holds no public table")
        knowledge = Knowledge.of(view)
        undisturbed = knowledge.sums_are_real and knowledge.exact
        need(undisturbed, "the table moved by virtual rows or by noise as well")
        steps = [TableStep.read(view, round_) for round_ in view.payload_rounds(Step.MODEL)]
        known = [step for step in steps if step is not None]
        need(
            known,
            "no round has the tables before and after it and the adversary's own rows: "
            "see recording.payload_rounds and recording.payload_senders",
        )
        return _claims(view, known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableStep:
    """A round, as clients see it.

    Args:
        round: its number.
        moved: bool[m], items that one of the others rated.
        change: float64[m, d], the mean over all raters.
        own: the sum over the adversary's own clients.
    """

    round: int
    moved: BoolArray
    change: FloatArray
    own: Aggregate

    @classmethod
    def read(cls, view: View, round_: int) -> "TableStep | None":
        """One round; None where the adversary's own rows were not kept."""
        before, after = view.table(round_), view.table(round_, after=True)
        own = _own_sum(view, round_)
        if own is None:
            return None
        told = view.public["algorithm"].items()
        settings = {key: value for key, value in told if key not in ("name", "traits")}
        algorithm = PMF(PMFConfig(**settings))
        state = PublicState(round=round_ - 1, table=before, extras=view.extras(round_))
        counted = view.extras(round_, after=True).get(BIAS_COUNTS)
        if counted is not None:  # told outright, where biases also move without a rating
            moved = counted - state.extras[BIAS_COUNTS] > own.counts
        else:
            explained = algorithm.server_step(state, own).table
            # What a tail floor keeps out of the sum does not move, whoever rated it.
            moved = (after != explained).any(axis=1) & (after != before).any(axis=1)
        change = (before - after) / algorithm.config.step_size(round_ - 1)
        return cls(round=round_, moved=moved, change=change, own=own)

    def rows(self, raters: int) -> tuple[FloatArray, BoolArray]:
        """What so many others must have sent together; of moved items only.

        Returns:
            float64[m, d], and whether it is of ring words, as every sum is: bool[m].
        """
        sums = self.change * (self.own.counts[:, None] + raters)
        words = sums * self.own.codec.scale
        off = np.abs(words - np.rint(words)).max(axis=1, initial=0.0)
        return sums - self.own.values, off <= _WHOLE


def _own_sum(view: View, round_: int) -> Aggregate | None:
    """The sum that the server would hold had only the adversary's clients been there."""
    n_items, codec = int(view.public["n_items"]), view.codec
    width = view.table(round_).shape[1]
    ring, counts = np.zeros((n_items, width), dtype=codec.dtype), np.zeros(n_items, dtype=np.int64)
    if view.own is not None and view.own.clients:
        uploads = _own_uploads(view, view.own, round_)
        if uploads is None:
            return None
        _, block = rows_of(uploads)
        if len(block.rows):
            if block.values is None:
                return None
            np.add.at(ring, block.rows, block.values)
            np.add.at(counts, block.rows, 1 if block.counts is None else block.counts)
    return Aggregate(ring=codec.reduce(ring), counts=counts, codec=codec)


def _own_uploads(view: View, own: OwnUploads, round_: int) -> Messages | None:
    """Uploads of the adversary's clients; None where they were not kept, all of them."""
    known = own.uploads(round_)
    if known is not None:
        return known
    # Where nothing hides what was sent, it is not kept twice.
    if not view.sees(Step.UPLOAD) or round_ not in view.payload_rounds(Step.UPLOAD):
        return None
    kept = view.messages(Step.UPLOAD, round_, payload=True)
    return kept if len(kept) == len(view.messages(Step.UPLOAD, round_)) else None


def _claims(view: View, steps: Sequence[TableStep]) -> Claims:
    others = np.setdiff1d(np.arange(int(view.public["n_clients"])), sorted(own_clients(view)))
    moved = np.mean([step.moved for step in steps], axis=0)
    nothing = ItemSets.empty(len(others), len(moved))
    scores = Rows(listed=nothing, values=np.zeros(0), rest=moved)
    seen = Rows(listed=nothing, values=np.zeros(0, dtype=bool), rest=moved > 0)
    rows = tuple(_row_claim(view, step, others) for step in steps)
    claim = RatedSetClaim(
        clients=others, scores=scores, visible=seen, predicted=seen if len(others) == 1 else None
    )
    details = {
        "clients_left": len(others),
        "items_moved": int((moved > 0).sum()),
        "rows_recovered": sum(len(each.items) for each in rows),
    }
    known = np.flatnonzero(moved) if len(others) == 1 else np.zeros(0, dtype=np.int64)
    named = Disclosures.named(steps[0].round, np.resize(others, len(known)), known)
    return Claims(
        rounds=tuple(step.round for step in steps),
        made=(claim, SingleRowsClaim(parts=rows), DisclosureClaim(parts=(named,))),
        details=details,
    )


def _row_claim(view: View, step: TableStep, others: IntArray) -> AnonymousRowClaim:
    """Rows that decode; a mean of several rows lies along no other one."""
    items, (rows, whole) = np.flatnonzero(step.moved), step.rows(1)
    groups = RowGroups.alone(len(items), rows.shape[1])
    if not view.public["algorithm"]["biases"]:
        groups = group_steps(view, step.round, items, rows[items])
    named = groups.named
    if len(others) > 1:
        named = named & _of_one(groups.groups, whole[items], rows.shape[1])
    kept = groups.keep(named)
    owner = int(others[0]) if len(others) == 1 else -1
    owners = np.full(len(kept.solved), owner, dtype=np.int64)
    return kept.claim(step.round, items[named], owners)


def _of_one(groups: IntArray, whole: BoolArray, width: int) -> BoolArray:
    """Whether a row's group is of one client, and no means over several: bool[N].

    Means of clients who rate alike are collinear like rows of one, and decode like them. Taken for
    the row of one rater, a mean over k + c clients is a sum of theirs times (k + 1) / (k + c): each
    of its values is a ring word with odds of a half at most. Groups without that many values to
    make a mistake unlikely are left alone.
    """
    rows = np.bincount(groups)
    broken = np.bincount(groups, weights=~whole) > 0
    return np.asarray((~broken & (0.5 ** (rows * width) <= CHANCE))[groups])
