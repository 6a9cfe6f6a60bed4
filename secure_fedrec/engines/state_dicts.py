"""State_dicts of NumPy arrays or PyTorch tensors. PyTorch is not imported for them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fedrec.errors import MisfitError

StateDict: TypeAlias = Mapping[str, Any]
"""NumPy arrays or PyTorch tensors, by name."""


def as_arrays(state: StateDict) -> dict[str, Any]:
    """A state_dict in NumPy's arrays, which share its memory where they can.

    Raises:
        MisfitError: a tensor has a dtype that NumPy has not.
    """
    return {name: _array(name, value) for name, value in state.items()}


def _array(name: str, value: Any) -> Any:
    if not hasattr(value, "detach"):
        return value
    try:
        return value.detach().cpu().numpy()
    except TypeError:
        problem = f"holds {value.dtype}, which NumPy lacks: convert it with .float()"
        raise MisfitError(f"array {name!r} {problem}") from None


def like(before: Any, array: NDArray[Any]) -> Any:
    """An array of the same kind as another one: for a tensor, a tensor of its dtype and device."""
    return before.new_tensor(array) if hasattr(before, "new_tensor") else np.asarray(array)


def with_weight(handed: Any) -> tuple[StateDict, Any]:
    """A client's update: a state_dict, or a pair of one and a weight, by default 1.

    Raises:
        MisfitError: the update has another form.
    """
    pair = handed if isinstance(handed, tuple) else (handed, 1)
    if len(pair) != 2 or not isinstance(pair[0], Mapping):
        raise MisfitError("hands in neither a state_dict nor a pair of one and a weight")
    return pair
