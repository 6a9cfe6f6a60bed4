"""Initial values: the distributions from which the systems of the family draw."""

import math

import numpy as np

from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.special import ndtri
from secure_fedrec.streams import Stream, Streams, uniform_reals


def normal(stream: Stream, shape: tuple[int, int], lanes: IntArray | None = None) -> FloatArray:
    """N(0, 1): float64[rows, width], row r a function of (stream, its lane); lanes count from 0."""
    return np.asarray(ndtri(_uniform(stream, shape, lanes)))


def linear(stream: Stream, inputs: int, outputs: int = 1) -> FloatArray:
    """A linear layer, uniform within 1 / sqrt(inputs) of 0.

    Returns:
        float64[outputs * (inputs + 1)], the weights, output after output, then the biases.
    """
    reals = _uniform(stream, (1, outputs * (inputs + 1)), None)[0]
    return np.asarray((2 * reals - 1) / math.sqrt(inputs))


def own_linear(
    streams: Streams, name: str, inputs: int, clients: IntArray, *, scale: float = 1.0
) -> SingleArray:
    """A linear layer of one output for each client, times ``scale``: float32[B, inputs + 1].

    All are equal, as published, unless clients draw from secrets: if the server knew the start,
    only the ratings of a first upload would be unknown to it.
    """
    if streams.keyed:
        reals = _uniform(streams.private(name), (len(clients), inputs + 1), clients)
        return (scale * ((2 * reals - 1) / math.sqrt(inputs))).astype(np.float32)
    start = (scale * linear(streams.stream(name), inputs)).astype(np.float32)
    return np.repeat(start[None], len(clients), axis=0)


def own_normal(stream: Stream, width: int, clients: IntArray, *, scale: float) -> SingleArray:
    """N(0, scale^2), each client's from its own lane: float32[B, width]."""
    return (scale * normal(stream, (len(clients), width), clients)).astype(np.float32)


def _uniform(stream: Stream, shape: tuple[int, int], lanes: IntArray | None) -> FloatArray:
    lanes = np.arange(shape[0]) if lanes is None else lanes
    words = stream.words_at(0, lanes, np.zeros_like(lanes), width=shape[1])
    return uniform_reals(words)
