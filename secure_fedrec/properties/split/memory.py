"""State that a model and a loss keep beside their parameters, recorded and restored in place.

A dict, a list, a plain tensor, an attribute, a variable of a closure, a global: local training may
leave values there, and another user's training may read them. ``Memory`` walks all that a model and
a loss can reach, and puts the same objects back to what they held, so that all other references see
it, too; objects added later are removed, and caches of ``functools`` are emptied. State behind
other C code (an iterator, the generators that NumPy and ``random`` share), in a file or in another
process is not reached: a model that draws or counts there differs between two equal runs; caches
filled once are the same in all runs.
"""

import argparse
import array
import contextlib
import dis
import functools
import importlib  # noqa: TID251  of modules that the code under test imports
import random
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.properties.split.trials import equal_bits

# Of objects from these packages only modules, optimisers and containers are searched.
_FOREIGN: Final = frozenset(
    {"torch", "numpy", "scipy", "sklearn", "numba", "llvmlite", "pydantic", "pandas", "matplotlib"}
    | {"lightning", "pytorch_lightning", "torchmetrics", "tensorboard", "tqdm"}
    | {"pytest", "_pytest", "hypothesis"}
)
_WALKED: Final = (
    nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.utils.data.DataLoader,
)
_GLOBAL: Final = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME"})
_ATTRIBUTE: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "IMPORT_FROM"})
_IMPORT: Final = frozenset({"IMPORT_NAME"})
_CONTAINERS: Final = (dict, list, set, deque, bytearray, array.array, weakref.WeakSet)
# Of the standard library only types that hold attributes by name.
_HOLDERS: Final = (
    types.SimpleNamespace,
    argparse.Namespace,
    threading.local,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    UserDict,
    UserList,
    ChainMap,
)
_HOOKS: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Memory:
    """The state of all objects that some roots can reach.

    Args:
        roots: a model, a loss.
        parameters: tensors that are restored elsewhere.
    """

    def __init__(self, *roots: object, parameters: Iterable[Tensor] = ()) -> None:
        self._known = {id(each) for each in parameters}
        self._seen: dict[int, object] = {}
        self._restore: list[Callable[[], object]] = []
        self._rewind: list[Callable[[], object]] = []
        self._leaves: list[tuple[Tensor, Tensor | None]] = []
        waiting: list[object] = list(roots)
        while waiting:
            each = waiting.pop()
            if id(each) not in self._seen:
                self._seen[id(each)] = each  # held, so that no other object gets its number
                waiting += self._note(each)

    def restore(self) -> None:
        """Put everything back."""
        for each in self._restore:
            each()

    def rewind(self) -> None:
        """Restore only the generators."""
        for each in self._rewind:
            each()

    def trained(self) -> list[Tensor]:
        """Leaf tensors other than the parameters that have received a gradient since."""
        return [leaf for leaf, before in self._leaves if leaf.grad is not before]

    def _note(self, found: object) -> Iterator[object]:
        """Record what an object holds, and yield the objects that it refers to."""
        if isinstance(found, Tensor):
            self._note_tensor(found)
            yield from self._note_hooks(found)
            self._note_dict(found.__dict__)
            yield from list(found.__dict__.values())
        elif isinstance(found, np.ndarray):
            yield from self._note_array(found)
        elif (restore := _restored(found)) is not None:
            self._restore.append(restore)
            self._rewind.append(restore)
        elif isinstance(found, functools._lru_cache_wrapper):
            self._restore.append(found.cache_clear)
            yield found.__wrapped__
        elif (wrapped := _wrapped(found)) is not None:
            yield from wrapped
        elif isinstance(found, types.FunctionType):
            yield from self._note_function(found)
        elif isinstance(found, type):
            yield from self._note_class(found)
        else:
            if isinstance(found, _CONTAINERS):
                yield from self._note_container(found)
            if isinstance(found, _HOLDERS) or _is_estimator(type(found)) or _is_walked(type(found)):
                yield from self._note_object(found)

    def _note_tensor(self, tensor: Tensor) -> None:
        kind, trained = type(tensor), tensor.requires_grad

        def as_it_was() -> None:
            if type(tensor) is not kind:
                tensor.__class__ = kind
            if tensor.is_leaf and tensor.requires_grad is not trained:
                tensor.requires_grad_(trained)

        self._restore.append(as_it_was)
        if id(tensor) in self._known or tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
            return
        if tensor.layout is not torch.strided:
            self._note_sparse(tensor)
            return
        saved, gradient = tensor.detach().clone(), tensor.grad if tensor.is_leaf else None
        if tensor.requires_grad and tensor.is_leaf:
            self._leaves.append((tensor, gradient))

        def restore() -> None:
            if tensor.shape != saved.shape or tensor.stride() != saved.stride():
                tensor.data = saved.clone()
            if not equal_bits(tensor, saved):
                tensor.detach().copy_(saved)
            if tensor.is_leaf:
                tensor.grad = gradient

        self._restore.append(restore)

    def _note_sparse(self, tensor: Tensor) -> None:
        saved = tensor.detach().clone()

        def restore() -> None:
            with torch.no_grad():
                tensor.copy_(saved)

        self._restore.append(restore)

    def _note_hooks(self, tensor: Tensor) -> Iterator[object]:
        """Gradient hooks, which may be referenced by a closure only."""
        for name in _HOOKS:
            saved = dict(getattr(tensor, name, None) or {})
            yield from saved.values()

            def restore(name: str = name, saved: dict[Any, Any] = saved) -> None:
                now = getattr(tensor, name, None)
                if now is not None:
                    _refill(now, saved)

            self._restore.append(restore)

    def _note_array(self, array: "np.ndarray[Any, Any]") -> Iterable[object]:
        if not array.flags.writeable or isinstance(array, np.memmap):
            return []
        saved = array.copy()
        self._restore.append(partial(np.copyto, array, saved))
        attributes = getattr(array, "__dict__", {})  # of a subclass
        self._note_dict(attributes)
        return [*attributes.values(), *(array.flat if array.dtype.hasobject else ())]

    def _note_container(self, found: Any) -> Iterable[object]:
        if isinstance(found, dict):
            self._note_dict(found)
            keys = [key for key in found if not isinstance(key, (str, bytes, int, float))]
            return [*keys, *found.values()]
        numbers = isinstance(found, bytearray | array.array)
        saved = found[:] if numbers else list(found)

        def restore() -> None:
            if numbers:
                found[:] = saved
            elif isinstance(found, (set, weakref.WeakSet)):
                if found.symmetric_difference(saved):
                    found.clear()
                    found.update(saved)
            elif len(found) != len(saved) or not all(map(_same, found, saved)):
                found.clear()
                found.extend(saved)

        self._restore.append(restore)
        return () if numbers else saved

    def _note_dict(self, found: dict[Any, Any]) -> None:
        self._restore.append(partial(_refill, found, dict(found)))

    def _note_object(self, found: object) -> Iterator[object]:
        """Attributes, and the class, whose attributes all instances share."""
        self._restore.append(partial(_keep_class, found, type(found)))
        attributes = getattr(found, "__dict__", None)
        if isinstance(attributes, dict):
            self._note_dict(attributes)
            yield from list(attributes.values())
        for name in slots_of(type(found)):
            if hasattr(found, name):
                value = getattr(found, name)
                self._restore.append(partial(object.__setattr__, found, name, value))
                yield value
            else:
                self._restore.append(partial(_take_away, found, name))
        yield type(found)

    def _note_class(self, found: type) -> Iterator[object]:
        for each in found.__mro__:
            if _is_walked(each) and each.__module__.partition(".")[0] not in _FOREIGN:
                self._restore.append(partial(_keep_names, each, frozenset(vars(each))))
                for name, value in vars(each).items():
                    if isinstance(value, (staticmethod, classmethod)):
                        yield value.__func__
                    elif isinstance(value, property):
                        yield from (value.fget, value.fset)
                    elif isinstance(value, types.FunctionType):
                        yield value  # includes __call__ and other special methods
                    elif not name.startswith("__"):
                        yield value
                        plain = not callable(value) and not hasattr(value, "__get__")
                        if plain or isinstance(value, type):
                            self._restore.append(partial(_set_back, each, name, value))
        yield type(found)

    def _note_function(self, found: types.FunctionType) -> Iterator[object]:
        if found.__module__ is not None and not _is_walked_module(found.__module__):
            return
        for cell in found.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not yet assigned
                self._restore.append(partial(delattr, cell, "cell_contents"))
                continue
            self._restore.append(partial(setattr, cell, "cell_contents", value))
            yield value
        names, attributes, imports = _names(found.__code__)
        modules = [_imported(name) for name in imports]
        for name in names:
            value = found.__globals__.get(name)
            if isinstance(value, types.ModuleType):
                modules.append(value)
            else:
                yield from self._note_global(found.__globals__, name)
        met = [each for each in modules if each is not None]
        for module in met:  # the list grows while it is searched
            if _is_walked_module(module.__name__):
                for attribute in attributes:
                    value = vars(module).get(attribute)
                    if not isinstance(value, types.ModuleType):
                        yield from self._note_global(vars(module), attribute)
                    elif value not in met:
                        met.append(value)
        self._note_dict(found.__dict__)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._restore.append(partial(setattr, found, name, getattr(found, name)))
        yield from (*found.__dict__.values(), found.__defaults__, found.__kwdefaults__)

    def _note_global(self, names: dict[str, Any], name: str) -> Iterator[object]:
        if name not in names:
            self._restore.append(partial(names.pop, name, None))
        elif not isinstance(names[name], (types.ModuleType, types.BuiltinFunctionType)):
            self._restore.append(partial(names.__setitem__, name, names[name]))
            yield names[name]


def _restored(found: object) -> Callable[[], object] | None:
    """A function that restores a generator's present state; None for another object."""
    if isinstance(found, torch.Generator):
        return partial(found.set_state, found.get_state())
    if isinstance(found, np.random.Generator):
        return partial(setattr, found.bit_generator, "state", found.bit_generator.state)
    if isinstance(found, np.random.RandomState):
        return partial(found.set_state, found.get_state())
    if isinstance(found, random.Random):
        return partial(found.setstate, found.getstate())
    return None


def _wrapped(found: object) -> Iterable[object] | None:
    """The object that a pure wrapper refers to; None for other objects."""
    if isinstance(found, (tuple, frozenset)):
        return found
    if isinstance(found, types.MappingProxyType):
        return list(found.values())
    if isinstance(found, types.MethodType):
        return found.__self__, found.__func__
    if isinstance(found, weakref.ref):
        return (found(),)
    if isinstance(found, memoryview):
        return (found.obj,)
    return (found.func, found.args, found.keywords) if isinstance(found, partial) else None


def _set_back(owner: type, name: str, value: object) -> None:
    if vars(owner).get(name) is not value:
        setattr(owner, name, value)


def _keep_class(found: object, kind: type) -> None:
    if type(found) is not kind:
        object.__setattr__(found, "__class__", kind)


def _take_away(owner: object, name: str) -> None:
    if hasattr(owner, name):
        delattr(owner, name)


def _keep_names(owner: type, names: frozenset[str]) -> None:
    for name in vars(owner).keys() - names:
        if not name.startswith("__"):
            delattr(owner, name)


def _same(left: object, right: object) -> bool:
    return left is right


def _refill(found: dict[Any, Any], saved: Mapping[Any, Any]) -> None:
    values, keys = map(_same, found.values(), saved.values()), map(_same, found, saved)
    if len(found) != len(saved) or not (all(values) and all(keys)):
        found.clear()
        found.update(saved)


class _Names(NamedTuple):
    """Names that a function, or one inside it, looks up: globals, attributes, and modules."""

    globals: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    found = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    own = _Names(
        *(
            frozenset(name for operation, name in found if operation in operations)
            for operations in (_GLOBAL, _ATTRIBUTE, _IMPORT)
        )
    )
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return _Names(*(frozenset().union(*parts) for parts in zip(own, *inner, strict=True)))


def _imported(name: str) -> types.ModuleType | None:
    """A module that a function imports when it is called, which may be the first time."""
    if not name or not _is_walked_module(name):
        return None
    with contextlib.suppress(Exception):  # the function itself will raise
        return importlib.import_module(name)
    return None


def _is_estimator(kind: type) -> bool:
    """Whether it is of scikit-learn, whose estimators keep optimisers in attributes."""
    return kind.__module__.partition(".")[0] == "sklearn"


def _is_walked(kind: type) -> bool:
    return issubclass(kind, _WALKED) or _is_walked_module(kind.__module__)


def _is_walked_module(name: object) -> bool:
    if not isinstance(name, str):  # classes implemented in C may define anything there
        return False
    root = name.partition(".")[0]
    return root not in _FOREIGN and (root == "__main__" or root not in sys.stdlib_module_names)


def slots_of(kind: type) -> Iterator[str]:
    """Names of the attributes that instances of a class have without a dict."""
    for each in kind.__mro__:
        declared = vars(each).get("__slots__", ())
        names = (declared,) if isinstance(declared, str) else declared
        for name in names:
            if name.startswith("__") and not name.endswith("__"):
                yield f"_{each.__name__.lstrip('_')}{name}"
            elif name not in {"__dict__", "__weakref__"}:
                yield name
