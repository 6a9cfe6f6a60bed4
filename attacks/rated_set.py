"""Rated-set inference from item numbers: what was touched, what repeats, what stands alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attacks.base import AttackCard, Claims, NotApplicable, RatedSetClaim, client_grid
from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Step, View

__all__ = ["Direct", "Intersection", "TailItems"]

_HISTORY = (1, 2, 3, 5, 10, 20, 50, 100)


class Direct:
    """Reads the item numbers of one upload."""

    name = "direct"
    reads_one_round = False
    card = AttackCard(
        game="Given one upload of a client, tell its rated items from all others.",
        adversary="Honest-but-curious server.",
        needs="Item numbers of the uploads of one round.",
        statistic="1 for items in the upload, 0 for the rest of the catalogue.",
        reference="The touched-row read; the plain systems FedRec (Lin et al. 2020) starts from.",
        limits="Cannot tell virtual from real items inside the upload.",
    )

    def run(self, view: View) -> Claims | NotApplicable:
        """Claim that everything in the first recorded upload is rated."""
        rounds = _upload_rounds(view)
        if isinstance(rounds, NotApplicable):
            return rounds
        clients, counts, _ = _count_touches(view, rounds[:1])
        touched = counts > 0
        claim = RatedSetClaim(
            clients=clients, scores=touched.astype(np.float64), visible=touched, predicted=touched
        )
        return Claims(rounds=rounds[:1], rated=claim)


class Intersection:
    """Counts in how many of a client's uploads an item appears.

    Args:
        max_rounds: how many recorded rounds to read; None reads all.
    """

    name = "intersection"
    reads_one_round = False
    card = AttackCard(
        game="Given a client's uploads of several rounds, tell its rated items from all others.",
        adversary="Honest-but-curious server.",
        needs="Item numbers of the uploads of at least one round.",
        statistic="Number of the client's uploads that contain the item, relative to its most "
        "frequent one. Virtual items are drawn "
        "afresh every round; what repeats is real.",
        reference="Intersection (statistical disclosure) attacks on mixes, applied to FedRec's "
        "sampled items.",
        limits="Sticky virtual items repeat as well and defeat it; a client that uploads the whole "
        "catalogue every round is safe from it.",
    )

    def __init__(self, max_rounds: int | None = None) -> None:
        self._max_rounds = max_rounds

    def run(self, view: View) -> Claims | NotApplicable:
        """Claim that what appears in every upload is rated."""
        rounds = _upload_rounds(view)
        if isinstance(rounds, NotApplicable):
            return rounds
        rounds = rounds[: self._max_rounds]
        clients, counts, history = _count_touches(view, rounds, keep=_HISTORY)
        uploads = np.maximum(counts.max(axis=1, keepdims=True), 1)
        claim = RatedSetClaim(
            clients=clients,
            scores=counts / uploads,
            visible=counts > 0,
            predicted=counts == uploads,
            history=history,
        )
        return Claims(rounds=rounds, rated=claim)


class TailItems:
    """Items with one rater, or none, in the aggregate."""

    name = "tail-items"
    reads_one_round = True
    card = AttackCard(
        game="Given the sums and counts the server ends up with, tell which identified rows are "
        "real.",
        adversary="Honest-but-curious server.",
        needs="Payloads of the uploads and of the aggregate of one round, in a protocol whose "
        "aggregate is free of virtual rows.",
        statistic="An item with count 1: the aggregate is that rater's row, so the upload that "
        "equals it is real and every other upload of the item is virtual. Count 0: all are "
        "virtual.",
        reference="Singletons in published aggregates; secure aggregation does not remove them.",
        limits="Reaches only the tail of the catalogue; a popular item hides its raters.",
    )

    def run(self, view: View) -> Claims | NotApplicable:
        """Claim what the counts prove."""
        if not view.sees(Step.AGGREGATE):
            return NotApplicable(reason="the view holds no aggregate")
        layers: Sequence[str] = view.public["protection"]["layers"]
        if layers and "denoisers" not in layers:
            return NotApplicable(
                reason="the aggregate still contains the virtual rows, its counts prove nothing"
            )
        rounds = sorted(
            set(view.payload_rounds(Step.AGGREGATE)) & set(view.payload_rounds(Step.UPLOAD))
        )
        if not rounds:
            return NotApplicable(reason="no round has payloads of both uploads and aggregate")
        return self._read(view, rounds[0])

    def _read(self, view: View, round_: int) -> Claims:
        uploads, block = _rows(view.messages(Step.UPLOAD, round_, payload=True))
        _, total = _rows(view.messages(Step.AGGREGATE, round_, payload=True))
        n_items = int(view.public["n_items"])
        clients = np.unique(uploads.senders.ids)
        owners = np.repeat(uploads.senders.ids, block.lengths)
        flat, visible = client_grid(clients, owners, block.rows.astype(np.int64), n_items)
        counts = np.zeros(n_items, dtype=np.int64) if total.counts is None else total.counts
        state = np.where(visible.ravel(), 1.0, 0.0)  # 0 unseen, 1 undecided
        real, fake = self._decide(block, total, counts)
        state[flat[real]] = 2.0
        state[flat[fake]] = 0.5
        scores = state.reshape(visible.shape)
        claim = RatedSetClaim(
            clients=clients, scores=scores, visible=visible, predicted=scores == 2.0
        )
        singles = int(np.sum(counts == 1))
        details = {
            "tail_items": singles,
            "rows_recovered": int(np.sum(real & (counts[block.rows] == 1))),
            "rows_proven_real": int(real.sum()),
            "rows_proven_virtual": int(fake.sum()),
        }
        return Claims(
            rounds=(round_,), rated=claim, unmasked=visible & (scores == 0.5), details=details
        )

    @staticmethod
    def _decide(block: RowBlock, total: RowBlock, counts: IntArray) -> tuple[BoolArray, BoolArray]:
        """Rows proven real and rows proven virtual: bool[N] each."""
        if block.values is None or total.values is None:
            raise ValueError("payloads were asked for")
        of_item = counts[block.rows]
        equal = (of_item == 1) & np.all(block.values == total.values[block.rows], axis=1)
        # In a coarse ring two uploads can hold the same words: then neither is proven real.
        alike = np.bincount(block.rows[equal], minlength=len(counts))
        return equal & (alike[block.rows] == 1), ~equal & (of_item <= 1)


def _rows(messages: Messages) -> tuple[Messages, RowBlock]:
    if not isinstance(messages.payload, RowBlock):
        raise TypeError("expected rows")
    return messages, messages.payload


def _upload_rounds(view: View) -> tuple[int, ...] | NotApplicable:
    if not view.sees(Step.UPLOAD):
        return NotApplicable(reason="the view holds no uploads")
    rounds = view.rounds(Step.UPLOAD)
    return rounds if rounds else NotApplicable(reason="no upload was recorded")


def _count_touches(
    view: View, rounds: Sequence[int], keep: Sequence[int] = ()
) -> tuple[IntArray, IntArray, dict[int, FloatArray]]:
    """Per client and item, the number of uploads that contain the item.

    Returns:
        (clients int64[B], counts int64[B, m], copies of the counts after so many rounds).
    """
    n_items, n_clients = int(view.public["n_items"]), int(view.public["n_clients"])
    counts = np.zeros(n_clients * n_items, dtype=np.uint16)
    seen = np.zeros(n_clients, dtype=bool)
    kept: dict[int, npt.NDArray[np.uint16]] = {}
    for number, round_ in enumerate(rounds, start=1):
        uploads, block = _rows(view.messages(Step.UPLOAD, round_))
        seen[uploads.senders.ids] = True
        counts[np.repeat(uploads.senders.ids * n_items, block.lengths) + block.rows] += 1
        if number in keep:
            kept[number] = counts.copy()
    clients = np.flatnonzero(seen)
    grid = counts.reshape(n_clients, n_items)[clients].astype(np.int64)
    shaped = {
        number: old.reshape(n_clients, n_items)[clients].astype(np.float64)
        for number, old in kept.items()
    }
    return clients, grid, shaped
