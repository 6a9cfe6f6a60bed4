"""Intervals over independent units: clients are resampled, never their pairs.

Reading order: ``Interval`` (what is reported), ``resampled`` (the bootstrap draws),
``percentile_interval`` (draws to an interval), then the intervals of a mean, of a paired difference
and of a share.

References:
    [1] Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26(4), 1934.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.bounded import Bounded
from secure_fedrec.core.special import betaincinv

_BLOCK_ELEMENTS = 1 << 15
"""Elements of the draws that are processed at once: they stay in the processor's cache."""

_DRAWN_AT_ONCE = 1 << 21
_KEPT_BYTES = 256 * 2**20
_DRAWN: Bounded[npt.NDArray[np.unsignedinteger]] = Bounded(_KEPT_BYTES, lambda kept: kept.nbytes)
_HALF = 15
"""The largest count that fits in half a byte."""
_PACKED_FROM = 2**25
"""Number of counts from which two are packed in a byte, so that draws for some clients and for
nearly all of them fit in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point estimate, its two-sided interval, and the number of independent units behind it."""

    value: float
    low: float
    high: float
    n_clients: int


def resampled(
    n_clients: int, draws: int, seed: int, *, width: int = 0, elements: int = _BLOCK_ELEMENTS
) -> Iterator[npt.NDArray[np.unsignedinteger]]:
    """Blocks uint[<= draws, n_clients]: how often each draw with replacement took a client.

    The figures of an audit share clients and draws, so the last draws are cached.

    Args:
        n_clients: clients to draw from, and how many are drawn.
        draws: number of draws, at least 100.
        seed: seed of the draws; they do not depend on the size of the blocks.
        width: values that the caller makes of each draw, if more than one of a client.
        elements: bound of the draws of a block, and of the values made of them.
    """
    if draws < 100:
        raise ValueError(f"draws must be at least 100, not {draws}")
    per_block = max(1, elements // max(1, n_clients, width))
    blocks = _draw(n_clients, draws, seed)
    if n_clients * draws <= 2 * _KEPT_BYTES:
        blocks = iter([_DRAWN.get((n_clients, draws, seed), lambda: _kept(n_clients, draws, seed))])
    for block in blocks:
        for start in range(0, len(block), per_block):
            part = block[start : start + per_block]
            yield part if part.shape[1] == n_clients else _one_in_a_byte(part, n_clients)


def _kept(n_clients: int, draws: int, seed: int) -> npt.NDArray[np.unsignedinteger]:
    """All draws, with two counts per byte if there are many and none is too large."""
    if n_clients * draws <= _PACKED_FROM:
        return np.concatenate([*_draw(n_clients, draws, seed)])
    packed = []
    for block in _draw(n_clients, draws, seed):
        if block.max(initial=0) > _HALF:  # happens about once in 10^13 draws of a client
            return np.concatenate([*_draw(n_clients, draws, seed)])
        both = block[:, ::2].astype(np.uint8)
        both[:, : n_clients // 2] |= block[:, 1::2].astype(np.uint8) << np.uint8(4)
        packed.append(both)
    return np.concatenate(packed)


def _one_in_a_byte(
    packed: npt.NDArray[np.unsignedinteger], n_clients: int
) -> npt.NDArray[np.unsignedinteger]:
    """uint8[N, n_clients] of what was packed."""
    counts = np.empty((len(packed), n_clients), dtype=np.uint8)
    np.bitwise_and(packed, _HALF, out=counts[:, ::2])
    np.right_shift(packed[:, : n_clients // 2], 4, out=counts[:, 1::2])
    return counts


def _draw(n_clients: int, draws: int, seed: int) -> Iterator[npt.NDArray[np.unsignedinteger]]:
    rng = np.random.default_rng(seed)
    shares = np.full(n_clients, 1.0 / n_clients)
    per_block = max(1, _DRAWN_AT_ONCE // max(1, n_clients))
    for start in range(0, draws, per_block):
        drawn = rng.multinomial(n_clients, shares, size=min(per_block, draws - start))
        yield drawn.astype(np.min_scalar_type(int(drawn.max(initial=0))))


def percentile_interval(
    value: float, drawn: FloatArray, units: int, level: float, span: float = 1.0
) -> Interval:
    """Percentile interval that contains its value, widened if all draws agree.

    Where all clients have one value v (an AUC of 1.0 under a perfect attack), every draw is v and
    the bootstrap would claim certainty. The interval then follows from the fact that all n clients
    have v: with v taken from the first client, the other n - 1 bound the share p of such clients
    from below [1], and since an AUC lies in [0, 1] the mean lies between p v and p v + 1 - p.
    """
    tail = (1.0 - level) / 2
    low, high = (float(end) for end in np.quantile(drawn, [tail, 1.0 - tail]))
    if drawn.min() == drawn.max():
        alike = share_interval(units - 1, units - 1, level).low
        # The other clients may lie anywhere in [0, span], or [-span / 2, span / 2].
        bottom = 0.0 if span == 1.0 else -span / 2
        low, high = (value * alike + (bottom + end) * (1.0 - alike) for end in (0.0, span))
    return Interval(value=value, low=min(value, low), high=max(value, high), n_clients=units)


def mean_interval(
    values: FloatArray, *, seed: int, confidence: float = 0.95, draws: int = 2000, span: float
) -> Interval:
    """Mean of per-client values, NaN left out, with a percentile bootstrap over the clients.

    Args:
        values: float64[n_clients].
        seed: seed of the bootstrap.
        confidence: confidence of the interval.
        draws: bootstrap draws.
        span: length of the interval the values lie in (1 for an AUC, 2 for a difference).

    Raises:
        ValueError: if every value is NaN.
    """
    check_share("confidence", confidence)
    known = values[~np.isnan(values)]
    if not len(known):
        raise ValueError("no client has both positives and negatives: there is no AUC to average")
    # Not a BLAS product: its last bits depend on the number of threads.
    means = [(w * known).sum(axis=1) / len(known) for w in resampled(len(known), draws, seed)]
    # Equal values are compared directly, because rounding makes their resampled means differ.
    drawn = np.concatenate(means) if known.min() < known.max() else known
    return percentile_interval(float(known.mean()), drawn, len(known), confidence, span)


def paired_interval(
    one: FloatArray, other: FloatArray, *, seed: int, confidence: float = 0.95, draws: int = 2000
) -> Interval:
    """Mean difference of two methods on the same clients, clients resampled with both results.

    These are percentiles: with fewer than about sixty clients they cover less than their level.

    Args:
        one: float64[n_clients] or float64[seeds, n_clients], shares in [0, 1]; NaN where a client
            has none. Of several seeds a client counts once, with its mean: runs on the same clients
            are not new clients.
        other: of the same shape; row s is of the same split and draws as that of ``one``.
        seed: seed of the bootstrap.
        confidence: confidence of the interval.
        draws: bootstrap draws.

    Raises:
        ValueError: the shapes differ, or no client has both.
    """
    if one.shape != other.shape or one.ndim not in (1, 2):
        raise ValueError(f"{one.shape} and {other.shape} results are not of the same clients")
    gains = np.atleast_2d(one - other)
    known = np.isfinite(gains)
    if not known.any():
        raise ValueError("no client has a result of both")
    counts = known.sum(axis=0)
    sums = np.where(known, gains, 0.0).sum(axis=0)
    means = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return mean_interval(means, seed=seed, confidence=confidence, draws=draws, span=2.0)


def share_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Exact Clopper-Pearson interval of a share of independent trials (clients, not pairs) [1].

    Returns:
        The interval, with ``trials`` in its field ``n_clients``. Without trials: NaN within [0, 1].

    Raises:
        ValueError: unless 0 <= successes <= trials.
    """
    check_share("confidence", confidence)
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    tail, failures = (1.0 - confidence) / 2, trials - successes
    return Interval(
        value=successes / trials if trials else float("nan"),
        low=float(betaincinv(successes, failures + 1, tail)) if successes else 0.0,
        high=1.0 - float(betaincinv(failures, successes + 1, tail)) if failures else 1.0,
        n_clients=trials,
    )


def check_share(name: str, value: float) -> None:
    """Refuse a rate or level outside (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value}")
