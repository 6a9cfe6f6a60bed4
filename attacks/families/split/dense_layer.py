"""A private vector from the change of the first dense layer that reads it.

A dense layer z = W x + b has dL/dW = sum_e g_e x_e' and dL/db = sum_e g_e, with g_e the gradient at
its outputs and e the examples of the client. An input that is the same for all examples can be
factored out of the sum: dW = db x'. A user's private vector is such an input, and the user uploads
changes in the direction of these gradients.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attacks.base import Claims, Control, OneRound, SuiteAttack, need
from attacks.families.split.flat_uploads import DenseLayer, FlatUploads
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import View

PRIVATE_TABLE = "private_parameters"
"""Private table that holds the true vectors."""

_FEWEST_UNITS = 4
"""With fewer units, changing inputs fit nearly as well as constant ones; with one, all fit."""

_TINY = np.finfo(np.float64).tiny


class DenseLayerInputs(OneRound, SuiteAttack):
    """Divides the change of the weights by the change of the bias.

    Game: Given one upload of a client, tell its private vector.
    Adversary: Honest-but-curious server.
    Needs: Payload of the uploads of one round, and names and shapes of the federated parameters; a
        dense layer that reads the vector, of four units or more where its place is not known.
    Statistic: Change of the weights over change of the bias of the dense layer, by least squares
        over its units. If it is not known which inputs of which layer are private, those that best
        fit the form dW = db x' are used.
    Reference: The exact inputs of a biased dense layer from its gradients (Geiping et al. 2020,
        prop. 3.1), applied to FURL's private parameters, FedNCF's user vectors and
        Fed3CR's personal prototypes.
    Limits: Exact for one step on all examples. With several steps the vector moves while it is
        read, and its length is distorted more than its direction; adaptive optimisers and momentum
        break the quotient. Needs a vector that enters by concatenation; other inputs that hardly
        change within a client can be taken for it where its place is not known.
    """

    name = "dense-layer"
    control = Control(measure="reidentified_share", on="split", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the private vector of every client of the first usable round."""
        uploads = FlatUploads.read(view)
        size = need(uploads.architecture.private, "no parameter is private")
        algorithm: Mapping[str, Any] = view.public["algorithm"]
        told = algorithm.get("private_input")
        known: Mapping[str, Any] | None = view.public.get("private_input", told)
        first = None if known is None else int(known["first"])
        layers = [
            layer
            for layer in uploads.architecture.dense_layers()
            if layer.weight.shape[1] >= size + (first or 0)
            and (
                layer.weight.shape[0] >= _FEWEST_UNITS
                if known is None
                else layer.weight.name == known["layer"]
            )
        ]
        need(layers, "no dense layer can read the private parameters")
        # If several layers fit equally well, the first one.
        best = max((_read(uploads, layer, size, first) for layer in layers), key=lambda at: at.fit)
        secret = {} if known is None else known.get("secret", {})
        claim = VectorClaim(
            round=uploads.round,
            clients=uploads.clients,
            vectors=best.vectors,
            table=secret.get("table", PRIVATE_TABLE),
            of_items=secret.get("of_items", False),
            told=uploads.plain,
        )
        where = {"layer": best.layer, "first_input": best.first, "fit": best.fit}
        return Claims(rounds=(uploads.round,), made=(claim,), details=where)


class _Block(NamedTuple):
    """Inputs of a layer that may be the private vector.

    Attributes:
        layer: name of its weight.
        first: number of the first input.
        fit: mean over the inputs of their median fit over the clients whose uploads can be read.
        vectors: float64[B, size].
    """

    layer: str
    first: int
    fit: float
    vectors: FloatArray


def recover_inputs(weights: FloatArray, biases: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inputs of a dense layer from its changes, client by client.

    Args:
        weights: float64[B, units, inputs], changes of W up to one factor per client.
        biases: float64[B, units], changes of b, with the same factor.

    Returns:
        float64[B, inputs] each: the inputs, as if each were the same for all examples, 0 where the
        layer did not change; and the share of an input's squared weight changes that is explained
        so, in [0, 1]: 1 where it is the same for all examples, 0 where they did not change.
    """
    # Least squares of dW = db x' over the units: x = dW' db / |db|^2.
    products = np.einsum("bu,bui->bi", biases, weights)
    length = (biases**2).sum(axis=1)[:, None]
    sizes = (weights**2).sum(axis=1)
    values = np.divide(products, length, out=np.zeros_like(products), where=length > _TINY)
    norms = sizes * length
    fits = np.divide(products**2, norms, out=np.zeros_like(products), where=norms > _TINY)
    return values, fits


def _read(uploads: FlatUploads, layer: DenseLayer, size: int, first: int | None) -> _Block:
    """The private vector as input of a layer: at a known place, or where inputs are most constant.

    Args:
        uploads: of a round.
        layer: the layer.
        size: number of private values.
        first: number of the first private input; None to search for it.
    """
    values, fits = recover_inputs(uploads.change(layer.weight), uploads.change(layer.bias))
    told = fits[uploads.plain] if uploads.plain.any() else fits
    ends = np.concatenate([[0.0], np.cumsum(np.median(told, axis=0))])
    means = (ends[size:] - ends[:-size]) / size
    if first is None:
        first = int(np.argmax(means))
    vectors = values[:, first : first + size]
    return _Block(layer.weight.name, first, float(means[first]), vectors)
