"""What a client will choose, from the rows of the item table that it never touches."""

from attacks.base import Claims, Control, SuiteAttack, need
from attacks.families.rated_set import count_touches, upload_rounds
from attacks.scoring.held_out import HeldOutClaim
from attacks.scoring.rows import Rows
from attacks.view.knowledge import Knowledge
from secure_fedrec.wire import View

_HISTORY = (1, 5, 10, 30, 100)


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
    Limits: Silent where negatives are drawn from everything that is not trained on, or once for
        all rounds; a client that uploads the whole table hides which rows it touched.
    """

    name = "never-touched"
    control = Control(
        measure="held_out_auc",
        on="untouched",
        secrets={"held_out.items": lambda planted: planted["held_out"]},
        breaks="owners",
    )

    def claim(self, view: View) -> Claims:
        """Claim that what is in no upload is what the client will choose."""
        rounds, known = upload_rounds(view), Knowledge.of(view)
        need(not known.rated_only, "clients send rows of their rated items alone")
        need(not known.dense, "every client sends the same rows")
        clients, counts, history = count_touches(view, rounds, keep=_HISTORY)
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
