"""User-level clipping: one client's whole contribution as one vector of bounded L2 norm.

The definition of one client's contribution determines the meaning of a claim. Here it is
*everything* the client adds to a round's sums: its rows, its counts per row and its weight, as the
parts of a ``Contribution``, concatenated and clipped together.

Adjacency is *zero-out*: two rounds are neighbours if they differ in one client's contribution being
replaced by zeros. The set of participants is public and equal in both. The L2 sensitivity is then
the clip itself (replacing one contribution by any other would double it).
"""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import FloatArray, unmasked
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.settings import Count, Positive, Settings

Release: TypeAlias = Literal["noised", "exact"]
"""How a part is released: inside the clipped and noised vector, or separately as an exact sum."""


_SUMMATION = 2.0**-44
"""Relative difference that the order of summation can make, with room for any length used here."""


def clip_to_norm(values: FloatArray, bound: float, *, order: Literal[1, 2] = 2) -> FloatArray:
    """Shrink a vector onto the ball of a given norm: ``v min(1, bound / |v|)``.

    Args:
        values: float64[d].
        bound: largest norm, positive.
        order: 2 for the Euclidean norm, 1 for the sum of magnitudes.

    Returns:
        float64[d], a new array whose computed norm is at most ``bound``.

    Raises:
        EncodingError: a value is NaN or infinite.
    """
    peak = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(peak):
        raise EncodingError("a contribution holds NaN or infinity; it is refused, not clipped")
    clipped = np.array(values, dtype=np.float64)
    if peak > bound:
        clipped *= bound / peak  # so that no square overflows
    # Slightly below the bound, so that it also holds if the squares are summed in another order.
    limit = bound * (1 - _SUMMATION)
    norm = _norm(clipped, order)
    while norm > limit:
        # Repeated only if rounding left the norm one ulp above the limit.
        clipped *= math.nextafter(limit / norm, 0.0)
        norm = _norm(clipped, order)
    return clipped


def _norm(values: FloatArray, order: Literal[1, 2]) -> float:
    """The norm by numpy's own summation, since a library product would start threads."""
    if order == 1:
        return float(np.abs(values).sum())
    return math.sqrt(float(np.square(values).sum()))


class Part(Settings, section="dp.parts"):
    """One part of a contribution.

    Args:
        name: e.g. "rows", "counts", "weight".
        size: number of values.
        scale: factor applied before clipping and removed after decoding. It determines a part's
            share of the clip: counts of 1 would otherwise dominate gradients of 0.01.
        release: "noised", or "exact" for a part that is summed outside this vector; the latter is
            recorded, so that no privacy claim can be made over it.

    Raises:
        ConfigError: a field is out of range.
    """

    name: str
    size: Count
    scale: Positive = 1.0
    release: Release = "noised"

    def key(self, name: str) -> str:
        """Under the name of the part."""
        return f"{self.section}.{self.name}.{name}"


class Contribution(Settings, section="dp"):
    """The layout of what one client adds to a round.

    Args:
        parts: in order; names are unique and at least one part is noised.

    Raises:
        ConfigError: no part is noised, or a name occurs twice.
    """

    parts: tuple[Part, ...]

    def _agree(self) -> None:
        names = [part.name for part in self.parts]
        if len(set(names)) != len(names):
            raise ConfigError("dp.parts", names, "a name occurs twice")
        if not any(part.release == "noised" for part in self.parts):
            raise ConfigError("dp.parts", names, "at least one part must be noised")

    @property
    def noised(self) -> tuple[Part, ...]:
        """The parts inside the clipped vector."""
        return tuple(part for part in self.parts if part.release == "noised")

    @property
    def exact(self) -> tuple[str, ...]:
        """Names of the parts that are released exactly."""
        return tuple(part.name for part in self.parts if part.release == "exact")

    @property
    def size(self) -> int:
        """Length of the clipped vector."""
        return sum(part.size for part in self.noised)

    def join(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """Concatenate the noised parts, scaled.

        Args:
            values: for each noised part an array with ``size`` values (of any shape).

        Returns:
            float64[self.size].

        Raises:
            EncodingError: a part is missing, unknown, masked, or has another size.
        """
        due = {part.name for part in self.noised}
        if set(values) != due:
            raise EncodingError(f"parts {sorted(due)} were due, got {sorted(values)}")
        scaled = []
        for part in self.noised:
            given = unmasked(values[part.name], f"part {part.name!r}")
            flat = given.astype(np.float64, copy=False).reshape(-1)
            if len(flat) != part.size:
                raise EncodingError(f"part {part.name!r} has {part.size} values, got {len(flat)}")
            scaled.append(flat * part.scale)
        return np.concatenate(scaled)

    def split(self, joined: FloatArray) -> dict[str, FloatArray]:
        """The parts of a decoded sum, unscaled: float64[part.size] each.

        Raises:
            EncodingError: the vector has another shape.
        """
        if joined.shape != (self.size,):
            raise EncodingError(f"a vector of shape ({self.size},) was due, got {joined.shape}")
        ends = np.cumsum([part.size for part in self.noised])[:-1]
        pieces = np.split(joined, ends)
        return {
            part.name: piece / part.scale for part, piece in zip(self.noised, pieces, strict=True)
        }
