"""The live state of every client: what it keeps, and which part is private."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.client_step.contents import Found, found_in, tensor_of
from secure_fedrec.properties.split.model import SplitModel, Values, matches

User: TypeAlias = Hashable
"""A client, as the step identifies it."""


class Clients(Protocol):
    """The states of some clients; values are copies of the current values."""

    def private(self, user: User) -> dict[str, Tensor]:
        """The client's private values."""

    def kept(self, user: User) -> dict[str, Tensor]:
        """Everything that the client keeps."""

    def load(self, user: User, values: Values) -> None:
        """Write private values in place."""


class State:
    """The arrays of an object, which is looked up each time, since engines replace it.

    Args:
        find: the object.
    """

    def __init__(self, find: Callable[[], object]) -> None:
        self._find = find

    def values(self) -> dict[str, Tensor]:
        """Copies of all arrays, by name."""
        return {name: value.clone() for name, value in self._live().items()}

    def named(self, patterns: Sequence[str]) -> dict[str, Tensor]:
        """Copies of the arrays of some names; one copy of an array with two names (tied layers)."""
        found: dict[object, tuple[str, Tensor]] = {}
        for name, value in self._live().items():
            if matches(name, patterns):
                memory = (value.data_ptr(), value.dtype, value.shape, value.stride())
                found.setdefault(memory if value.numel() else name, (name, value))
        return {name: value.clone() for name, value in found.values()}

    def _live(self) -> dict[str, Tensor]:
        found = {each.path: tensor_of(each.value) for each in found_in(self._find(), live=True)}
        return {name: value for name, value in found.items() if value is not None}

    def load(self, values: Values) -> None:
        """Write values into arrays of these names, in place where they can be written.

        Raises:
            ConfigError: an array can neither be written nor replaced.
        """
        for each in found_in(self._find(), live=True) if values else ():
            if each.path in values:
                _write(each, values[each.path])


class OwnStates:
    """Every client has a state of its own.

    Args:
        clients: finds the state of a client.
        private: patterns of names in it.
    """

    def __init__(self, clients: Callable[[Any], object], private: Sequence[str]) -> None:
        self._clients = clients
        self._patterns = private

    def private(self, user: User) -> dict[str, Tensor]:
        """See ``Clients``."""
        return self._state(user).named(self._patterns)

    def kept(self, user: User) -> dict[str, Tensor]:
        """See ``Clients``."""
        return self._state(user).values()

    def load(self, user: User, values: Values) -> None:
        """See ``Clients``."""
        self._state(user).load(values)

    def _state(self, user: User) -> State:
        return State(lambda: self._clients(user))


class OneModel:
    """A module that holds the private parameters of all users, who are numbered from 0.

    Args:
        model: the module.
        private: patterns, as for ``check_split_personalization``.
    """

    def __init__(self, model: nn.Module, private: Sequence[str]) -> None:
        self._split = SplitModel(model, private)
        self.n_users = self._split.n_users
        self.tensors: Mapping[str, Tensor] = self._split.tensors

    def private(self, user: Any) -> dict[str, Tensor]:
        """See ``Clients``."""
        return {**self._split.private_values(user), **self._split.counter_values(user)}

    def kept(self, user: Any) -> dict[str, Tensor]:
        """See ``Clients``."""
        common = {**self._split.federated_values(), **self._split.buffer_values()}
        return {**common, **self.private(user)}

    def load(self, user: Any, values: Values) -> None:
        """See ``Clients``."""
        self._split.load_private(user, values)


def _write(found: Found, value: Tensor) -> None:
    old = found.value
    if isinstance(old, Tensor):
        with torch.no_grad():
            old.copy_(value)
    elif isinstance(old, np.ndarray) and old.flags.writeable:
        np.copyto(old, value.numpy())
    elif found.holder is None:
        problem = "can neither be written in place nor replaced: keep it in a tensor or an array"
        raise ConfigError("clients", found.path, problem)
    else:
        array: Any = value.numpy()
        build: Any = np.array if isinstance(old, np.ndarray) else type(old)
        found.holder[found.key] = build(array.tolist() if isinstance(old, (list, tuple)) else array)
