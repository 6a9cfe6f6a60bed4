"""Differential privacy in an audit: noise from a budget, and the privacy cost of the run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from audits.config.audit import AuditConfig
from audits.gates.gate import EVERYTHING
from secure_fedrec.accounting import PrivacyStatement, claim, find_noise_multiplier
from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.protection import RECORDS, Released, Sizes, Stack
from secure_fedrec.protection.base.events import Adversary as Reader
from secure_fedrec.wire import Adversary


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The privacy cost of one part of what clients send, against one reader.

    Args:
        part: "sums", "reports" (of the rated set) or "bags".
        statement: the price in words and numbers.
        whole: whether the part is everything that clients send.
    """

    part: str
    statement: PrivacyStatement
    whole: bool

    def is_of(self, adversary: Adversary) -> bool:
        """Whether this price applies to an adversary's own view."""
        return self.statement.adversary == reader_of(adversary)


def with_noise_found(layers: Mapping[str, Any], *, rounds: int, sizes: Sizes) -> Mapping[str, Any]:
    """Layers with the noise as a number, computed from the budget against the server if given.

    Raises:
        ConfigError: no noise meets the budget.
    """
    found = dict(layers)
    for name in layers:
        budget = RECORDS[name].budget(layers, sizes)
        if budget is None:
            continue
        released = partial(budget.events, rounds=rounds)
        with renamed_keys(budget.keys):
            multiplier = find_noise_multiplier(
                released, epsilon=budget.epsilon, delta=budget.delta, adversary="server"
            )
        found[name] = budget.settings(multiplier)
    return found


def draws_noise(stack: Stack) -> bool:
    """Whether a repeated round draws new noise, and so is a further release."""
    return any(released.fresh for released in stack.released(rounds=1))


def prices(
    stack: Stack,
    *,
    rounds: int,
    repeated: int = 0,
    readers: Sequence[Reader] = ("server",),
) -> tuple[Price, ...]:
    """The prices of a run: one per reader and noised part, none before the first round.

    Args:
        stack: the layers.
        rounds: rounds of the run.
        repeated: rounds that were repeated after an interruption, with new noise.
        readers: the readers against which prices are stated.

    Raises:
        ConfigError: a price that cannot be stated.
    """
    if not rounds:
        return ()
    return tuple(
        Price(part=released.part, statement=statement, whole=[released.part] == _parts(stack))
        for reader in readers
        for released in stack.released(rounds=rounds, repeated=repeated)
        if (statement := _stated(stack, released, reader)) is not None
    )


def reader_of(adversary: Adversary) -> Reader | None:
    """The reader whose epsilon applies to an adversary; None for denoisers (no claim)."""
    if adversary.has("denoiser"):
        return None
    return "server" if adversary.has("server") else "release"


def readers(adversaries: Sequence[Adversary]) -> tuple[Reader, ...]:
    """The readers for which prices are stated: the server, and those of the adversaries."""
    found = {reader_of(adversary) for adversary in adversaries}
    return ("server", "release") if "release" in found else ("server",)


def epsilons(
    adversaries: Sequence[Adversary], stack: Stack, priced: Sequence[Price]
) -> dict[tuple[str, str], float]:
    """Epsilon by the adversary's name and what it covers: a part, or everything sent.

    Everything is covered only if there is a single part and it is noised: with an exact part no
    epsilon bounds what is learned, and prices of two parts are not added here.
    """
    found = {}
    for adversary in adversaries:
        own = [each for each in priced if each.is_of(adversary)]
        for each in own:
            found[adversary.name, each.part] = each.statement.epsilon
        if len(own) == 1 and own[0].whole:
            found[adversary.name, EVERYTHING] = own[0].statement.epsilon
    return found


def _parts(stack: Stack) -> list[str]:
    """All that clients send, noised or not."""
    noised = [released.part for released in stack.released(rounds=1)]
    return list(dict.fromkeys(["sums", *noised, *([] if stack.bags is None else ["bags"])]))


def require_priced(config: AuditConfig, stack: Stack, sizes: Sizes) -> None:
    """Check that a run has the prices that its budget and its gates require.

    The search for noise uses the named distribution; the claim adds its distance to the drawn
    distribution, weighted by exp(epsilon).

    Raises:
        ConfigError: the claim would exceed the budget or cannot be made, or a gate asks for the
            epsilon of an adversary without a claimed epsilon.
    """
    layers, rounds = config.protection, config.algorithm.rounds
    found = [RECORDS[name].budget(layers, sizes) for name in layers]
    budgets = {budget.part: budget.epsilon for budget in found if budget is not None}
    try:
        priced = prices(stack, rounds=rounds, readers=("server", "release"))
    except ConfigError as refused:
        for most in budgets.values():
            problem = f"cannot be claimed ({refused}); {_ADVICE}"
            raise ConfigError("protection.epsilon", most, problem) from None
        raise
    for price in priced:
        spent, most = price.statement.epsilon, budgets.get(price.part, math.inf)
        if price.statement.adversary == "server" and spent > most:
            problem = f"the run would cost {spent:.4g}; {_ADVICE}"
            raise ConfigError("protection.epsilon", most, problem)
    known = epsilons(config.adversaries, stack, priced)
    for gate in config.gates:
        if gate.metric != "epsilon" or (gate.adversary, gate.covers) in known:
            continue
        parts = sorted(part for name, part in known if name == gate.adversary)
        if not parts:
            names = sorted({name for name, _ in known})
            raise gate.refusal("adversary", "no epsilon is claimed against it", names)
        sent = " and ".join(_parts(stack))
        problem = f"no epsilon covers that: clients send {sent}; name the part that is noised"
        raise gate.refusal("covers", problem, parts)


_ADVICE = (
    "so large a budget leaves no room for the sampler's distance from the named noise: lower it, "
    "or give protection.noise_multiplier"
)


def _stated(stack: Stack, released: Released, reader: Reader) -> PrivacyStatement | None:
    """A statement, or None for a published system whose price is too large to state.

    Raises:
        ConfigError: configured noise does not have a price.
    """
    if not released.events:
        return None
    try:
        with renamed_keys(released.keys):
            return claim(released.events, adversary=reader, delta=released.delta)
    except ConfigError:
        if draws_noise(stack):
            raise
        return None
