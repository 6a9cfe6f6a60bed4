"""Models of the item-table family in training, and the arithmetic of their loops.

A method trains one client's model at a time, in single precision. ``Models`` holds those of a batch
in columns; a client's part of every column is its own, and its result a function of that alone.
"""

import math
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.settings import Count, NonNegative, Positive, Rate, Settings, Unit, Within

SingleArray: TypeAlias = npt.NDArray[np.float32]
"""Reals of a model on a client."""

StepSize: TypeAlias = Annotated[float, Within(least=2.0**-24)]
"""A step size by which methods divide in single precision, so the smallest factor must not make it
0."""


class ItemTableTraining(Settings, section="local"):
    """How a client trains in a round.

    Args:
        epochs: most passes over the client's examples.
        batch_size: examples of a step.
        negatives: items drawn for every positive, anew in every round.
        decay: factor on all step sizes after every round.
        batch_decay: factor on a client's step sizes after each of its steps; every round starts
            with the full step sizes.
        tolerance: a client stops after an epoch in which its mean loss, of all steps so far,
            changed by less than this share of it; 0 never stops.

    Raises:
        ConfigError: a field is out of range.
    """

    epochs: Annotated[Count, Unit("epochs")] = 1
    batch_size: Annotated[Count, Unit("examples")] = 256
    negatives: Annotated[Count, Unit("items")] = 4
    decay: Rate = 1.0
    batch_decay: Rate = 1.0
    tolerance: NonNegative = 0.0


class ItemTableStart(Settings, section="start"):
    """Factors on where a model starts, of methods whose systems draw from fixed distributions.

    Args:
        items: on all item tables, N(0, 1) before.
        own: on the vector that a client keeps to itself, uniform before.

    Raises:
        ConfigError: a field is out of range.
    """

    items: Positive = 1.0
    own: Positive = 1.0


class Models(NamedTuple):
    """The models of a batch of B clients, in training.

    Attributes:
        indptr: int64[B + 1]; client b owns the rows ``indptr[b]:indptr[b + 1]`` of the next three.
        items: int32[R], item of every row, ascending within a client: all items of a dense method,
            else those of its examples.
        table: float32[R, d], its copy of the item table.
        personal: float32[R, d], its personal item table; float32[0, d] without one.
        positives_indptr: int64[B + 1], into the next.
        positives: int64[P], the rows of a client's training items, ascending.
        shared: float32[B, S], its copy of the further shared parameters.
        own: float32[B, q], private parameters beside the personal table.
    """

    indptr: IntArray
    items: IndexArray
    table: SingleArray
    personal: SingleArray
    positives_indptr: IntArray
    positives: IntArray
    shared: SingleArray
    own: SingleArray


class Batch(NamedTuple):
    """One step's examples of the clients that take one.

    Attributes:
        clients: int64[k], places of the clients in ``Models``.
        begin, end: int64[k]; client ``clients[i]`` has the examples ``begin[i]:end[i]``, one at
            least.
        rows: int64[N], row of every example in ``Models.table``.
        labels: float32[N], 1 for a positive and 0 for a negative.
        rates: float32[k], factor on the client's step sizes.
    """

    clients: IntArray
    begin: IntArray
    end: IntArray
    rows: IntArray
    labels: SingleArray
    rates: SingleArray


@compiled_loop
def logistic(logit: Any, label: Any) -> tuple[Any, Any]:
    """Cross entropy of ``sigmoid(logit)`` with a label, and its slope in the logit."""
    one, nought = np.float32(1.0), np.float32(0.0)
    tail = math.exp(-abs(np.float32(logit)))
    loss = np.float64(max(logit, nought) - logit * label) + math.log1p(np.float64(tail))
    sigmoid = (one if logit >= nought else tail) / (one + tail)
    return loss, sigmoid - label


@compiled_loop
def tails(logits: SingleArray, out: SingleArray, scratch: IndexArray) -> None:
    """``exp(-abs(logit))`` of every logit, to within two units in the last place.

    A polynomial (Cephes) on whole vectors: the library's exponential takes one number at a time.

    Args:
        logits: float32[N].
        out: float32[N].
        scratch: int32[N].
    """
    single = np.float32
    for place in range(len(logits)):
        power = -min(abs(logits[place]), single(87.0))
        twos = np.rint(power * single(1.44269504))
        rest = power - twos * single(0.693359375) + twos * single(2.12194440e-4)
        value = single(1.9875691500e-4)
        value = value * rest + single(1.3981999507e-3)
        value = value * rest + single(8.3334519073e-3)
        value = value * rest + single(4.1665795894e-2)
        value = value * rest + single(1.6666665459e-1)
        value = value * rest + single(5.0000001201e-1)
        out[place] = value * (rest * rest) + rest + single(1.0)
        scratch[place] = (np.int32(twos) + np.int32(127)) << np.int32(23)
    factors = scratch.view(np.float32)
    for place in range(len(logits)):
        out[place] *= factors[place]


@compiled_loop
def cross_entropy(logits: SingleArray, tails: SingleArray, labels: SingleArray) -> float:
    """Sum of the cross entropies of ``logistic``, by ``tails`` of the logits.

    Logarithms are taken of products of terms from 1 to 2, few enough to stay in the range of a
    double.
    """
    total, product = 0.0, 1.0
    for place in range(len(logits)):
        logit = logits[place]
        total += max(logit, np.float32(0.0)) - logit * labels[place]
        product *= 1.0 + tails[place]
        if place % 512 == 511:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@compiled_loop
def errors_of(
    logits: SingleArray, tails: SingleArray, labels: SingleArray, errors: SingleArray
) -> None:
    """``errors = sigmoid(logits) - labels``, by their ``tails``, which may be ``errors`` itself."""
    one, nought = np.float32(1.0), np.float32(0.0)
    for place in range(len(logits)):
        tail = tails[place]
        share = one if logits[place] >= nought else tail
        # Not ``/``: its check for a divisor of 0 prevents vector instructions.
        errors[place] = np.divide(share, one + tail) - labels[place]
