"""What a bag is: the width of its vectors, how many a client may give, and their order."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.layer_interfaces import BagShape
from secure_fedrec.uploads import SetBlock

_FIRST = 2
"""Number of leading values that usually distinguish two vectors; if not, all are compared."""


def canonical_order(words: RingArray, codec: FixedPoint) -> RingArray:
    """Ring vectors [N, d] in ascending order of their values, the first value first.

    Equal bags are equal arrays: a bag does not show which client gave a vector, or when. Words in
    this order are not copied.
    """
    integers = codec.to_integers(words)
    if _ascend(integers):  # in the order of clients
        return words
    first = integers[:, :_FIRST]
    order = np.lexsort(first.T[::-1])
    tied = np.zeros(len(order) + 1, dtype=np.bool_)
    tied[1:-1] = np.all(first[order[1:]] == first[order[:-1]], axis=1)
    tied = tied[1:] | tied[:-1]
    undecided = order[tied]
    order[tied] = undecided[np.lexsort(integers[undecided].T[::-1])]
    ordered: RingArray = words[order]
    return ordered


@compiled_loop
def _ascend(vectors: IntArray) -> bool:
    """Whether no vector is less than the one before it."""
    for row in range(1, len(vectors)):
        for place in range(vectors.shape[1]):
            if vectors[row - 1, place] > vectors[row, place]:
                return False
            if vectors[row - 1, place] < vectors[row, place]:
                break
    return True


def require_bags(given: Mapping[str, SetBlock], due: Mapping[str, BagShape], clients: int) -> None:
    """Check what a batch of clients gives to the bags.

    Raises:
        WireError: a bag is missing or unknown, its vectors have another width or type, or a client
            gives more of them than it may.
    """
    if given.keys() != due.keys():
        raise WireError(f"vectors for the bags {sorted(due)} were due, got {sorted(given)}")
    for name, shape in due.items():
        block = given[name]
        if len(block) != clients:
            raise WireError(f"{name}: {len(block)} segments for {clients} clients")
        if block.values is None or block.values.dtype != np.float64:
            raise WireError(f"{name}: vectors to protect are float64")
        if block.values.shape[1] != shape.width:
            raise WireError(f"{name}: width {block.values.shape[1]}, declared {shape.width}")
        if len(block) and int(block.lengths.max()) > shape.most:
            most = int(block.lengths.max())
            raise WireError(f"{name}: {most} vectors of one client, at most {shape.most} may be")
