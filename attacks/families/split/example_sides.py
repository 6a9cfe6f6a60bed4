"""Which way an example moved its item's vector, through a network with one hidden layer.

The gradient at an item's vector is (p - y) H' (a * w): H reads the vector into the hidden units, w
reads the units, and a says which of these are on. So the vector moves along one of as many lines as
there are sets of units, up for a rated item and down for a sampled one.
"""

import numpy as np

from attacks.families.split.architecture import Architecture
from attacks.view.blocks import flat_view
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.wire import View

_LAYERS, _MOST_UNITS = 2, 16
"""Dense layers that are read, and units of the first, whose sets are gone through."""

_NEAR = 1e-3
"""Sine of the angle between a change and its line, at most."""


def sides(view: View, round_: int, changes: FloatArray, needed: float) -> IntArray:
    """1 where a change can only be of a rated item, -1 of a sampled one, 0 where it is not known.

    Args:
        view: of an algorithm with named parameters, and the public table of the round.
        round_: whose table the clients started from.
        changes: float64[K, d], of one example each.
        needed: bits that a line has to hold beyond the choice among all lines.
    """
    found = np.zeros(len(changes), dtype=np.int64)
    flat, told, width = flat_view(view), Architecture.of(view), changes.shape[1]
    layers, place = told.dense_layers(), view.public["private_input"]
    if flat is None or len(layers) != _LAYERS or width == 1:
        return found
    values = flat.table(round_).reshape(-1)
    first, output = (
        values[each.weight.start : each.weight.stop].reshape(each.weight.shape) for each in layers
    )
    inputs = np.delete(first, place["first"] + np.arange(told.private), axis=1)
    if len(first) > _MOST_UNITS or inputs.shape[1] != width or len(output) != 1:
        return found
    on = np.arange(1, 2 ** len(first))[:, None] >> np.arange(len(first)) & 1
    lines = _units((on * output) @ inputs)
    bits = needed + float(np.log2(2.0 * len(lines) * max(1, len(changes))))
    least = np.sqrt(1.0 - min(_NEAR, 2.0 ** (-bits / (width - 1))) ** 2)
    for number, unit in enumerate(_units(changes)):
        along = lines @ unit
        found[number] = int(along.max() >= least) - int(along.min() <= -least)
    return found


def _units(rows: FloatArray) -> FloatArray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
