"""What a model expects of a client, as far as the client's upload tells.

A trained model foresees much of a client's labels, and what it foresees leaves no trace in the
gradient. But the server has the model as well: the change of the first dense layer gives away its
inputs (``dense_layer``), the private ones among them, and from there the layers above can be run.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attacks.families.split.architecture import Architecture, DenseLayer, Parameter
from attacks.families.split.dense_layer import recover_inputs
from attacks.families.split.flat_uploads import FlatUploads
from secure_fedrec.core.arrays import FloatArray

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

    def value(parameter: Parameter) -> FloatArray:
        return flat[parameter.start : parameter.stop].reshape(parameter.shape)

    chain = _chain(uploads.architecture)
    first = chain[0]
    found = recover_inputs(uploads.change(first.weight), uploads.change(first.bias)).values
    for layer in chain[:-1]:
        found = np.maximum(found @ value(layer.weight).T + value(layer.bias), 0.0)
    scores = found @ value(chain[-1].weight).T + value(chain[-1].bias)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def largest_step(local: Mapping[str, Any], examples: FloatArray) -> FloatArray | None:
    """How far local training can move a parameter per unit of its mean gradient: float64[B].

    Args:
        local: the public settings of local training.
        examples: float64[B], how many each client has.

    Returns:
        None where changes are no multiples of gradients (Adam).
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
    """The last dense layers of which each reads what the one before it gives."""
    layers = architecture.dense_layers()
    start = len(layers) - 1
    while start and layers[start].weight.shape[1] == layers[start - 1].weight.shape[0]:
        start -= 1
    return layers[start:]
