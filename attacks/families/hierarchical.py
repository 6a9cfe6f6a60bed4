"""Attacks on hierarchical personalization: weights and drafts reveal facts about an organisation.

In HPFL's weighted mean (eq. 3) a client sends, for every attribute k, the weight
w_k = delta I_k Acc_k: its iterations on the attribute (records times epochs) times its accuracy.
Accuracies of one client differ little between attributes, so the weights are, up to a factor, the
histogram of its records (``AttributeCounts``).

A client clusters the vectors of its users, and those of its items, and sends the centres in their
place. The centre of a cluster of one is that member's vector (``Drafts``). A row of a hidden sum to
which only one organisation contributed is that organisation's row, word for word (``LoneRows``).

``split.dense_layer`` does not have a counterpart: a client's change of its attribute vectors is a
sum over all of its users, none of whose vectors is the same for all examples, and no bias goes with
it.
"""

from typing import Final

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, common_rounds, need, require_seen
from attacks.scoring.clear_uploads import LoneRowsClaim
from attacks.scoring.drafts import DraftClaim
from attacks.scoring.profiles import HistogramClaim
from attacks.scoring.sets import SetClaim
from attacks.view.coalition import others_sum, others_vectors, rows_of, words_of
from attacks.view.knowledge import Knowledge, rows_view
from attacks.view.named import named_payload_rounds, named_rows, sees_named_rows
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Step, View

ATTRIBUTES = "attributes"
"""Names of two secrets: a client's records per attribute, and the attributes of which it has
records."""


class AttributeCounts(OneRound, SuiteAttack):
    """Reads the weights of one upload.

    Game: Given one upload of an organisation, tell how its records are distributed over the
        attributes of items.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round, and where the weights lie in a row.
    Statistic: Share of each attribute's weight in the sum of the weights; the sum is the
        organisation's activity.
    Reference: HPFL (Wu et al. 2021), Algorithm 2, which sends iterations and accuracies in the
        clear; here their product.
    Limits: Accuracies that differ between attributes distort the shares; attributes below the
        threshold are not sent. A weight is an exact fraction whose denominator divides the number
        of validation records on the attribute; that is not used here.
    """

    name = "attribute-counts"
    control = Control(
        measure="histogram_correlation",
        on="organisations",
        breaks="owners",
        secrets={
            f"sets.{ATTRIBUTES}": lambda planted: planted["attributes"] > 0,
            f"histograms.{ATTRIBUTES}": lambda planted: planted["attributes"].astype(np.float64),
        },
    )

    def claim(self, view: View) -> Claims:
        """Claim the profile of every client of the first usable round."""
        known = view.public["algorithm"]
        told = "attributes" in known.get("table", {})
        need(told, "the algorithm states no table of attributes")
        need(sees_named_rows(view), "the view holds no uploads")
        rounds = need(named_payload_rounds(view), "no payload of an upload was recorded")
        uploads, block = rows_of(named_rows(view, rounds[0], payload=True))
        size = int(known["table"]["attributes"])
        weights = np.zeros((len(block), size))
        owners = np.repeat(np.arange(len(block)), block.lengths)
        sent = block.rows < size
        weights[owners[sent], block.rows[sent]] = view.codec.decode(words_of(block)[sent, -1])
        # Words that hide a weight may decode to anything; what cannot be a weight counts as none.
        weights = np.maximum(weights, 0.0)
        totals = weights.sum(axis=1)
        need(totals.any(), "no client sent a vector of an attribute")
        even = np.full(weights.shape, 1.0 / size)
        shares = np.divide(weights, totals[:, None], out=even, where=totals[:, None] > 0)
        clients = uploads.senders.ids
        made = (
            SetClaim(name=ATTRIBUTES, clients=clients, scores=weights, predicted=weights > 0),
            HistogramClaim(name=ATTRIBUTES, clients=clients, shares=shares, activity=totals),
        )
        return Claims(rounds=rounds[:1], made=made)


_USERS = "user-drafts"
MEMBERS: Final = {_USERS: "user_embeddings", "item-drafts": "item_representations"}
"""For each bag, the private table of its members."""


class Drafts(OneRound, SuiteAttack):
    """Assumes that every draft is a member's vector and that its sender is the member's client.

    Game: Given the drafts of one round, tell vectors of single members, and which client holds a
        member.
    Adversary: Honest-but-curious server.
    Needs: The bags' payload of one round, and the sender of each message, to assign members to
        clients.
    Statistic: Every draft, unchanged: the centre of a cluster of one member is that member's
        vector. A member belongs to the client that sent the draft closest to its vector.
    Reference: HPFL (Wu et al. 2021), section 4.2, whose argument is that drafts are centres.
    Limits: Which client holds a member is an upper bound, since the member's vector is needed to
        look it up. Attributes are told for a disclosed vector only.
    """

    name = "drafts"
    control = Control(
        measure="disclosed_share",
        on="organisations",
        breaks="contribution",
        in_bags=True,
        secrets={
            "attributes.sign": lambda planted: (planted["members"][:, 0] > 0).astype(np.int64)
        },
    )

    def claim(self, view: View) -> Claims:
        """Claim the drafts of the first usable round."""
        require_seen(view, {Step.BAG: "vectors for a bag"})
        none = "no vectors for a bag were recorded"
        rounds = common_rounds(view, Step.BAG, payload=True, otherwise=none)
        present = view.bags(rounds[0])
        claims = tuple(_claim(view, rounds[0], bag) for bag in MEMBERS if bag in present)
        given = tuple(claim for claim in claims if len(claim.vectors))
        need(given, "no bag holds drafts of users or items")
        return Claims(rounds=rounds[:1], made=given)


def _claim(view: View, round_: int, bag: str) -> DraftClaim:
    messages = others_vectors(view, round_, bag)
    block = messages.payload
    if not isinstance(block, SetBlock) or block.values is None:
        raise TypeError("a bag holds vectors")
    return DraftClaim(
        round=round_,
        table=MEMBERS[bag],
        vectors=view.codec.decode(block.values),
        owners=np.repeat(messages.senders.ids, block.lengths),
        prefix="" if bag == _USERS else "item_",
        tells_people=bag == _USERS,
    )


class LoneRows(SuiteAttack):
    """Reads the rows of a sum to which only one organisation contributed.

    Game: Given sums and counts per attribute of items, tell rows that organisations sent.
    Adversary: Honest-but-curious server.
    Needs: Payloads of the aggregate of at least one round, with exact counts and without noise, of
        uploads that cannot be read.
    Statistic: Less what own clients sent, a row with a count of 1 is that organisation's row: its
        vector of the attribute times its weight, and the weight.
    Reference: Singletons in published aggregates.
    Limits: Does not tell whose the row is. Sums of two are not taken apart.
    """

    name = "lone-rows"
    reads_item_rows = False
    control = Control(measure="lone_clients", on="lone organisations", breaks="lone rows")

    def claim(self, view: View) -> Claims:
        """Claim such rows of all recorded rounds."""
        require_seen(view, {Step.AGGREGATE: "aggregate"})
        known = Knowledge.of(view)
        need(known.hidden, "uploads can be read: nothing is hidden in a sum")
        need(not known.factorized, "such rows are read by sum-decoding")
        need(known.exact and known.sums_are_real, "noise or virtual rows are in the sums")
        none = "no payload of the aggregate was recorded"
        rounds = common_rounds(view, Step.AGGREGATE, payload=True, otherwise=none)
        seen = need(rows_view(view), "no block of the uploads has rows that some leave out")
        first = 0 if seen.block is None else seen.block.first
        rows = {}
        for round_ in rounds:
            block = others_sum(seen, round_, payload=True)
            counts = np.zeros(0) if block.counts is None else block.counts
            alone = np.flatnonzero(counts == 1)
            rows[round_] = first + block.rows[alone].astype(np.int64), words_of(block)[alone]
        count = sum(len(numbers) for numbers, _ in rows.values())
        return Claims(rounds=rounds, made=(LoneRowsClaim(rows=rows),), details={"rows": count})
