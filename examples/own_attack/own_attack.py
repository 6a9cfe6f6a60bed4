"""An own attack: what a client uploads first and last, it has rated."""

from attacks.base import Claims, Control, SuiteAttack
from attacks.families.rated_set import count_touches, upload_rounds
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from secure_fedrec.wire import View


class TwoRounds(SuiteAttack):
    """Compares the first upload of a client with its last.

    Game: Given two uploads of a client, tell its rated items from all others.
    Adversary: Honest-but-curious server.
    Needs: Item numbers of the uploads of one round at least.
    Statistic: 1 for items that both uploads contain, one half for items that one contains.
    Reference: Intersection attacks on mixes.
    Limits: Virtual items that are drawn once and for all are in both uploads.
    """

    name = "two-rounds"
    control = Control(measure="auc", on="ratings", floor=0.9, breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim that what comes twice is rated."""
        rounds = upload_rounds(view)
        rounds = tuple(dict.fromkeys((rounds[0], rounds[-1])))
        clients, counts, _ = count_touches(view, rounds)
        claim = RatedSetClaim(
            clients=clients,
            scores=counts.divided(counts.highest()),
            visible=Rows.marked(counts.listed),
        )
        return Claims(rounds=rounds, made=(claim,))


ATTACK = TwoRounds()
