"""Fed3CR's generator phi: a perceptron from a client's two prototypes to its transfer matrix.

    W_n = scale reshape(phi([g; p]), d x d)      g, p: mean rows of G, P_n over the rated items

Layer l maps ``sizes[l]`` to ``sizes[l + 1]`` values, relu between layers. The parameters lie in one
vector, layer by layer: a row of weights per input, then the biases. So a step skips the rows of
inactive units, in both directions, which is half of the work: the last layer, ten times 2 d times
d^2, is larger than many item tables.

A phi without inputs is one matrix W for all clients: a layer of biases only.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.streams import Stream, uniform_reals

SCALES = ("width", "matrix")
ADAPTIVE, CONSENSUS, UNIFIED = TRANSFERS = ("adaptive", "consensus", "unified")


def generator_sizes(
    rank: int, *, layers: int, factor: int, scale: str, reads: bool = True
) -> IntArray:
    """int64[layers + 1], values between the layers.

    Args:
        rank: d.
        layers: how many, 1 or more.
        factor: the paper's length scale coefficient.
        scale: where it acts: on the "width" of the hidden layers, factor d; or on the "matrix",
            and hidden layers are as wide as the input.
        reads: whether it reads prototypes.
    """
    if not reads:
        return np.array([0, rank * rank])
    hidden = factor * rank if scale == "width" else 2 * rank
    return np.array([2 * rank] + [hidden] * (layers - 1) + [rank * rank])


def generator_start(
    sizes: IntArray, scale: float, stream: Stream, *, spread: float = 1.0
) -> FloatArray:
    """Parameters under which W_n is near the identity: float64[P].

    Weights and biases are uniform within 1 / sqrt(inputs) of 0, except the last biases, which are
    the identity; the last layer is divided by the scale of the matrix. So the first enhanced
    consensus is almost the consensus. ``spread`` is a factor on all that is drawn.
    """
    parts = []
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        rows = np.arange(inputs + 1)
        words = stream.words_at(0, np.full_like(rows, layer), rows, width=int(outputs))
        parts.append(spread * ((2 * uniform_reals(words) - 1) / np.sqrt(max(inputs, 1))))
    parts[-1][-1] = np.eye(int(np.sqrt(sizes[-1]))).ravel()
    parts[-1] /= scale
    return np.concatenate([part.ravel() for part in parts])


def n_parameters(sizes: Sequence[int] | IntArray) -> int:
    """How many parameters a generator has."""
    return int(sum((one + 1) * other for one, other in pairwise(sizes)))


@compiled_loop
def generate(phi: SingleArray, sizes: IntArray, units: SingleArray) -> None:
    """``units[l + 1] = relu(units[l] A_l + b_l)``, the last layer without relu.

    Args:
        phi: float32[P].
        sizes: int64[L + 1].
        units: float32[L + 1, widest]; row 0 holds the input, the others are written.
    """
    first = 0
    last = len(sizes) - 2
    for layer in range(last + 1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        out = units[layer + 1, :outputs]
        out[:] = phi[first + inputs * outputs : first + (inputs + 1) * outputs]
        for unit in range(inputs):
            value = units[layer, unit]
            if value != 0:
                row = phi[first + unit * outputs : first + (unit + 1) * outputs]
                for place in range(outputs):
                    out[place] += value * row[place]
        if layer < last:
            for place in range(outputs):
                out[place] = max(out[place], np.float32(0))
        first += (inputs + 1) * outputs


@compiled_loop
def teach(
    phi: SingleArray, sizes: IntArray, units: SingleArray, pulls: SingleArray, rate: np.float32
) -> None:
    """One gradient step: backwards through all layers, each moved after it was read.

    Args:
        phi: float32[P], moved.
        sizes: int64[L + 1].
        units: float32[L + 1, widest], of ``generate``.
        pulls: float32[L + 1, widest]; the last row holds the gradient of the output, the others
            are written, row 0 with that of the input.
        rate: float32, step size.
    """
    first = len(phi)
    for layer in range(len(sizes) - 2, -1, -1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        first -= (inputs + 1) * outputs
        pull = pulls[layer + 1, :outputs]
        for unit in range(inputs):
            value = units[layer, unit]
            if layer > 0 and value <= 0:
                pulls[layer, unit] = 0
                continue
            row = phi[first + unit * outputs : first + (unit + 1) * outputs]
            pulls[layer, unit] = np.dot(row, pull)
            step = rate * value
            for place in range(outputs):
                row[place] -= step * pull[place]
        biases = phi[first + inputs * outputs : first + (inputs + 1) * outputs]
        for place in range(outputs):
            biases[place] -= rate * pull[place]
