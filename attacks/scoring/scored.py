"""What scoring a claim yields, in the form that findings keep it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attacks.scoring.gains import Figures, Gains, Level, gain_figures
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

ALL_CORRUPTED = "every client the claims are about is the adversary's own"
NO_CONTRAST = "there is nothing to tell apart in the truth"
NOBODY = "nobody but the adversary's own clients has a secret to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """What an attack would have needed is not there.

    Args:
        reason: what is missing.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A claim, judged.

    Args:
        figures: measured values; a value is None where the data cannot support it.
        gains: over what is known without the view; they become figures with intervals.
        units: clients (or members of clients), pairs and positives behind the figures.
        details: what else is worth reporting.
        null_control: the same claim against a truth it cannot know.
        roc: pooled ROC curve.
    """

    figures: Figures
    units: Mapping[str, int]
    gains: Gains = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    null_control: Mapping[str, Any] | None = None
    roc: Mapping[str, list[float]] | None = None

    def at(self, level: Level) -> Figures:
        """All figures, those of the gains with limits as sure as asked for."""
        return self.figures | gain_figures(self.gains, level)


def is_honest(clients: IntArray, corrupted: frozenset[int]) -> BoolArray:
    """Which of these clients are not on the adversary's side: bool[B]."""
    return ~np.isin(clients, sorted(corrupted))


def require_finite(what: str, values: FloatArray) -> None:
    """Refuse a claim that is no number: a mean would leave its client out, as if it were not there.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite")
