"""Features of clients from which attributes such as gender or age may be told."""

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, need
from attacks.families.split.dense_layer import DenseLayerInputs
from attacks.families.split.flat_uploads import FlatUploads
from attacks.families.split.touched_rows import row_changes
from attacks.scoring.attributes import FeatureClaim
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.wire import View


class AttributeInference(OneRound, SuiteAttack):
    """Gathers what one upload says about a client, for a classifier of its attributes.

    Game: Given one upload of each client, and the attributes of some clients, tell those of the
        others.
    Adversary: Honest-but-curious server that knows the attributes of some clients.
    Needs: Payload of the uploads of one round, and names and shapes of the federated parameters.
    Statistic: Ridge classifier, cross-validated over clients, on the private vector as dense-layer
        reads it and the length of the change of every embedding row.
    Reference: Attribute inference from recommenders' representations (Weinsberg et al. 2012).
    Limits: A linear classifier: a stronger one can only learn more. The same classifier on the true
        training data stands beside it as the ceiling.
    """

    name = "attribute-inference"
    control = Control(
        measure="attribute_auc",
        on="split",
        breaks="owners",
        secrets={"attributes.group": lambda planted: planted["groups"]},
    )

    def claim(self, view: View) -> Claims:
        """Hand over the features of the clients of the first usable round."""
        uploads = FlatUploads.read(view)
        tables = uploads.architecture.tables()
        parts = [uploads.each(table, row_changes) for table in tables]
        vectors = DenseLayerInputs().run(view)
        if isinstance(vectors, Claims):
            parts += [claim.vectors for claim in vectors.of(VectorClaim)]
        need(parts, "neither an embedding table nor a private vector to read")
        claim = FeatureClaim(clients=uploads.clients, features=np.concatenate(parts, axis=1))
        return Claims(rounds=(uploads.round,), made=(claim,))
