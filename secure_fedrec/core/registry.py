"""Registries of things by name: shipped ones, which cannot be replaced, and added ones.

Every list of what there is to choose from (layers, attacks, figures, systems) is a ``Registry``;
values computed from one are ``derived``, and recomputed after an addition.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, update_wrapper
from types import MappingProxyType
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing]):
    """Things by name, the shipped ones first.

    Args:
        kind: what one of them is called, "attack" say.
        shipped: the entries that are always present.
    """

    def __init__(self, kind: str, shipped: Mapping[str, Thing]) -> None:
        self.kind, self.shipped = kind, shipped
        self.version = 0
        self._added: dict[str, tuple[Thing, str]] = {}

    @property
    def added(self) -> Mapping[str, Thing]:
        """Those that were added, in that order."""
        return MappingProxyType({name: thing for name, (thing, _) in self._added.items()})

    def add(self, name: str, thing: Thing, origin: str) -> None:
        """Add something, or replace what the same origin has added.

        Args:
            name: of it.
            thing: itself.
            origin: where it comes from, in words.

        Raises:
            ValueError: something that is shipped, or of another origin, has the name.
        """
        if name in self.shipped:
            raise ValueError(f"is called {name!r}, and so is the shipped {self.kind}")
        known, other = self._added.get(name, (thing, origin))
        if known is not thing and other != origin:
            raise ValueError(f"is called {name!r}, and so is {other}")
        if name not in self._added or known is not thing:
            self._added[name] = thing, origin
            self.version += 1

    def remove(self, name: str) -> None:
        """Remove an added entry, if there is one.

        Args:
            name: of it.
        """
        if self._added.pop(name, None) is not None:
            self.version += 1

    def __getitem__(self, name: str) -> Thing:
        return self._added[name][0] if name in self._added else self.shipped[name]

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self.shipped

    def __iter__(self) -> Iterator[str]:
        yield from (*self.shipped, *self._added)

    def __len__(self) -> int:
        return len(self.shipped) + len(self._added)

    __eq__, __hash__ = object.__eq__, object.__hash__  # identity: entries may be added

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {list(self)})"


class Remembered(Generic[Thing]):
    """A value derived from registries, and recomputed when they grow; see ``derived``."""

    def __init__(self, make: Callable[[], Thing], sources: tuple[Registry[Any], ...]) -> None:
        self._sources = sources
        self._made = lru_cache(maxsize=1)(lambda _versions: make())
        update_wrapper(self, make)

    def __call__(self) -> Thing:
        """The value derived from the registries as they are now."""
        return self._made(tuple(source.version for source in self._sources))

    def cache_clear(self) -> None:
        """Forget it."""
        self._made.cache_clear()


def derived(*sources: Registry[Any]) -> Callable[[Callable[[], Thing]], Remembered[Thing]]:
    """Decorator: computes a value from registries once, and again after additions.

    Args:
        sources: the registries.
    """
    return lambda make: Remembered(make, sources)


class Derived(Mapping[Key, Thing], Generic[Key, Thing]):
    """A mapping that is computed from registries.

    Args:
        make: computes it from their entries.
        sources: the registries.
    """

    def __init__(self, make: Callable[[], Mapping[Key, Thing]], *sources: Registry[Any]) -> None:
        self._made = derived(*sources)(make)

    def __getitem__(self, key: Key) -> Thing:
        return self._made()[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self._made())

    __eq__, __hash__ = object.__eq__, object.__hash__  # identity, as for its source

    def __repr__(self) -> str:
        return repr(self._made())
