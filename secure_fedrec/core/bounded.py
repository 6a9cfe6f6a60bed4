"""A cache of recent results, bounded in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Bounded(Generic[Kept]):
    """Values by key; the least recently used are dropped when the cache is full.

    Args:
        limit: bytes of all values together; a larger one is returned but not kept.
        size: bytes of a value.
    """

    def __init__(self, limit: int, size: Callable[[Kept], int]) -> None:
        self._limit, self._size = limit, size
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """The value of a key, computed if it is missing."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = make()
        size = self._size(value)
        with self._lock:
            if key not in self._kept and size <= self._limit:
                self._kept[key] = value
                self._bytes += size
                while self._bytes > self._limit:
                    self._bytes -= self._size(self._kept.popitem(last=False)[1])
        return value
