"""Renyi curves of the released events.

Every function returns, for given orders, an upper bound on the Renyi divergence between the outputs
on neighbouring inputs, in both directions, after all of the event's rounds.

Sources: Mironov 2017 (definition, composition); Mironov, Talwar and Zhang 2019 through Opacus
(sampled Gaussian); Canonne, Kamath and Steinke 2020 (discrete Gaussian); Agarwal, Kairouz and Liu
2021 (Skellam); Zhu and Wang 2019 (Poisson sampling of any mechanism).
"""

from collections.abc import Callable

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.special import gammaln, logsumexp
from secure_fedrec.errors import ConfigError, brought_by
from secure_fedrec.protection.base.events import (
    Adversary,
    Event,
    ExactSum,
    GaussianNoise,
    LaplaceNoise,
    RandomAnswer,
    SkellamNoise,
)

_SAMPLED_ADJACENCIES = ("zero-out", "add-or-remove")


def renyi_curve(event: Event, adversary: Adversary, orders: FloatArray) -> FloatArray:
    """Renyi divergence of an event against an adversary, at each order.

    Args:
        event: what was released.
        adversary: decides whether the event's sampling counts.
        orders: float64[A], above 1; integers where ``needs_integer_orders`` says so.

    Returns:
        float64[A].

    Raises:
        ConfigError: the event leaves something exact, is not noised against this adversary, or
            asks for an amplification by sampling that is not proved for it.
    """
    _require_priced(event, adversary)
    rate = event.sampling.against(adversary)
    mechanism = event.mechanism
    pure = pure_epsilon(event, adversary)
    if pure is not None:
        return event.rounds * pure_rdp(pure, orders)
    if isinstance(mechanism, GaussianNoise) and mechanism.form == "rounded" and rate < 1:
        with brought_by("torch"):
            from opacus.accountants.analysis.rdp import compute_rdp  # noqa: PLC0415

        curve = compute_rdp(
            q=rate, noise_multiplier=mechanism.multiplier, steps=event.rounds, orders=list(orders)
        )
        return np.asarray(curve, dtype=np.float64)
    whole = _whole_curve(event)
    once = whole(orders) if rate == 1 else sampled_rdp(whole, rate, orders)
    return event.rounds * once


def needs_integer_orders(event: Event, adversary: Adversary) -> bool:
    """Whether a bound holds at integer orders only."""
    if isinstance(event.mechanism, SkellamNoise):
        return True
    discrete = isinstance(event.mechanism, GaussianNoise) and event.mechanism.form == "discrete"
    return discrete and event.sampling.against(adversary) < 1


def pure_epsilon(event: Event, adversary: Adversary) -> float | None:
    """Pure epsilon of one round, after sampling: ln(1 + q (e^epsilon - 1)); else None.

    None stands for mechanisms without a pure epsilon. The amplification is Li, Qardaji and Su
    2012, theorem 1.
    """
    if not isinstance(event.mechanism, LaplaceNoise | RandomAnswer):
        return None
    rate = event.sampling.against(adversary)
    if rate == 1:
        return event.mechanism.epsilon
    return float(np.log1p(rate * np.expm1(event.mechanism.epsilon)))


def skellam_rdp(mechanism: SkellamNoise, orders: FloatArray) -> FloatArray:
    """Agarwal, Kairouz and Liu 2021, theorem 3.5, at integer orders.

    a D2^2 / (2 v) + min(((2 a - 1) D2^2 + 6 D1) / (4 v^2), 3 D1 / (2 v)).

    Raises:
        ConfigError: an order is not an integer above 1; the theorem speaks of those only.
    """
    if np.any(orders != np.floor(orders)) or np.any(orders < 2):
        raise ConfigError("dp.orders", orders.tolist(), "a Skellam curve has integer orders only")
    square, l1, variance = float(mechanism.l2_square), mechanism.l1, mechanism.variance
    gaussian = orders * square / (2 * variance)
    extra = np.minimum(
        ((2 * orders - 1) * square + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
    )
    return np.asarray(gaussian + extra)


def pure_rdp(epsilon: float, orders: FloatArray) -> FloatArray:
    """Renyi curve of any epsilon-DP mechanism: randomized response is the worst case.

    ln((e^{a epsilon} + e^{(1 - a) epsilon}) / (1 + e^epsilon)) / (a - 1).
    """
    moment = np.logaddexp(orders * epsilon, (1 - orders) * epsilon) - np.logaddexp(0, epsilon)
    return np.asarray(np.maximum(moment, 0) / (orders - 1))


def sampled_rdp(
    curve: Callable[[FloatArray], FloatArray], rate: float, orders: FloatArray
) -> FloatArray:
    """Poisson sampling of any mechanism, at integer orders: Zhu and Wang 2019, theorem 5.

    e^{(a-1) R(a)} = (1-q)^{a-1} (a q - q + 1) + C(a, 2) q^2 (1-q)^{a-2} e^{R_0(2)}
    + 3 sum_{l=3}^{a} C(a, l) q^l (1-q)^{a-l} e^{(l-1) R_0(l)}.

    Args:
        curve: R_0, the mechanism's curve without sampling.
        rate: q, below 1.
        orders: float64[A], integers above 1.

    Returns:
        float64[A], never above the curve without sampling.
    """
    most = int(orders.max())
    whole = np.arange(2, most + 1, dtype=np.float64)
    bare = curve(whole)
    found = []
    for order in orders.astype(np.int64).tolist():
        terms = np.arange(2, order + 1, dtype=np.float64)
        choose = gammaln(order + 1) - gammaln(terms + 1) - gammaln(order - terms + 1)
        logs = (
            choose
            + terms * np.log(rate)
            + (order - terms) * np.log1p(-rate)
            + (terms - 1) * bare[: order - 1]
        )
        logs[1:] += np.log(3)
        first = (order - 1) * np.log1p(-rate) + np.log(order * rate - rate + 1)
        amplified = float(logsumexp(np.append(logs, first))) / (order - 1)
        found.append(max(0.0, min(amplified, float(bare[order - 2]))))
    return np.asarray(found)


def _whole_curve(event: Event) -> Callable[[FloatArray], FloatArray]:
    mechanism = event.mechanism
    if isinstance(mechanism, SkellamNoise):
        return lambda orders: skellam_rdp(mechanism, orders)
    if isinstance(mechanism, GaussianNoise):
        return lambda orders: orders / (2 * mechanism.multiplier**2)
    raise TypeError(f"no curve for {mechanism}")


def _require_priced(event: Event, adversary: Adversary) -> None:
    if isinstance(event.mechanism, ExactSum):
        raise ConfigError(
            f"dp.parts.{event.mechanism.what}.release",
            "exact",
            "an exact sum lacks an epsilon; put the part into the noised vector or make no claim",
            ["noised"],
        )
    if adversary not in event.noised_against:
        raise ConfigError(
            "dp.adversary",
            adversary,
            f"sees {event.covers} without the noise; no epsilon exists",
            event.noised_against,
        )
    if event.adjacency == "add-or-remove" and event.participation != "hidden":
        raise ConfigError(
            "dp.adjacency",
            event.adjacency,
            "an absent client adds no noise, or is not counted, so its absence can be seen",
            ["zero-out"],
        )
    if event.sampling.against(adversary) < 1:
        _require_amplified(event)


def _require_amplified(event: Event) -> None:
    """Refuse amplification unless the event states that the theorems apply.

    They hold for a mixture of two outputs that differ only in the presence of the protected thing.
    """
    if event.participation != "hidden":
        raise ConfigError(
            "dp.sampling.rate",
            event.sampling.rate,
            "the noise, or what is released with it, shows which clients take part, so sampling "
            "does not amplify; price it without sampling",
            [1],
        )
    if event.sampling.scheme != "poisson":
        raise ConfigError(
            "dp.sampling.scheme", event.sampling.scheme, "does not have a bound here", ["poisson"]
        )
    if event.adjacency not in _SAMPLED_ADJACENCIES:
        raise ConfigError(
            "dp.adjacency",
            event.adjacency,
            "amplification by sampling is proved only for something present or absent",
            _SAMPLED_ADJACENCIES,
        )
