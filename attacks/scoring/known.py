"""What several statistics need of one thing is computed once."""

from collections.abc import Callable
from typing import Any, TypeVar

Kept = TypeVar("Kept")


class Known(dict[str, Any]):
    """Values by name, kept as long as what they are of."""

    def once(self, name: str, make: Callable[[], Kept]) -> Kept:
        """The value of a name, made where it is not there."""
        if name not in self:
            self[name] = make()
        kept: Kept = self[name]
        return kept
