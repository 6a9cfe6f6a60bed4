"""The backward graph of a value, as torch has recorded it."""

from typing import Any

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
from torch import Tensor


def graph_nodes(value: Tensor) -> list[Any]:
    """Every node that a backward pass from ``value`` reaches, once.

    Nodes at which gradients are left have the tensor as ``variable``.
    """
    seen: dict[Any, None] = {}
    stack: list[Any] = [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen[node] = None
            stack.extend(after for after, _ in node.next_functions)
    return list(seen)
