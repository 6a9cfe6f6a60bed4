"""The price of a list of events.

``"rdp"`` adds Renyi curves and converts them (Balle et al. 2020, theorem 21). ``"prv"`` (Gopi, Lee
and Wutschitz 2021, through Opacus) convolves privacy losses and is tighter, but speaks of
continuous Gaussian noise only, so it takes rounded Gaussians and nothing else. If the best Renyi
order is beyond the largest one, as for large sampled noise, it also replaces ``"rdp"``.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from secure_fedrec.accounting.curves import needs_integer_orders, pure_epsilon, renyi_curve
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError, MissingExtraError, brought_by
from secure_fedrec.protection.base.events import Adversary, Event, GaussianNoise

Accountant: TypeAlias = Literal["rdp", "prv"]

_REALS = np.array(
    [*(1 + tenths / 10 for tenths in range(1, 100)), *range(12, 64), *range(64, 257, 8)]
)
_INTEGERS = np.array(sorted({*range(2, 65), *range(68, 129, 4), *range(136, 513, 8)}), dtype=float)
# Without sampling a Rényi curve is a closed formula; small costs need very large orders.
_LARGE = np.unique(np.round(np.geomspace(513, 2**24, 160)))

MOST_POINTS = 2**22
"""Most points of the grid of the convolution: it then takes seconds and some 100 MB."""

_ERRORS = (1e-2, 1e-4, 1e-6)
"""Tolerances of the convolution: the next, finer one is used if the price does not exceed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A price.

    Args:
        epsilon: at ``delta``.
        delta: the whole delta: the accountant's part, and that for the sampler's distance from the
            named noise.
        accountant: which one gave it.
        order: best Renyi order, or NaN for other accountants.
        distance: total variation over all rounds between the noise as drawn and as named.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    order: float
    distance: float


def spend(
    events: Sequence[Event],
    *,
    adversary: Adversary,
    delta: float,
    accountant: Accountant = "rdp",
) -> Spent:
    """Price a list of events against one adversary.

    If the drawn noise is within t of the named noise in total variation, an (epsilon, d) claim on
    the named one gives (epsilon, d + (1 + e^epsilon) t) on the drawn one; that share is taken off
    ``delta`` before the accountant gets it.

    Args:
        events: what was released.
        adversary: the adversary.
        delta: in (0, 1).
        accountant: "rdp", or "prv" if all noise is rounded Gaussian.

    Raises:
        ConfigError: nothing to price, an event that has no price against this adversary (see
            ``renyi_curve``), an accountant that does not know an event's noise or would take
            minutes for it, or a ``delta`` that the noise's distance uses up.
    """
    if not 0 < delta < 1:
        raise ConfigError("dp.delta", delta, "must be between 0 and 1")
    if not events:
        raise ConfigError("dp.events", [], "nothing was released")
    if accountant not in ("rdp", "prv"):
        raise ConfigError("dp.accountant", accountant, "is unknown", ["rdp", "prv"])
    price = _rdp if accountant == "rdp" else _prv
    distance = math.fsum(event.rounds * event.distance for event in events)
    first = price(events, adversary, delta).epsilon
    share = _share(first + 1, distance)
    if share > delta / 2:
        raise ConfigError(
            "dp.delta",
            delta,
            f"at epsilon {first:.3g} the sampler's distance from the named noise, {distance:.3g}, "
            "takes up "
            "more than half",
        )
    found = price(events, adversary, delta - share)
    if _share(found.epsilon, distance) > share:
        raise ConfigError(
            "dp.delta",
            delta,
            "is hardly larger than the part of it that the sampler's distance from the named noise "
            "uses up",
        )
    return Spent(**found._asdict(), delta=delta, distance=distance)


class _Price(NamedTuple):
    """The result of an accountant; see ``Spent``."""

    epsilon: float
    order: float
    accountant: Accountant


def _share(epsilon: float, distance: float) -> float:
    return 0.0 if distance == 0 else (1 + math.exp(min(epsilon, 700.0))) * distance


def _rdp(events: Sequence[Event], adversary: Adversary, delta: float) -> _Price:
    orders = _orders(events, adversary)
    curves = [renyi_curve(event, adversary, orders) for event in events]
    epsilon, order = approximate(orders, sum(curves, np.zeros(len(orders))), delta)
    pure = [pure_epsilon(event, adversary) for event in events]
    basic = math.fsum(
        event.rounds * each for event, each in zip(events, pure, strict=True) if each is not None
    )
    if None not in pure and basic <= epsilon:
        return _Price(basic, math.inf, "rdp")
    found = _Price(max(0.0, epsilon), order, "rdp")
    if order < orders[-1] or not _all_gaussian(events):
        return found
    try:
        return min(found, _prv(events, adversary, delta))
    except (MissingExtraError, ConfigError):  # the Rényi bound holds, too
        return found


def _all_gaussian(events: Sequence[Event]) -> bool:
    """Whether all noise is rounded Gaussian."""
    noises = [event.mechanism for event in events]
    return all(isinstance(each, GaussianNoise) and each.form == "rounded" for each in noises)


def approximate(orders: FloatArray, curve: FloatArray, delta: float) -> tuple[float, float]:
    """From a Renyi curve to (epsilon, delta): Balle et al. 2020, theorem 21.

    min over a of R(a) + ln((a - 1) / a) - (ln delta + ln a) / (a - 1).

    Args:
        orders: float64[A], above 1.
        curve: float64[A], the divergence at each order; infinite where there is no bound.
        delta: in (0, 1).

    Returns:
        The smallest epsilon, which may be negative, and its order.
    """
    above = orders - 1
    found = curve - (np.log(delta) + np.log(orders)) / above + np.log(above / orders)
    best = int(np.argmin(found))
    return float(found[best]), float(orders[best])


def _orders(events: Sequence[Event], adversary: Adversary) -> FloatArray:
    integers = any(needs_integer_orders(event, adversary) for event in events)
    sampled = any(event.sampling.against(adversary) < 1 for event in events)
    orders = _INTEGERS if integers else _REALS
    return orders if sampled else np.concatenate([orders[orders < _LARGE[0]], _LARGE])


def _prv(events: Sequence[Event], adversary: Adversary, delta: float) -> _Price:
    with brought_by("torch"):
        from opacus.accountants import PRVAccountant  # noqa: PLC0415
        from opacus.accountants.analysis.prv import (  # noqa: PLC0415
            PoissonSubsampledGaussianPRV as Loss,
        )

    engine = PRVAccountant()
    for event in events:
        mechanism = event.mechanism
        renyi_curve(event, adversary, np.array([2.0]))  # refuses the same events as Rényi
        if not (isinstance(mechanism, GaussianNoise) and mechanism.form == "rounded"):
            raise ConfigError(
                "dp.accountant", "prv", f"knows continuous Gaussian noise only, not {mechanism}"
            )
        rate = event.sampling.against(adversary)
        engine.history.append((mechanism.multiplier, rate, event.rounds))
    losses = [Loss(rate, multiplier) for multiplier, rate, _ in engine.history]
    rounds = [count for *_, count in engine.history]
    epsilon = math.inf
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # at q = 1 Opacus takes ln(1 - q)
        # A best order at an end of the range still gives a valid bound, perhaps not the tightest.
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
        for error in _ERRORS:
            points = engine._get_domain(losses, rounds, error, delta / 1000).size
            if points <= MOST_POINTS:
                found = engine.get_epsilon(delta, eps_error=error, delta_error=delta / 1000)
                epsilon = min(epsilon, float(found))
            if points > MOST_POINTS or epsilon > 2 * error:
                break
    if not math.isfinite(epsilon):
        problem = (
            f"would convolve losses on {points} points, more than {MOST_POINTS}, for minutes"
            if points > MOST_POINTS
            else "finds no bound for this noise"
        )
        raise ConfigError("dp.accountant", "prv", problem, ["rdp"])
    return _Price(epsilon, math.nan, "prv")
