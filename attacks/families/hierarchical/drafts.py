"""What the drafts of hierarchical personalization give away about the members of a client.

A client clusters the vectors of its users, and those of its items, and sends the centres in their
place. The centre of a cluster of one is that member's vector.
"""

from typing import Final

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, common_rounds, need, require_seen
from attacks.scoring.drafts import DraftClaim
from attacks.view.coalition import others_vectors
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Step, View

_USERS = "user-drafts"
MEMBERS: Final = {_USERS: "user_embeddings", "item-drafts": "item_representations"}
"""Private table of the members behind each bag."""


class Drafts(OneRound, SuiteAttack):
    """Takes every draft for a member's vector, and its sender for the member's client.

    Game: Given the drafts of one round, tell vectors of single members, and which client holds a
        member.
    Adversary: Honest-but-curious server.
    Needs: Payload of the bags of one round; the sender of each message, to place members.
    Statistic: Every draft, as it stands: the centre of a cluster of one is that member's vector. A
        member belongs to the client that sent the draft closest to its vector.
    Reference: HPFL (Wu et al. 2021), section 4.2, whose argument is that drafts are centres.
    Limits: The place of a member is an upper bound: it takes the member's vector to look it up.
        Attributes are told for a disclosed vector only.
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
