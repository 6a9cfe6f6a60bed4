"""A client's labels from the change of the bias of the output layer.

Under cross-entropy the bias of class k moves by the step size times sum over examples of
[label is k] - p_k: up for the classes that the client has, down for all others. What a trained
model foresees, p, is added back (``expectation``).
"""

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, need
from attacks.families.split.expectation import expected_shares, label_shares, largest_step
from attacks.families.split.flat_uploads import FlatUploads
from attacks.scoring.profiles import LabelClaim
from attacks.scoring.sets import SetClaim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import Step, View

MAJORITY = "majority"
"""Secret: the class that most of a client's examples have."""

CLASSES = "classes"
"""Secret: the classes that occur among a client's examples."""


class OutputBias(OneRound, SuiteAttack):
    """Reads which classes a client has.

    Game: Given one upload of a client, tell the class of most of its examples, and which classes
        occur.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round, and names and shapes of the federated parameters; an
        output layer with a unit per class. Better with the public model of the round and plain or
        momentum SGD.
    Statistic: Change of the output bias per class over the length of the step, plus what the model
        expected of the client: the dense layers before the output, run on inputs that the upload
        gives away. The largest share names the majority, a share of more than half an example says
        that the class occurs. Without the model: the change alone, and its sign.
    Reference: Label inference from the sign of last-layer gradients (Zhao et al. 2020, iDLG), with
        the inputs of a dense layer from its gradients (Geiping et al. 2020, prop. 3.1).
    Limits: The length of a clipped step is known within bounds only. The dense layers are taken to
        be joined by ReLU. Adaptive optimisers leave the change alone.
    """

    name = "output-bias"
    control = Control(
        measure="label_accuracy",
        on="split",
        breaks="owners",
        secrets={
            f"labels.{MAJORITY}": lambda planted: planted["classes"].argmax(axis=1),
            f"sets.{CLASSES}": lambda planted: planted["classes"] > 0,
        },
    )

    def claim(self, view: View) -> Claims:
        """Claim the labels of every client of the first usable round."""
        uploads = FlatUploads.read(view)
        layers = uploads.architecture.dense_layers()
        classes = layers[-1].bias.shape[0] if layers else 0
        need(classes >= 2, "the output layer has no unit per class")
        bias = layers[-1].bias
        change, examples = uploads.change(bias), np.maximum(np.abs(uploads.weights()), 1.0)
        scores, predicted = change, np.asarray(change > 0)
        shares = _shares(view, uploads, change / examples[:, None], examples)
        if shares is not None:
            scores, predicted = shares, np.asarray(shares > 0.5 / examples[:, None])
        made = (
            LabelClaim(name=MAJORITY, clients=uploads.clients, scores=scores),
            SetClaim(name=CLASSES, clients=uploads.clients, scores=scores, predicted=predicted),
        )
        details = {"layer": bias.name, "expectation": shares is not None}
        return Claims(rounds=(uploads.round,), made=made, details=details)


def _shares(
    view: View, uploads: FlatUploads, changes: FloatArray, examples: FloatArray
) -> FloatArray | None:
    """Shares of the classes, or None where the adversary cannot tell what the model expected."""
    if not view.sees(Step.MODEL) or uploads.round not in view.payload_rounds(Step.MODEL):
        return None
    largest = largest_step(view.public["algorithm"].get("local", {}), examples)
    if largest is None:
        return None
    return label_shares(changes, expected_shares(uploads, view.table(uploads.round)), largest)
