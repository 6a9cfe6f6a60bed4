"""Attacks on item numbers of uploads: items that are touched, repeated, or never touched."""

from collections.abc import Sequence

import numpy as np

from attacks.base import Claims, Control, Secrets, SuiteAttack, need
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.held_out import HeldOutClaim
from attacks.scoring.item_sets import ItemSets, listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows, touches
from attacks.view.knowledge import Knowledge
from attacks.view.named import (
    clear_senders,
    named_payload_rounds,
    named_rounds,
    named_rows,
    seen_rows,
    sees_named_rows,
)
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.wire import Step, View

_HISTORY = (1, 2, 3, 5, 10, 20, 30, 50, 100)
_UNTOUCHED_HISTORY = (1, 5, 10, 30, 100)


class Direct(SuiteAttack):
    """Reads the item numbers of one upload.

    Game: Given one upload of a client, tell its rated items from all others.
    Adversary: Honest-but-curious server.
    Needs: Item numbers of the uploads of one round.
    Statistic: 1 for items in the upload, 0 for the rest of the catalogue.
    Reference: Reading touched rows; the plain systems from which FedRec (Lin et al. 2020) starts.
    Limits: Alone it cannot tell virtual from real items inside the upload; popularity can, if
        virtual items are drawn from another distribution (see precision_gain).
    """

    name = "direct"
    control = Control(measure="auc", on="ratings", floor=0.9, breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim that everything in the first recorded upload is rated."""
        rounds, known = upload_rounds(view), Knowledge.of(view)
        if known.says_dense:  # dense uploads: only payloads tell which rows are not 0
            rounds = named_payload_rounds(view) or rounds
        clients, touched, _ = count_touches(view, rounds[:1])
        seen, told = Rows.marked(touched.listed), np.ones(len(clients), dtype=bool)
        if known.says_dense:  # masked uploads name the same rows for all clients
            told = np.isin(clients, clear_senders(view, rounds[0]))
        claim = RatedSetClaim(
            clients=clients,
            scores=touched.divided(1),
            visible=seen,
            predicted=seen,
            sure=told if known.says_rated_rows else None,
        )
        # Otherwise nothing was meant to be hidden.
        if not (known.says_dense and known.says_rated_rows):
            return Claims(rounds=rounds[:1], made=(claim,))
        mine = np.repeat(told, touched.listed.lengths)
        owners, items = clients[touched.listed.owners[mine]], touched.listed.items[mine]
        named = Disclosures.named(rounds[0], owners, items.astype(np.int64))
        return Claims(rounds=rounds[:1], made=(claim, DisclosureClaim(parts=(named,))))


class Intersection(SuiteAttack):
    """Counts in how many of a client's uploads an item appears.

    Game: Given a client's uploads of several rounds, tell its rated items from all others.
    Adversary: Honest-but-curious server.
    Needs: Item numbers of the uploads of at least one round.
    Statistic: Number of the client's uploads that contain the item, relative to its most frequent
        one. Virtual items, and negatives to train on, are drawn afresh every round; what repeats is
        real.
    Reference: Intersection (statistical disclosure) attacks on mixes, applied to FedRec's sampled
        items and to training negatives of PFedRec and its like.
    Limits: Sticky virtual items repeat as well, so the attack fails; it also fails on a client that
        uploads the whole catalogue every round.
    """

    name = "intersection"
    control = Control(measure="auc", on="ratings", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim that what appears in every upload is rated."""
        rounds = upload_rounds(view)
        # If an algorithm sends only some rows per round, one absence of an item says little.
        every_time = Knowledge.of(view).rated_always
        clients, counts, history = count_touches(view, rounds, keep=_HISTORY)
        uploads = counts.highest()
        kind = counts.values.dtype  # the smallest type for counts: there are many
        always = counts.values == np.repeat(uploads.astype(kind), counts.listed.lengths)
        claim = RatedSetClaim(
            clients=clients,
            scores=counts.divided(uploads),
            visible=Rows.marked(counts.listed),
            predicted=Rows(listed=counts.listed, values=always) if every_time else None,
            history=history,
        )
        return Claims(rounds=rounds, made=(claim,))


def upload_rounds(view: View) -> tuple[int, ...]:
    """Rounds whose rows are seen under their senders' names; requires at least one."""
    need(view.sees(Step.UPLOAD) or sees_named_rows(view), "the view holds no uploads")
    return need(named_rounds(view), "no upload was recorded")


def count_touches(
    view: View, rounds: Sequence[int], keep: Sequence[int] = ()
) -> tuple[IntArray, Rows, dict[int, Rows]]:
    """Per client and item, the number of uploads that contain the item.

    Returns:
        (clients int64[B], counts of the pairs that occur, the same counts after fewer rounds).
    """
    n_items, n_clients = int(view.public["n_items"]), int(view.public["n_clients"])
    seen = np.zeros(n_clients, dtype=bool)
    for round_ in rounds:
        seen[named_rows(view, round_).senders.ids] = True
    clients, kept = np.flatnonzero(seen), {}

    def uploaded(round_: int) -> ItemSets:
        uploads, block = seen_rows(view, round_)
        return listed_rows(clients, uploads.senders.ids, block, n_items)[0]

    def stopped(number: int, counts: Rows) -> None:
        if number in keep:
            kept[number] = counts

    return clients, touches(uploaded, rounds, stopped), kept


_HELD_OUT: Secrets = {"held_out.items": lambda planted: planted["held_out"]}


class NeverTouched(SuiteAttack):
    """Reads which items a client trains on neither as positives nor as negatives, in any round.

    Game: Given a client's uploads of several rounds, tell the items held out of its training (what
        it will choose) from all others that it does not train on.
    Adversary: Honest-but-curious server.
    Needs: Item numbers of the uploads of at least one round, of clients that also train on sampled
        items which they did not rate.
    Statistic: 1 for items in none of the client's uploads, 0 for the rest. Where held-out items are
        left out of the pool of training negatives, they are among the former in every round.
    Reference: Samplers of public codes of federated recommenders (PFedRec, GPFedRec, FedRAP), whose
        pools leave out validation and test items.
    Limits: Does not apply if negatives are drawn from everything that is not trained on, or once
        for all rounds; a client that uploads the whole table hides which rows it touched.
    """

    name = "never-touched"
    control = Control(measure="held_out_auc", on="untouched", secrets=_HELD_OUT, breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim that the client will choose the items that are in no upload."""
        rounds, known = upload_rounds(view), Knowledge.of(view)
        need(not known.rated_only, "clients send rows of their rated items only")
        need(not known.dense, "every client sends the same rows")
        clients, counts, history = count_touches(view, rounds, keep=_UNTOUCHED_HISTORY)
        claim = HeldOutClaim(
            name="items",
            clients=clients,
            scores=_never(counts),
            history={n: _never(earlier) for n, earlier in history.items()},
        )
        return Claims(rounds=rounds, made=(claim,))


def _never(counts: Rows) -> Rows:
    """Marked where an item was never touched."""
    return Rows(listed=counts.listed, values=counts.values == 0, rest=True)
