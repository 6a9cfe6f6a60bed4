"""Settings of a method as they name a study."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Setting: TypeAlias = tuple[tuple[str, Any], ...]
"""Settings of a method that are not as by default, by dotted key, in order."""


def ordered(settings: Mapping[str, Any]) -> Setting:
    """Settings as they name a study."""
    return tuple(sorted(settings.items()))
