"""What a client's records are about, from the weights of its attribute vectors.

In HPFL's weighted mean (eq. 3) a client sends, for every attribute k, the weight
w_k = delta I_k Acc_k: its iterations on the attribute (records times epochs) times its accuracy.
Accuracies of one client differ little between attributes, so the weights are, up to a factor, the
histogram of its records.
"""

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, need
from attacks.scoring.profiles import HistogramClaim
from attacks.scoring.sets import SetClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.named import named_payload_rounds, named_rows, sees_named_rows
from secure_fedrec.wire import View

ATTRIBUTES = "attributes"
"""Secret: a client's records per attribute, and the attributes that it has records of."""


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
