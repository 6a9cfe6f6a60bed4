"""What clients of the item-table family train, side by side, and the arithmetic of their loops.

A method trains one client's model at a time, in single precision. ``Models`` holds those of a batch
in columns; a client's part of every column is its own, and its result a function of that alone.
"""

import math
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IndexArray, IntArray
from secure_fedrec.core.compiled import released_loop
from secure_fedrec.settings import Count, NonNegative, Rate, Settings, Unit

SingleArray: TypeAlias = npt.NDArray[np.float32]
"""Reals of a model on a client."""


class ItemTableTraining(Settings, section="local"):
    """How a client trains in a round.

    Args:
        epochs: most passes over the client's examples.
        batch_size: examples of a step.
        negatives: items drawn for every positive, anew in every round.
        decay: factor on all step sizes after every round.
        batch_decay: factor on a client's step sizes after each of its steps; every round starts
            with whole ones.
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
        own: float32[B, q], what it keeps to itself beside the personal table.
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


@released_loop
def logistic(logit: Any, label: Any) -> tuple[Any, Any]:
    """Cross entropy of ``sigmoid(logit)`` with a label, and its slope in the logit."""
    one, nought = np.float32(1.0), np.float32(0.0)
    tail = math.exp(-abs(np.float32(logit)))
    loss = np.float64(max(logit, nought) - logit * label) + math.log1p(np.float64(tail))
    sigmoid = (one if logit >= nought else tail) / (one + tail)
    return loss, sigmoid - label


@released_loop
def slope(logit: Any, label: Any) -> Any:
    """The second of what ``logistic`` gives."""
    one = np.float32(1.0)
    tail = math.exp(-abs(np.float32(logit)))
    return (one if logit >= np.float32(0.0) else tail) / (one + tail) - label
