"""Differential privacy in an audit: noise found from a budget, and what the run cost in words."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from audits.config import AuditConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Collector, Sizes
from secure_fedrec.protection.dp import BoundedEncoding
from secure_fedrec.protection.hidden_sums import NoisedSum, contribution_of

if TYPE_CHECKING:
    from secure_fedrec.accounting import PrivacyStatement

__all__ = ["privacy_statement", "require_budget", "with_noise_found"]


def with_noise_found(layers: Mapping[str, Any], *, rounds: int, sizes: Sizes) -> Mapping[str, Any]:
    """Layers whose noise is a number: found from the budget against the server, if one is given.

    Raises:
        ConfigError: no noise meets the budget.
    """
    noise = layers.get("skellam")
    if noise is None or noise.epsilon is None or "clip" not in layers:
        return layers
    # The accountants bring PyTorch along; commands that need none of it should not wait for it.
    from secure_fedrec.accounting import find_noise_multiplier, skellam_events  # noqa: PLC0415

    encoding = BoundedEncoding(
        contribution=contribution_of(n_items=sizes.n_items, width=sizes.width, clip=layers["clip"]),
        clip=layers["clip"].norm,
        fraction_bits=noise.fraction_bits,
    )
    multiplier = find_noise_multiplier(
        lambda candidate: skellam_events(candidate, encoding, rounds=rounds),
        epsilon=noise.epsilon,
        delta=noise.delta,
        adversary="server",
    )
    return {**layers, "skellam": replace(noise, noise_multiplier=multiplier, epsilon=None)}


def privacy_statement(collector: Collector, *, rounds: int) -> "PrivacyStatement | None":
    """What so many rounds cost against the server; None where nothing is noised."""
    if not isinstance(collector, NoisedSum):
        return None
    from secure_fedrec.accounting import claim  # noqa: PLC0415

    events = collector.skellam.events(rounds=rounds)
    return claim(events, adversary="server", delta=collector.noise.delta)


def require_budget(config: AuditConfig, collector: Collector) -> None:
    """Check what a run will cost against the budget its noise was found from.

    The search prices the named distribution; the claim adds the distance of the one that is drawn,
    which weighs with exp(epsilon).

    Raises:
        ConfigError: the claim would exceed the budget.
    """
    noise = config.protection.get("skellam")
    if noise is None or noise.epsilon is None:
        return
    advice = (
        "so large a budget leaves no room for the sampler's distance from the named noise: lower "
        "it, or give protection.noise_multiplier"
    )
    try:
        statement = privacy_statement(collector, rounds=config.algorithm.rounds)
    except ConfigError as refused:
        raise ConfigError(
            "protection.epsilon", noise.epsilon, f"cannot be claimed ({refused}); {advice}"
        ) from None
    if statement is not None and statement.epsilon > noise.epsilon:
        raise ConfigError(
            "protection.epsilon",
            noise.epsilon,
            f"the run would cost {statement.epsilon:.4g}; {advice}",
        )
