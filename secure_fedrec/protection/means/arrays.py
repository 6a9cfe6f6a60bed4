"""Which arrays of a model are shared: patterns over their names, and the vector that is summed.

Updates are summed: the changes by training. A name and a dtype do not say whether an array is
trained, so by default every array of floats is shared, but for BatchNorm's running statistics,
which follow a client's data and no gradient. Whole numbers and flags (counters, masks) are never
shared. An array that is not shared stays home: it is not in a sum, is not clipped or noised, and
stays as it is at the server. Where a module is at hand, ``trained`` names what is trained.

Both ends select from the model of the round, by terms that they have settled. The arrays lie in the
vector end to end, in ascending order of their names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from math import prod
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fedrec.core.arrays import FloatArray, unmasked
from secure_fedrec.errors import MISSING, ConfigError, EncodingError, MisfitError

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays of a model, by name."""

STATISTICS: Final = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of names of BatchNorm's statistics (PyTorch), which gradients do not change."""

_BYTES = 8
"""Largest item of an array that a mean is taken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedArrays:
    """The arrays of a model that are summed.

    Args:
        shapes: shapes of the arrays that are shared, by name, in ascending order.
        home: names of those that are not, in ascending order.
    """

    shapes: Mapping[str, tuple[int, ...]]
    home: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Values of the vector that is summed, d."""
        return sum(map(prod, self.shapes.values()))

    def of(self, model: Arrays) -> dict[str, NDArray[Any]]:
        """The part of a model that is shared."""
        return {name: np.asarray(model[name]) for name in self.shapes}

    def join(self, arrays: Arrays) -> FloatArray:
        """float64[d]: arrays end to end; those that are not shared are passed over.

        Raises:
            MisfitError: one that is shared is missing, has another shape or holds no real
                numbers, or one is not of the model; names it.
        """
        self._require_known(arrays)
        parts = [self._real(arrays, name).reshape(-1) for name in self.shapes]
        return np.concatenate(parts)

    def split(self, values: FloatArray) -> dict[str, FloatArray]:
        """Inverse of ``join``: an array of float64 for each name."""
        ends = np.cumsum([prod(shape) for shape in self.shapes.values()])[:-1]
        parts = zip(self.shapes.items(), np.split(values, ends), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def moved(self, before: Arrays, after: Arrays) -> dict[str, FloatArray]:
        """The change of each shared array, in float64.

        Raises:
            MisfitError: as ``join``, of either.
        """
        self._require_known(after)
        return {name: self._real(after, name) - self._real(before, name) for name in self.shapes}

    def moved_by(self, before: Arrays, mean: Arrays) -> dict[str, NDArray[Any]]:
        """The model changed by a mean (``Mean.arrays``), each array in its dtype.

        Arrays that are not shared stay as they are.

        Raises:
            EncodingError: a value leaves an array's dtype.
        """
        after = {name: np.asarray(array) for name, array in before.items()}
        for name in self.shapes:
            there, kind = self._real(before, name) + self._real(mean, name), after[name].dtype
            if not np.all(np.abs(there) <= np.finfo(kind).max):
                raise EncodingError(f"the mean of array {name!r} leaves {kind}")
            after[name] = np.asarray(there.astype(kind))
        return after

    def _require_known(self, arrays: Arrays) -> None:
        if not set(arrays) <= set(self.shapes) | set(self.home):
            raise MisfitError("there are arrays that the model does not have")  # whose names tell

    def _real(self, arrays: Arrays, name: str) -> FloatArray:
        """An array as float64, if conversion leaves out nothing: no text, mask or complex."""
        if name not in arrays:
            raise MisfitError(f"array {name!r} is shared, and is missing")
        array = unmasked(arrays[name], f"array {name!r}")
        if array.dtype.kind not in "fiub":
            raise MisfitError(f"array {name!r} must hold real numbers")
        if array.dtype.kind != "f":  # also if the server's model has floats there
            raise MisfitError(
                f"array {name!r} holds {array.dtype}: whole numbers and flags are not an update"
            )
        if array.shape != self.shapes[name]:
            raise MisfitError(f"array {name!r} has not the model's shape, {self.shapes[name]}")
        return array.astype(np.float64)


def select(model: Arrays, *, shared: Sequence[str], private: Sequence[str]) -> SharedArrays:
    """Which arrays of a model patterns share.

    Args:
        model: all its arrays.
        shared: patterns (``fnmatch``) of those that are shared. BatchNorm's statistics are shared
            by a pattern that ends in their name alone, such as "*.running_mean".
        private: patterns of those that stay home all the same.

    Raises:
        ConfigError: a pattern matches no array, a pattern names one that cannot be shared, or
            no array is left to share; the message lists the existing arrays.
        EncodingError: a value of an array that is shared is not finite.
    """
    for key, patterns in (("shared", shared), ("private", private)):
        require_matches(f"protection.{key}", patterns, model)
    chosen: dict[str, tuple[int, ...]] = {}
    for name in sorted(model):
        array = unmasked(model[name], f"array {name!r} of the model")
        if not any(fnmatchcase(name, each) for each in private) and _is_shared(name, array, shared):
            if not np.isfinite(array).all():
                raise EncodingError(f"array {name!r} of the model holds values that are not finite")
            chosen[name] = array.shape
    if not chosen:
        there = _listed(f"{name} ({np.asarray(model[name]).dtype})" for name in sorted(model))
        problem = f"leaves no array to share of the existing ones: {there}"
        raise ConfigError("protection.shared", tuple(shared), problem)
    return SharedArrays(shapes=chosen, home=tuple(sorted(set(model) - set(chosen))))


def require_matches(key: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Check that every pattern matches a name: a misspelt pattern would share the wrong arrays.

    Raises:
        ConfigError: a pattern does not match; the message lists the names.
    """
    there = sorted(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in there):
            problem = f"{pattern!r} matches no array; there are: {_listed(there)}"
            raise ConfigError(key, MISSING, problem)  # without the value, as hosts log the message


def _is_shared(name: str, array: NDArray[Any], shared: Sequence[str]) -> bool:
    """Whether patterns share an array.

    Raises:
        ConfigError: patterns share an array of a type that is not averaged.
    """
    matching = [each for each in shared if fnmatchcase(name, each)]
    last, counted = name.rpartition(".")[2], array.dtype.kind in "iub"
    if counted or last in STATISTICS:
        matching = [each for each in matching if last and each.endswith(last)]
    if not matching:
        return False
    if counted:
        problem = f"array {name!r} holds {array.dtype}: whole numbers and flags are not an update"
        raise ConfigError("protection.shared", matching[0], problem)
    if array.dtype.kind != "f" or array.dtype.itemsize > _BYTES:
        problem = (
            f"array {name!r} holds {array.dtype}, of which no mean is taken; "
            "name it in protection.private, and it stays home"
        )
        raise ConfigError("protection.shared", matching[0], problem)
    return True


class _Module(Protocol):
    """A ``torch.nn.Module``, of which nothing else is used."""

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]: ...


def trained(module: _Module) -> tuple[str, ...]:
    """Patterns, for ``shared``, of exactly the parameters of a PyTorch module that take a gradient.

    Frozen parameters and all buffers stay home. A parameter with several names is shared by each.
    """
    parameters = module.named_parameters(remove_duplicate=False)
    return tuple(escape(name) for name, each in parameters if each.requires_grad)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
