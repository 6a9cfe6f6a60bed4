"""What several statistics need of one thing is computed once."""

from collections.abc import Callable
from typing import Any, TypeVar

Kept = TypeVar("Kept")


class Known:
    """Values by name, kept as long as what they are of."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def get(self, name: str, make: Callable[[], Kept]) -> Kept:
        """The value of a name, made where it is not there."""
        if name not in self._kept:
            self._kept[name] = make()
        kept: Kept = self._kept[name]
        return kept
