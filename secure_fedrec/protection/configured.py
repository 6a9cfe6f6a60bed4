"""Refusals under the keys that a configuration gives its settings.

Packages that stand alone name their own settings (``dp.clip``, ``routing.kem``). Where a layer of a
stack hands a user's settings to such a package, what it refuses must name what the user wrote.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from secure_fedrec.errors import ConfigError

__all__ = ["as_configured", "in_table", "with_keys"]


@contextmanager
def as_configured(
    keys: Mapping[str, str], values: Mapping[str, object] | None = None
) -> Iterator[None]:
    """Raise refusals of what is inside under other keys.

    Args:
        keys: key of a configuration by key of the package, for both a refusal's key and the keys
            that its text mentions.
        values: by key of the configuration, what the user wrote where that is not the number that
            the package refused.

    Raises:
        ConfigError: as the code inside does, of the same class.
    """
    try:
        yield
    except ConfigError as refused:
        key = keys.get(refused.key, refused.key)
        value = refused.value if values is None else values.get(key, refused.value)
        problem = with_keys(refused.problem, keys)
        raise type(refused)(key, value, problem, refused.choices) from None


@contextmanager
def in_table(table: str) -> Iterator[None]:
    """Raise refusals of settings of ``protection`` as those of another table of a configuration.

    Args:
        table: its name.

    Raises:
        ConfigError: as the code inside does, of the same class.
    """
    try:
        yield
    except ConfigError as refused:
        key, problem = (
            re.sub(r"(?<![\w.])protection\.", f"{table}.", text)
            for text in (refused.key, refused.problem)
        )
        raise type(refused)(key, refused.value, problem, refused.choices) from None


def with_keys(text: str, keys: Mapping[str, str]) -> str:
    """A text in which whole keys are replaced."""
    ordered = sorted(keys, key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w.]){re.escape(key)}(?![\w])" for key in ordered)
    return re.sub(pattern, lambda found: keys[found.group()], text) if ordered else text
