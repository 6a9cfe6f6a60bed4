"""The arrays that an object holds, by name, whatever containers they are in.

Containers are mappings, lists, tuples, dataclasses and Flower's messages, records and parameters,
which are recognised by their attributes, so that flwr need not be installed. In a live state
modules, optimisers and the attributes of one object are containers, too. A sent object may hold
anything.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.properties.split.memory import slots_of

_LEAVES: Final = (Tensor, np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None))


class Found(NamedTuple):
    """A leaf of an object.

    Args:
        keys: keys of the containers that lead to it.
        value: a tensor, array, number or text, or an object of unknown type.
        holder: the mapping or list that holds it by ``key``; None if the leaf cannot be replaced.
        key: see ``holder``.
    """

    keys: tuple[str, ...]
    value: object
    holder: Any = None
    key: object = None

    @property
    def path(self) -> str:
        """The keys in one name."""
        return ".".join(self.keys)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client has sent: copies, by path.

    Attributes:
        numbers: tensors.
        texts: texts, and other leaves without numbers.
        unknown: names of unknown types.
        keys: keys of every path.
        quantized: paths of numbers that were converted from few bits.
    """

    numbers: dict[str, Tensor] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quantized: set[str] = field(default_factory=set)

    def shapes(self) -> list[tuple[str, object, object]]:
        """Path, shape and type of all numbers, in the order in which they were sent."""
        return [(path, value.shape, value.dtype) for path, value in self.numbers.items()]

    @classmethod
    def of(cls, given: object) -> "Sent":
        """All leaves of what was sent."""
        sent = cls()
        for each in found_in(given):
            path = each.path
            while path in sent.keys:  # for keys that differ only in their types
                path += "'"
            sent.keys[path] = each.keys
            if each.value is None or isinstance(each.value, str):
                sent.texts[path] = repr(each.value)
            elif (numbers := tensor_of(each.value)) is not None:
                sent.numbers[path] = numbers.clone()
                if getattr(each.value, "is_quantized", False):
                    sent.quantized.add(path)
            else:
                sent.unknown[path] = type(each.value).__name__
        return sent


def found_in(
    given: object, *, live: bool = False, keys: tuple[str, ...] = (), above: tuple[int, ...] = ()
) -> Iterator[Found]:
    """The leaves of an object, in its order.

    Args:
        given: the object.
        live: whether it is a live state, which may be a module, or an object with attributes.
        keys: the keys on the way to this object.
        above: the objects on the way to this object, which are not entered again.
    """
    inside = None if id(given) in above else _inside(given)
    if inside is None and live:
        inside = _inside_live(given, root=not above)
    if inside is None:
        yield Found(keys, given)
        return
    holder, children = inside
    for key, child in children:
        path = (*keys, str(key))
        for each in found_in(child, live=live, keys=path, above=(*above, id(given))):
            yield each._replace(holder=holder, key=key) if each.keys == path else each


def tensor_of(value: Any) -> Tensor | None:
    """A leaf as a dense tensor, as a view if possible; None if it does not hold numbers."""
    if isinstance(value, Tensor):
        value = value.detach()
        if value.is_meta:
            return None
        dense: Tensor = value if value.layout is torch.strided else value.to_dense()
        dense = dense.dequantize() if dense.is_quantized else dense
        # Torch computes little with floating-point numbers of 8 bits.
        return dense.float() if dense.is_floating_point() and dense.element_size() < 2 else dense
    if hasattr(value, "stype") and callable(getattr(value, "numpy", None)):  # Flower's Array
        value = value.numpy()
    if isinstance(value, (bool, int, float, complex, np.generic)) or _is_numbers(value):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return None
    if value.dtype in (np.longdouble, np.clongdouble):  # torch lacks long double
        value = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    if not value.flags.writeable or not value.dtype.isnative or min(value.strides, default=0) < 0:
        value = value.astype(value.dtype.newbyteorder("="))
    return torch.from_numpy(value)


_Inside: TypeAlias = tuple[Any, Iterable[tuple[Any, object]]]


def _inside(given: Any) -> _Inside | None:
    """The container of an object's parts, and the parts by key; None for a leaf."""
    if isinstance(given, _LEAVES) or hasattr(given, "stype") or _is_numbers(given):
        return None
    if isinstance(given, (list, tuple)):
        return _in_list(given)
    if isinstance(given, Mapping):
        return given if isinstance(given, MutableMapping) else None, list(given.items())
    if is_dataclass(given) and not hasattr(given, "tensor_type") and not isinstance(given, type):
        names = [each.name for each in fields(given)]
        return getattr(given, "__dict__", None), [(name, getattr(given, name)) for name in names]
    if isinstance(given, Enum):
        return None, [("value", given.value)]
    return _in_flower(given)


def _in_flower(given: Any) -> _Inside | None:
    """The parts of a message, or of parameters."""
    if hasattr(given, "metadata") and hasattr(given, "has_error"):
        return None, [("error", object())] if given.has_error() else [("content", given.content)]
    if getattr(given, "tensor_type", None) == "numpy.ndarray":
        return None, enumerate(np.load(BytesIO(each), allow_pickle=False) for each in given.tensors)
    return None


def _inside_live(given: Any, *, root: bool) -> _Inside | None:
    if isinstance(given, nn.Module):
        named = (given.named_parameters, given.named_buffers)
        return None, [each for names in named for each in names(remove_duplicate=False)]
    if callable(getattr(given, "state_dict", None)):
        return None, list(given.state_dict().items())
    if not root or isinstance(given, _LEAVES):
        return None
    if hasattr(given, "__dict__"):
        return vars(given), list(vars(given).items())
    names = [name for name in slots_of(type(given)) if hasattr(given, name)]
    return (_Slots(given), [(name, getattr(given, name)) for name in names]) if names else None


class _Slots:
    """Attributes of an object that has no dict, by name."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self._owner, name, value)


def _is_numbers(given: object) -> bool:
    """Whether it is a list of numbers, which counts as one array."""
    if not isinstance(given, (list, tuple)) or not given:
        return False
    return all(isinstance(each, (int, float)) for each in given)


def _in_list(given: Any) -> _Inside:
    """The parts of a list or tuple: pairs of a name and a value by that name, others by place."""
    if hasattr(given, "_fields"):
        return None, list(given._asdict().items())
    if given and all(
        isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in given
    ):
        return None, list(given)
    return given if isinstance(given, list) else None, list(enumerate(given))
