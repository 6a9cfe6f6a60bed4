"""Features of clients from which attributes such as gender or age may be inferred."""

import numpy as np

from attacks.base import Claims, Control, OneRound, Secrets, SuiteAttack, need
from attacks.families.item_changes import ScoreVectors
from attacks.families.split.dense_layer import DenseLayerInputs
from attacks.families.split.touched_rows import SignedRows, TouchedRows
from attacks.scoring.attributes import FeatureClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.truth import NotApplicable
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.wire import View

_TOLD = (TouchedRows(), SignedRows(), DenseLayerInputs(), ScoreVectors())
"""Attacks on the same uploads whose claims about a client are used as features."""


_GROUPS: Secrets = {"attributes.group": lambda planted: planted["groups"]}


class AttributeInference(OneRound, SuiteAttack):
    """Gathers what one upload reveals about a client, for a classifier of its attributes.

    Game: Given one upload of each client, and the attributes of some clients, tell those of the
        others.
    Adversary: Honest-but-curious server that knows the attributes of some clients.
    Needs: Payload of the uploads of one round, of which touched-rows, signed-rows, dense-layer or
        score-vector reads anything.
    Statistic: Ridge classifier, cross-validated over clients, on what these attacks claim about a
        client: the length of the change of every row, the positive items, the private vector.
    Reference: Attribute inference from recommenders' representations (Weinsberg et al. 2012).
    Limits: The classifier is linear; a stronger one may learn more. The same classifier on the true
        training data gives the ceiling.
    """

    name = "attribute-inference"
    control = Control(measure="attribute_auc", on="split", breaks="owners", secrets=_GROUPS)

    def claim(self, view: View) -> Claims:
        """Hand over the features of the clients of the first usable round."""
        tried = [attack.run(view) for attack in _TOLD]
        told = [each for each in tried if isinstance(each, Claims) and each.made]
        why = next((each.reason for each in tried if isinstance(each, NotApplicable)), "")
        need(told, why or "neither rows of a table nor a private vector to read")
        rated = [each for claims in told for each in claims.of(RatedSetClaim)]
        # Of the attack that tells rated from sampled, if it ran.
        parts = [_items(each) for each in rated[-1:]]
        for claims in told:
            parts += [(each.clients, each.scores) for each in claims.of(SetClaim)]
            parts += [(each.clients, each.vectors) for each in claims.of(VectorClaim)]
        clients, features = zip(*parts, strict=True)
        alike = all(np.array_equal(each, clients[0]) for each in clients)
        need(alike, "blocks of different clients can be read")
        claim = FeatureClaim(clients=clients[0], features=np.concatenate(features, axis=1))
        return Claims(rounds=told[0].rounds, made=(claim,))


def _items(claim: RatedSetClaim) -> tuple[IntArray, FloatArray]:
    """Clients, and float64[B, m]: which items are positives, or their scores if unknown."""
    scores, guess = claim.scores, claim.predicted
    if not isinstance(scores, np.ndarray):
        raise TypeError("changes of a table are grids")
    sided = isinstance(guess, np.ndarray) and bool((scores < 0).any())
    return claim.clients, np.asarray(guess if sided else scores, dtype=np.float64)
