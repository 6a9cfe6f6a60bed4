"""Differential privacy in an audit: noise found from a budget, and what the run cost in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from audits.config import AuditConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Sizes, Stack
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.configured import as_configured
from secure_fedrec.protection.dp import rated_set_events
from secure_fedrec.protection.dp.events import Adversary as Reader
from secure_fedrec.protection.dp.events import Event
from secure_fedrec.protection.hidden_sums import DP_KEYS, NoisedSum, encoding_of
from secure_fedrec.protection.randomized_response import (
    RandomizedResponse,
    RandomizedResponseConfig,
)
from secure_fedrec.wire import Adversary

if TYPE_CHECKING:
    from secure_fedrec.accounting import PrivacyStatement

__all__ = [
    "draws_noise",
    "epsilons",
    "privacy_statements",
    "reader_of",
    "readers",
    "require_priced",
    "with_noise_found",
]

_DELTA = 1e-5
"""Of layers that have no delta of their own."""

_Priced: TypeAlias = tuple[Sequence[Event], float]


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

    encoding = encoding_of(
        n_items=sizes.n_items, width=sizes.width, clip=layers["clip"], noise=noise
    )
    with as_configured(DP_KEYS):
        multiplier = find_noise_multiplier(
            lambda candidate: skellam_events(candidate, encoding, rounds=rounds),
            epsilon=noise.epsilon,
            delta=noise.delta,
            adversary="server",
        )
    return {**layers, "skellam": replace(noise, noise_multiplier=multiplier, epsilon=None)}


def draws_noise(stack: Stack) -> bool:
    """Whether a round that is repeated draws noise afresh, and so releases once more."""
    return isinstance(stack.collector, NoisedSum) or _noised_bags(stack) is not None


def privacy_statements(
    stack: Stack,
    *,
    rounds: int,
    repeated: int = 0,
    readers: Sequence[Reader] = ("server",),
) -> "tuple[PrivacyStatement, ...]":
    """What a run costs: one statement per reader and noised layer, none before the first round.

    Args:
        stack: the layers.
        rounds: rounds of the run.
        repeated: rounds that were begun once more after an interruption, their noise drawn afresh.
        readers: against whom.

    Raises:
        ConfigError: a price that cannot be stated.
    """
    if not rounds:
        return ()
    return tuple(
        statement
        for reader in readers
        for released, delta in _released(stack, rounds, repeated)
        if (statement := _stated(stack, released, reader, delta)) is not None
    )


def reader_of(adversary: Adversary) -> Reader | None:
    """Whose epsilon is an adversary's own; None for denoisers, who see what no claim covers."""
    if adversary.has("denoiser"):
        return None
    return "server" if adversary.has("server") else "release"


def readers(adversaries: Sequence[Adversary]) -> tuple[Reader, ...]:
    """Against whom prices are stated: the server, and whoever else adversaries amount to."""
    found = {reader_of(adversary) for adversary in adversaries}
    return ("server", "release") if "release" in found else ("server",)


def epsilons(
    adversaries: Sequence[Adversary], statements: "Sequence[PrivacyStatement]"
) -> dict[str, float]:
    """By the adversary's name, the largest epsilon of what is stated against it."""
    found = {}
    for adversary in adversaries:
        own = [each.epsilon for each in statements if each.adversary == reader_of(adversary)]
        if own:
            found[adversary.name] = max(own)
    return found


def require_priced(config: AuditConfig, stack: Stack) -> None:
    """Check that a run has the prices that its budget and its gates ask for.

    The search for noise prices the named distribution; the claim adds the distance of the one that
    is drawn, which weighs with exp(epsilon).

    Raises:
        ConfigError: the claim would exceed the budget or cannot be made, or a gate asks for the
            epsilon of an adversary against whom none is claimed.
    """
    noise = config.protection.get("skellam")
    budget = None if noise is None else noise.epsilon
    rounds = config.algorithm.rounds
    try:
        statements = privacy_statements(stack, rounds=rounds, readers=("server", "release"))
    except ConfigError as refused:
        if budget is None:
            raise
        raise ConfigError(
            "protection.epsilon", budget, f"cannot be claimed ({refused}); {_ADVICE}"
        ) from None
    if isinstance(stack.collector, NoisedSum) and budget is not None:
        spent = statements[0].epsilon
        if spent > budget:
            raise ConfigError(
                "protection.epsilon", budget, f"the run would cost {spent:.4g}; {_ADVICE}"
            )
    priced = epsilons(config.adversaries, statements)
    for gate in config.gates:
        if gate.metric == "epsilon" and gate.adversary not in priced:
            raise ConfigError(
                "gates.adversary",
                gate.adversary,
                "no epsilon is claimed against it",
                sorted(priced),
            )


_ADVICE = (
    "so large a budget leaves no room for the sampler's distance from the named noise: lower it, "
    "or give protection.noise_multiplier"
)


def _released(stack: Stack, rounds: int, repeated: int) -> Iterator[_Priced]:
    """What each noised layer releases, and its delta."""
    collector, cloak, noised = stack.collector, stack.cloak, _noised_bags(stack)
    if isinstance(collector, NoisedSum):
        events = collector.skellam.events(rounds=rounds + repeated)
        yield _explained(events, repeated), collector.noise.delta
    if isinstance(cloak, RandomizedResponse):
        # A repeated round throws the same coins: its report says nothing new.
        yield _reports(cloak.config, rounds), _DELTA
    if noised is not None:
        yield _explained(noised.client_events(rounds=rounds + repeated), repeated), _DELTA


def _reports(config: RandomizedResponseConfig, rounds: int) -> Sequence[Event]:
    try:
        return rated_set_events(config, rounds=rounds)
    except ConfigError:  # no report is ever in doubt
        return ()


def _stated(
    stack: Stack, released: Sequence[Event], reader: Reader, delta: float
) -> "PrivacyStatement | None":
    """A statement, or None for a published system that costs too much to have a price.

    Raises:
        ConfigError: noise that was configured has none.
    """
    if not released:
        return None
    from secure_fedrec.accounting import claim  # noqa: PLC0415

    try:
        with as_configured(DP_KEYS):
            return claim(released, adversary=reader, delta=delta)
    except ConfigError:
        if draws_noise(stack):
            raise
        return None


def _noised_bags(stack: Stack) -> Any:
    return stack.bags.noise if isinstance(stack.bags, LayeredBags) else None


def _explained(events: Sequence[Event], repeated: int) -> Sequence[Event]:
    """Events that say which of their rounds were repeated."""
    if not repeated:
        return events
    clause = (
        f"{repeated} of the rounds repeat others after an interruption, with noise drawn afresh; "
        "they count like any round"
    )
    return [replace(event, assumes=(*event.assumes, clause)) for event in events]
