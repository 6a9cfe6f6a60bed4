"""A client's labels from the change of the bias of the output layer.

Under cross-entropy the bias of class k moves by the step size times sum over examples of
[label is k] - p_k: up for the classes that the client has, down for all others.
"""

import numpy as np

from attacks.base import AttackCard, Claims, NotApplicable
from attacks.claims import LabelClaim, SetClaim
from attacks.split.flat_uploads import FlatUploads
from secure_fedrec.wire import View

__all__ = ["CLASSES", "MAJORITY", "OutputBias"]

MAJORITY = "majority"
"""Secret: the class that most of a client's examples have."""

CLASSES = "classes"
"""Secret: the classes that occur among a client's examples."""


class OutputBias:
    """Reads which classes a client has."""

    name = "output-bias"
    reads_one_round = True
    reads_item_rows = False
    card = AttackCard(
        game="Given one upload of a client, tell the class of most of its examples, and which "
        "classes occur.",
        adversary="Honest-but-curious server.",
        needs="Payload of the uploads of one round, and names and shapes of the federated "
        "parameters; an output layer with a unit per class.",
        statistic="Change of the output bias per class: the largest names the majority, a positive "
        "one says that the class occurs.",
        reference="Label inference from the sign of last-layer gradients (Zhao et al. 2020, iDLG).",
        limits="Weaker where a trained model foresees the labels: what it expects, it does not "
        "learn from.",
    )

    def run(self, view: View) -> Claims | NotApplicable:
        """Claim the labels of every client of the first usable round."""
        uploads = FlatUploads.read(view)
        if isinstance(uploads, NotApplicable):
            return uploads
        layers = uploads.architecture.dense_layers()
        if not layers or layers[-1].bias.shape[0] < 2:
            return NotApplicable(reason="the output layer has no unit per class")
        change = uploads.change(layers[-1].bias)
        return Claims(
            rounds=(uploads.round,),
            labels=LabelClaim(name=MAJORITY, clients=uploads.clients, scores=change),
            sets=(
                SetClaim(
                    name=CLASSES,
                    clients=uploads.clients,
                    scores=change,
                    predicted=np.asarray(change > 0),
                ),
            ),
            details={"layer": layers[-1].bias.name},
        )
