"""A torch model in two parts: the parameters that all users share, and those of each user.

Patterns name the private tensors. ``*`` stands for any part of a name:

- ``"users.weight"``: a table of one row per user, whose first dimension counts the users;
- ``"table.weight[:100]"``: the first 100 rows of a table that also holds other rows, such as those
  of items behind an offset; the others are federated;
- ``"heads.{user}.*"``: tensors of a module per user, ``{user}`` being the user's number.

All other parameters are federated. A buffer is private if a pattern names it; otherwise it belongs
to no user and is in no sum (a "shared buffer").
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.random import is_exact
from secure_fedrec.properties.split.tensors import Tensors, require_usable

Values = Mapping[str, Tensor]
"""Tensors by name."""

_USER = "{user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSlot:
    """A private parameter of every user: a row of a table, or a tensor of the user's own module.

    Args:
        name: the table's name, or the tensor's name with ``{user}`` for the number.
        sources: names of the tensors in the model: the table, or one per user.
        buffer: whether it is a buffer, which no optimiser trains.
        exact: whether it holds integers or booleans, which no rule averages.
    """

    name: str
    sources: tuple[str, ...]
    buffer: bool
    exact: bool

    @property
    def is_table(self) -> bool:
        """Whether users are rows of one tensor."""
        return _USER not in self.name

    def part(self, tensors: Values, user: int) -> Tensor:
        """One user's part of the model's tensors, as a view."""
        return tensors[self.sources[0]][user] if self.is_table else tensors[self.sources[user]]


Place: TypeAlias = tuple[Tensor, slice | None, str, PrivateSlot | None, int | None]
"""A parameter, its rows, its name, its slot if it is private, and the user if it is one user's."""


class SplitModel:
    """A model, and which of its tensors belong to which user.

    The model is used in place, since a loss may refer to it; ``preserved`` restores it.

    Args:
        model: holds the parameters of all users.
        private: patterns as above.

    Attributes:
        tensors: every parameter and buffer under each of its names (the model's own, not copies).
        slots: private parameters of every user, which rules may average.
        counters: private integers, such as the batches a user's own normalisation has seen.
        own: both.
        aliases: names of private tensors that no pattern names.

    Raises:
        ConfigError: a pattern matches nothing, no parameter is private or none is federated, or
            the private tensors do not agree on a number of users of at least 2.
    """

    def __init__(self, model: nn.Module, private: Sequence[str]) -> None:
        patterns = (private,) if isinstance(private, str) else tuple(private)
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise ConfigError("private", patterns, "must be patterns of names")
        require_usable(model)
        self.model = model
        self.tensors = tensors = Tensors(model)
        for pattern in patterns:
            tensors.cut(pattern)
        parameters = tensors.parameters
        named = _slots(tensors, set(parameters), patterns)
        slots = _once(named, tensors)
        self.slots = tuple(slot for slot in slots if not slot.exact)
        self.counters = tuple(slot for slot in slots if slot.exact)
        self.own = (*self.slots, *self.counters)
        self.n_users = _number_of_users(slots, tensors)
        private_names = {name for slot in named for name in slot.sources}
        private_keys = {tensors.key(name) for name in private_names}
        self.federated = tuple(
            name for name in self._once(parameters) if tensors.key(name) not in private_keys
        )
        buffers = [name for name in tensors if name not in parameters]
        self.shared_buffers = tuple(
            name for name in self._once(buffers) if name not in private_names
        )
        if not self.federated:
            raise ConfigError("private", patterns, "names every parameter, so none is federated")
        self.aliases = tuple(
            name
            for name in sorted(set(parameters) - private_names)
            if tensors.key(name) in private_keys
        )

    def _once(self, names: Iterable[str]) -> list[str]:
        """Every tensor by the first of its names."""
        once = {self.tensors.key(name): name for name in reversed(list(names))}
        return [*once.values()][::-1]

    def trainable_places(self) -> list["Place"]:
        """Parameters with gradients, once each, with what they are a part of.

        Returns:
            (parameter, its rows or None for all, its name, its slot if it is private, the user if
            it is one user's).
        """
        tensors = self.tensors
        owners = {
            tensors.key(source): (slot, None if slot.is_table else user)
            for slot in self.slots
            for user, source in enumerate(slot.sources)
        }
        found: list[Place] = []
        for name in self._once(tensors.parameters):
            place, owner = tensors.place(name), owners.get(tensors.key(name), (None, None))
            if place.whole.requires_grad:
                found.append((place.whole, place.rows, name, *owner))
        return found

    def train(self) -> None:
        """Turn training on; if the model is in training mode already, layers in eval() stay so."""
        if not self.model.training:
            self.model.train()

    # --- values: always copies, so that nothing trains behind the reader's back ---

    def federated_values(self) -> dict[str, Tensor]:
        """w_f."""
        return _copies({name: self.tensors[name] for name in self.federated})

    def private_values(self, user: int) -> dict[str, Tensor]:
        """w_p of one user, by the names of the slots."""
        return _copies(parts_of(self.slots, self.tensors, user))

    def buffer_values(self) -> dict[str, Tensor]:
        """The shared buffers."""
        return _copies({name: self.tensors[name] for name in self.shared_buffers})

    def counter_values(self, user: int) -> dict[str, Tensor]:
        """Private integers of one user."""
        return _copies(parts_of(self.counters, self.tensors, user))

    def parts(self, state: Values, user: int) -> dict[str, Tensor]:
        """One user's private values and counters in a state of the whole model."""
        return parts_of(self.own, state, user)

    def state(self) -> dict[str, Tensor]:
        """All parameters and buffers, uncut, each once; private ones under their private names."""
        tensors = self.tensors
        private = {name: tensors.key(name) for slot in self.own for name in slot.sources}
        others = (n for n in self._once(tensors) if tensors.key(n) not in private.values())
        return _copies({name: tensors[name] for name in (*private, *others)})

    def load(self, values: Values) -> None:
        """Write federated values, buffers or a whole state."""
        with torch.no_grad():
            for name, value in values.items():
                self.tensors[name].copy_(value)

    def load_private(self, user: int, values: Values) -> None:
        """Write one user's private values or counters."""
        with torch.no_grad():
            for slot in self.own:
                if slot.name in values:
                    slot.part(self.tensors, user).copy_(values[slot.name])

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put parameters, buffers, gradients and modes back at the end."""
        tensors = self.tensors.originals()
        saved = _copies(tensors)
        gradients = {name: tensor.grad for name, tensor in tensors.items()}
        trained = {name: tensor.requires_grad for name, tensor in tensors.items()}
        modes = {module: module.training for module in self.model.modules()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, tensor in tensors.items():
                    place = self.tensors.place(name)  # the module may hold another tensor there now
                    place.held[place.leaf] = tensor
                    tensor.copy_(saved[name])
                    tensor.grad = gradients[name]
                    if tensor.is_leaf:
                        tensor.requires_grad_(trained[name])
            for module, mode in modes.items():
                module.training = mode


def parts_of(slots: Iterable[PrivateSlot], state: Values, user: int) -> dict[str, Tensor]:
    """One user's parts of some slots, as views of a state."""
    return {slot.name: slot.part(state, user) for slot in slots}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the tensor."""
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


def _compiled(pattern: str, user: str = r"\d+") -> re.Pattern[str]:
    if pattern.count(_USER) > 1:
        raise ConfigError("private", pattern, "names {user} more than once")
    escaped = re.escape(pattern).replace(re.escape("*"), ".*")
    return re.compile(escaped.replace(re.escape(_USER), f"(?P<user>{user})"))


def _slots(
    tensors: Values, parameters: set[str], patterns: tuple[str, ...]
) -> tuple[PrivateSlot, ...]:
    """The tensors that patterns name; every pattern must name one."""
    if not patterns:
        raise ConfigError(
            "private", patterns, "no parameter is private, so the model cannot be split"
        )
    sources: dict[str, dict[int, str]] = {}
    for pattern in patterns:
        expression = _compiled(pattern)
        found = [match for name in tensors if (match := expression.fullmatch(name))]
        if not found:
            problem = "matches no parameter and no buffer"
            if any(_compiled(pattern, user="[^.]+").fullmatch(name) for name in tensors):
                problem = (
                    "users must be numbered from 0: keep what is theirs in a ModuleList, and look "
                    "up the place of a user's id in the loss"
                )
            raise ConfigError("private", pattern, problem, tensors)
        for match in found:
            slot, user = match.string, 0
            if _USER in pattern:
                begin, end = match.span("user")
                slot, user = f"{slot[:begin]}{_USER}{slot[end:]}", int(match["user"])
            sources.setdefault(slot, {})[user] = match.string
    if not any(set(users.values()) & parameters for users in sources.values()):
        raise ConfigError("private", patterns, "name buffers only: no parameter is private")
    return tuple(_slot(name, users, tensors, parameters) for name, users in sources.items())


def _slot(name: str, users: dict[int, str], tensors: Values, parameters: set[str]) -> PrivateSlot:
    if sorted(users) != list(range(len(users))):
        found = sorted(users)
        shown = f"{found[:5]} ..." if len(found) > 5 else str(found)
        problem = (
            f"users must be numbered from 0, found {shown}: keep what is theirs in a ModuleList, "
            "and look up the place of a user's id in the loss"
        )
        raise ConfigError("private", name, problem)
    sources = tuple(users[user] for user in range(len(users)))
    if _USER not in name and tensors[name].dim() == 0:
        raise ConfigError("private", name, "is a scalar: it has no row per user")
    shapes = {(tensors[source].shape, tensors[source].dtype) for source in sources}
    if len(shapes) > 1:
        raise ConfigError("private", name, f"differs in shape or type between users: {shapes}")
    return PrivateSlot(
        name=name,
        sources=sources,
        buffer=sources[0] not in parameters,
        exact=is_exact(tensors[sources[0]]),
    )


def _once(slots: tuple[PrivateSlot, ...], tensors: Tensors) -> tuple[PrivateSlot, ...]:
    """Of several slots with the same tensors, the first."""
    found: dict[tuple[tuple[int, int], ...], PrivateSlot] = {}
    for slot in slots:
        found.setdefault(tuple(tensors.key(source) for source in slot.sources), slot)
    return tuple(found.values())


def _number_of_users(slots: tuple[PrivateSlot, ...], tensors: Values) -> int:
    counts = {
        slot.name: tensors[slot.name].shape[0] if slot.is_table else len(slot.sources)
        for slot in slots
    }
    if len(set(counts.values())) > 1:
        raise ConfigError("private", counts, "do not agree on the number of users")
    (count,) = set(counts.values())
    if count < 2:
        raise ConfigError(
            "private", counts, "need at least 2 users, or no user could disturb another"
        )
    return count


def _copies(values: Values) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in values.items()}
