"""Differential privacy in an audit: noise found from a budget, and what the run cost in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from audits.config.audit import AuditConfig
from audits.gates.gate import EVERYTHING
from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.protection import Sizes, Stack
from secure_fedrec.protection.bags import BAG_NOISE_KEYS, LayeredBags
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
    "Price",
    "draws_noise",
    "epsilons",
    "prices",
    "reader_of",
    "readers",
    "require_priced",
    "with_noise_found",
]

_DELTA = 1e-5
"""Of layers that have no delta of their own."""


class _Released(NamedTuple):
    """What one noised part releases, and its delta."""

    part: str
    events: Sequence[Event]
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one part of what clients send cost, against one reader.

    Args:
        part: "sums", "reports" (of the rated set) or "bags".
        statement: the price in words and numbers.
    """

    part: str
    statement: "PrivacyStatement"


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
    with renamed_keys(DP_KEYS):
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


def prices(
    stack: Stack,
    *,
    rounds: int,
    repeated: int = 0,
    readers: Sequence[Reader] = ("server",),
) -> tuple[Price, ...]:
    """What a run costs: one price per reader and noised part, none before the first round.

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
        Price(part=released.part, statement=statement)
        for reader in readers
        for released in _released(stack, rounds, repeated)
        if (statement := _stated(stack, released, reader)) is not None
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
    adversaries: Sequence[Adversary], stack: Stack, priced: Sequence[Price]
) -> dict[tuple[str, str], float]:
    """Epsilon by the adversary's name and what it covers: a part, or everything sent.

    Everything is covered only where there is a single part and it is noised: beside something exact
    no epsilon bounds what is learned, and prices of two parts are not added here.
    """
    found = {}
    for adversary in adversaries:
        own = [each for each in priced if each.statement.adversary == reader_of(adversary)]
        for each in own:
            found[adversary.name, each.part] = each.statement.epsilon
        if len(own) == 1 and [own[0].part] == _parts(stack):
            found[adversary.name, EVERYTHING] = own[0].statement.epsilon
    return found


def _parts(stack: Stack) -> list[str]:
    """All that clients send, noised or not."""
    reports = ["reports"] if isinstance(stack.cloak, RandomizedResponse) else []
    return ["sums", *reports, *([] if stack.bags is None else ["bags"])]


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
        priced = prices(stack, rounds=rounds, readers=("server", "release"))
    except ConfigError as refused:
        if budget is None:
            raise
        raise ConfigError(
            "protection.epsilon", budget, f"cannot be claimed ({refused}); {_ADVICE}"
        ) from None
    if isinstance(stack.collector, NoisedSum) and budget is not None:
        spent = priced[0].statement.epsilon
        if spent > budget:
            raise ConfigError(
                "protection.epsilon", budget, f"the run would cost {spent:.4g}; {_ADVICE}"
            )
    known = epsilons(config.adversaries, stack, priced)
    for gate in config.gates:
        if gate.metric != "epsilon" or (gate.adversary, gate.covers) in known:
            continue
        parts = sorted(part for name, part in known if name == gate.adversary)
        if not parts:
            raise ConfigError(
                "gates.adversary",
                gate.adversary,
                "no epsilon is claimed against it",
                sorted({name for name, _ in known}),
            )
        raise ConfigError(
            "gates.covers",
            gate.covers,
            f"no epsilon covers that: clients send {' and '.join(_parts(stack))}; name what is "
            "noised",
            parts,
        )


_ADVICE = (
    "so large a budget leaves no room for the sampler's distance from the named noise: lower it, "
    "or give protection.noise_multiplier"
)


def _released(stack: Stack, rounds: int, repeated: int) -> Iterator[_Released]:
    """What each noised part releases."""
    collector, cloak, noised = stack.collector, stack.cloak, _noised_bags(stack)
    if isinstance(collector, NoisedSum):
        events = collector.skellam.events(rounds=rounds + repeated)
        yield _Released("sums", _explained(events, repeated), collector.noise.delta)
    if isinstance(cloak, RandomizedResponse):
        # A repeated round throws the same coins: its report says nothing new.
        yield _Released("reports", _reports(cloak.config, rounds), _DELTA)
    if noised is not None:
        events = noised.client_events(rounds=rounds + repeated)
        yield _Released("bags", _explained(events, repeated), _DELTA)


def _reports(config: RandomizedResponseConfig, rounds: int) -> Sequence[Event]:
    try:
        return rated_set_events(config, rounds=rounds)
    except ConfigError:  # no report is ever in doubt
        return ()


def _stated(stack: Stack, released: _Released, reader: Reader) -> "PrivacyStatement | None":
    """A statement, or None for a published system that costs too much to have a price.

    Raises:
        ConfigError: noise that was configured has none.
    """
    if not released.events:
        return None
    from secure_fedrec.accounting import claim  # noqa: PLC0415

    try:
        with renamed_keys(BAG_NOISE_KEYS if released.part == "bags" else DP_KEYS):
            return claim(released.events, adversary=reader, delta=released.delta)
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
