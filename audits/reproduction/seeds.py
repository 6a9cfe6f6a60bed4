"""Repetitions under several seeds: which ones, and what they say together."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from secure_fedrec.core.special import stdtrit
from secure_fedrec.errors import ConfigError

_LEVEL = 0.95


def first_seeds(known: Sequence[int], asked: int | None, *, default: int) -> tuple[int, ...]:
    """The first seeds of a paper's file.

    Args:
        known: all of them.
        asked: how many are wanted (``--seeds``); None for the default.
        default: how many there are by default.

    Raises:
        ConfigError: so many are not known, or none is asked for.
    """
    if asked is not None and not 1 <= asked <= len(known):
        raise ConfigError("--seeds", asked, f"must be 1 to {len(known)}")
    return tuple(known[: default if asked is None else asked])


def t_interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean over seeds, and its 95 % interval by Student's t.

    Args:
        values: at least one.

    Returns:
        ``mean``, and ``low`` and ``high``, which are None for a single value.
    """
    mean, spread = float(np.mean(values)), deviation(values)
    if spread is None:
        return {"mean": mean, "low": None, "high": None}
    half = float(stdtrit(len(values) - 1, (1 + _LEVEL) / 2)) * spread / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds (divisor n - 1); None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def summary(values: Sequence[float | None]) -> dict[str, Any]:
    """``mean`` and ``deviation`` of those that there are, None of none; and all ``values``."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "deviation": None, "values": list(values)}
    return {"mean": float(np.mean(known)), "deviation": deviation(known), "values": list(values)}


def require_reproduced(
    option: str, asked: Sequence[object] | None, known: Iterable[object]
) -> None:
    """Refuse what an option asks for and no study reproduces.

    Raises:
        ConfigError: one of the values is not known.
    """
    choices = tuple(known)
    for value in asked or ():
        if value not in choices:
            raise ConfigError(option, value, "is none that is reproduced", choices)
