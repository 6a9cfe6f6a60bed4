"""A client's labels from the change of the bias of the output layer.

Under cross-entropy the bias of class k moves by the step size times sum over examples of
[label is k] - p_k: up for the classes that the client has, down for all others.

A trained model predicts much of a client's labels by p, and the predicted part does not appear in
the gradient. But the server has the model as well: the change of the first dense layer reveals its
inputs (``dense_layer``), including the private ones, so that the later layers can be computed. The
predicted part is then added back.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attacks.base import Claims, Control, OneRound, Secrets, SuiteAttack, need
from attacks.families.split.dense_layer import recover_inputs
from attacks.families.split.flat_uploads import Architecture, DenseLayer, FlatUploads
from attacks.scoring.profiles import LabelClaim
from attacks.scoring.sets import SetClaim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import Step, View

MAJORITY = "majority"
"""Secret: the class that most of a client's examples have."""

CLASSES = "classes"
"""Secret: the classes that occur among a client's examples."""


_LABELS: Secrets = {
    f"labels.{MAJORITY}": lambda planted: planted["classes"].argmax(axis=1),
    f"sets.{CLASSES}": lambda planted: planted["classes"] > 0,
}


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
    Limits: The length of a clipped step is known within bounds only. Assumes ReLU between the dense
        layers. With adaptive optimisers, only the change itself is used.
    """

    name = "output-bias"
    control = Control(measure="label_accuracy", on="split", breaks="owners", secrets=_LABELS)

    def claim(self, view: View) -> Claims:
        """Claim the labels of every client of the first usable round."""
        uploads = FlatUploads.read(view)
        layers = uploads.architecture.dense_layers()
        classes = layers[-1].bias.shape[0] if layers else 0
        need(classes >= 2, "the output layer does not have a unit per class")
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


_GRADIENT_STEPS = ("sgd", "momentum")


def expected_shares(uploads: FlatUploads, table: FloatArray) -> FloatArray:
    """Share of each class that the model expects of each client's examples: float64[B, classes].

    Runs the chain of dense layers before the output, joined by ReLU, on inputs recovered from the
    upload: exact where an input is the same for all examples, a mean weighted by the examples'
    gradients where it is not.

    Args:
        uploads: of a round.
        table: the public table that the clients worked on in that round.
    """
    flat = table.reshape(-1)

    chain = _chain(uploads.architecture)
    first = chain[0]
    found = recover_inputs(uploads.change(first.weight), uploads.change(first.bias))[0]
    for layer in chain[:-1]:
        found = np.maximum(found @ layer.weight.of(flat).T + layer.bias.of(flat), 0.0)
    scores = found @ chain[-1].weight.of(flat).T + chain[-1].bias.of(flat)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def largest_step(local: Mapping[str, Any], examples: FloatArray) -> FloatArray | None:
    """How far local training can move a parameter per unit of its mean gradient: float64[B].

    Args:
        local: the public settings of local training.
        examples: float64[B], how many each client has.

    Returns:
        None if changes are not multiples of gradients (Adam).
    """
    if local.get("optimizer") not in _GRADIENT_STEPS:
        return None
    batch = local["batch_size"]
    steps = np.ones_like(examples) if batch is None else np.ceil(examples / batch)
    # A gradient of momentum m is used again, m, m^2, ... times.
    kept = float(local["momentum"]) if local["optimizer"] == "momentum" else 0.0
    return np.asarray(float(local["learning_rate"]) * local["epochs"] * steps / (1.0 - kept))


def label_shares(changes: FloatArray, expected: FloatArray, largest: FloatArray) -> FloatArray:
    """Share of each class among each client's examples: float64[B, classes].

    The output bias changes by ``s (y - p)``: what the client has less what the model expected,
    times a step of which two bounds are known. It is no longer than training can make it (shorter
    where a gradient was clipped), and no shorter than half of |change|, as half of |y - p| is at
    most 1. The geometric mean of the two is taken.

    Args:
        changes: float64[B, classes], of the output bias, per example.
        expected: float64[B, classes], p.
        largest: float64[B], the longest step.
    """
    shortest = np.abs(changes).sum(axis=1) / 2.0
    step = np.maximum(np.sqrt(shortest * largest), shortest)[:, None]
    surprise = np.divide(changes, step, out=np.zeros_like(changes), where=step > 0)
    return np.asarray(expected + surprise)


def _chain(architecture: Architecture) -> tuple[DenseLayer, ...]:
    """The last dense layers, each of which reads the previous one's output."""
    layers = architecture.dense_layers()
    start = len(layers) - 1
    while start and layers[start].weight.shape[1] == layers[start - 1].weight.shape[0]:
        start -= 1
    return layers[start:]
