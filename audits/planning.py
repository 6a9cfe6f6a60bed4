"""Parameters and costs of a deployment of masked sums, as ``secure-fedrec plan`` prints them.

Graph, threshold, bytes and times come from ``secure_fedrec.planning.costs``; what a round
costs in privacy comes from ``secure_fedrec.accounting``, against two readers: the *server*, which
knows the cohort of a round, masked or not, and an *outsider*, who sees only the released model. No
amplification by sampling is credited against either (q = 1): clients add the noise, and its energy
in what is released tells which clients took part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from audits.config.tables import build
from secure_fedrec.accounting import (
    PrivacyStatement,
    claim,
    find_noise_multiplier,
    gaussian_events,
    skellam_events,
)
from secure_fedrec.errors import ConfigError
from secure_fedrec.planning.costs import Figure, Plan
from secure_fedrec.planning.costs import plan as plan_round
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    Event,
    Part,
    SkellamConfig,
)
from secure_fedrec.protection.masking import KeyAgreement, MaskingConfig, TailFloor
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.settings import Positive, Settings, Share, Within

AdversaryChoice: TypeAlias = Literal["curious", "active", "both"]


class Deployment(Settings, section=""):
    """The deployment to plan; the fields are the options of the command.

    Args:
        clients: clients of the roster.
        cohort: clients of a round; None for all of them.
        dropout: largest fraction of dropouts that a round survives.
        corrupt: largest fraction of corrupt clients, of the roster.
        dim: ring words of a client's vector.
        bits: ring width.
        adversary: server to withstand; "both" plans twice.
        min_honest: fewest honest clients behind any sum.
        tail_floor: fewest clients behind a row that is summed; 0 or 1 sums all. It requires an
            earlier round of counts and a curious server: an active one would sign false counts.
        privacy_bits, correctness_bits: see ``find_parameters``.
        beacon: whether public randomness is available that the server does not choose.
        key_agreement: see ``MaskingConfig``.
        noise_multiplier: noise of one round over the L2 sensitivity; 1 if there is no budget.
        epsilon_per_round: budget from which the noise is found instead, against the server.
        delta: delta of every epsilon.
        clip: L2 norm of a contribution; if given, the noise is Skellam in the ring, otherwise a
            rounded Gaussian is assumed.
        fraction_bits: binary digits of a clipped contribution, 12 by default.

    Raises:
        ConfigError: an option is out of range, or two contradict each other.
    """

    clients: Annotated[int, Within(3, 2**24)]
    cohort: int | None = None
    dropout: Share = 0.1
    corrupt: Share = 0.1
    dim: Annotated[int, Within(1, 2**31 - 1)] = 100_000
    bits: Annotated[int, Within(1, 64)] = 32
    adversary: AdversaryChoice = "both"
    min_honest: int = 2
    tail_floor: int = 0
    privacy_bits: Annotated[int, Within(1, 128)] = 40
    correctness_bits: Annotated[int, Within(1, 128)] = 20
    beacon: bool = True
    key_agreement: KeyAgreement = "x25519"
    noise_multiplier: Positive | None = None
    epsilon_per_round: Positive | None = None
    delta: Annotated[float, Within(above=0, below=1)] = 1e-5
    clip: Positive | None = None
    fraction_bits: Annotated[int, Within(0, 40)] | None = None

    def _agree(self) -> None:
        for name, low in (("cohort", 3), ("min_honest", 2), ("tail_floor", 0)):
            self.require_between(name, low, self.clients)
        if self.tail_floor > 1:
            TailFloor.require_curious(self.adversary, key="--adversary")
        if self.noise_multiplier is not None and self.epsilon_per_round is not None:
            raise self.refusal("epsilon_per_round", "give a noise multiplier or a budget, not both")
        if self.clip is None and self.fraction_bits is not None:
            raise self.refusal("fraction_bits", "needs --clip")

    def key(self, name: str) -> str:
        """The option of the command."""
        return _option(name)

    @property
    def drawn(self) -> int:
        """Clients of a round."""
        return self.clients if self.cohort is None else self.cohort

    @property
    def adversaries(self) -> tuple[Adversary, ...]:
        """The servers that are planned for."""
        return ("curious", "active") if self.adversary == "both" else (self.adversary,)

    @property
    def encoding(self) -> BoundedEncoding | None:
        """How a contribution is clipped and encoded for Skellam noise."""
        if self.clip is None:
            return None
        return BoundedEncoding(
            contribution=Contribution(parts=(Part(name="vector", size=self.dim),)),
            clip=self.clip,
            fraction_bits=12 if self.fraction_bits is None else self.fraction_bits,
        )


def plan(
    deployment: Deployment | Mapping[str, Any] | None = None, **settings: Any
) -> tuple[Plan, ...]:
    """Parameters and costs of masked sums for a federation that does not exist yet.

    Args:
        deployment: a ``Deployment`` or a dict of its settings; None if they are given by name.
        settings: ``clients``, ``cohort``, ``dropout`` and so on: the fields of ``Deployment``, the
            options of the command.

    Returns:
        A plan for each server that is to be withstood; times are measured on this machine, now.

    Raises:
        TypeError: the deployment is of another type, or settings are given in addition to it.
        ConfigError: a setting is unknown or out of range, or no parameters meet the bounds; names
            the setting, or the option of the command, such as ``--min-honest``.
    """
    if deployment is not None and (settings or not isinstance(deployment, Deployment | Mapping)):
        told = "settings in addition" if settings else repr(deployment)
        raise TypeError(f"a plan is for a Deployment, a dict, or settings by name; this is {told}")
    if isinstance(deployment, Deployment):
        return plans(deployment)
    return plans(build(Deployment, "", settings if deployment is None else deployment))


def plans(deployment: Deployment) -> tuple[Plan, ...]:
    """One plan per adversary, privacy loss included; times are measured on this machine, now.

    Raises:
        ConfigError: no parameters meet the bounds; names the option.
    """
    return tuple(_plan(deployment, adversary) for adversary in deployment.adversaries)


def _plan(deployment: Deployment, adversary: Adversary) -> Plan:
    try:
        found = plan_round(
            clients=deployment.clients,
            cohort=deployment.drawn,
            dropout=deployment.dropout,
            corrupt=deployment.corrupt,
            dim=deployment.dim,
            adversary=adversary,
            bits=deployment.bits,
            beacon=deployment.beacon,
            key_agreement=deployment.key_agreement,
            privacy_bits=deployment.privacy_bits,
            correctness_bits=deployment.correctness_bits,
            epsilon=lambda config: _privacy(deployment, config),
        )
    except ConfigError as refused:
        raise _by_option(refused, deployment, adversary) from None
    return _with_honest(deployment, found)


def _with_honest(deployment: Deployment, found: Plan) -> Plan:
    """The plan with the guaranteed number of honest clients behind a sum.

    Raises:
        ConfigError: there are fewer than required.
    """
    parameters = found.parameters
    honest = parameters.min_survivors - parameters.corrupt_clients
    if honest < deployment.min_honest:
        raise ConfigError(
            "--min-honest",
            deployment.min_honest,
            f"the smallest sum holds {honest} honest clients; lower --dropout or --corrupt, or "
            "enlarge --cohort",
        )
    least = "fewest survivors, minus the corrupt clients"
    names = [each.name for each in found.figures]
    place = names.index("survivors at least") + 1
    added = [Figure("honest among them at least", honest, "clients", least)]
    if deployment.tail_floor > 1:
        floor = "tail floor: a round of masked counts comes before this one"
        named = "clients behind a summed row at least"
        added.append(Figure(named, deployment.tail_floor, "clients", floor))
    return replace(found, figures=(*found.figures[:place], *added, *found.figures[place:]))


def _privacy(deployment: Deployment, config: MaskingConfig) -> list[Figure]:
    """Noise and epsilon of one round."""
    multiplier, found_by = _noise(deployment)
    encoding = deployment.encoding
    if encoding is None:
        found_by += "; a rounded Gaussian stands in for the noise, --clip plans it in the ring"
    figures = [Figure("noise multiplier", multiplier, "x clip", found_by)]
    if encoding is None:
        figures += _epsilons(deployment, _events(deployment, multiplier))
        return figures
    skellam = SkellamConfig(
        encoding=encoding,
        noise_multiplier=multiplier,
        ring_bits=config.bits,
        cohort=config.clients,
        min_survivors=config.min_survivors,
        corrupt=config.corrupt_clients,
    )
    figures += _epsilons(deployment, skellam.events(rounds=1))
    spread = math.sqrt(skellam.local_variance)
    share = "variance of the whole over (survivors at least - corrupt clients)"
    wrap = math.log2(skellam.wrap_probability) if skellam.wrap_probability else -math.inf
    bound = "Hoeffding over the rotation, Chernoff over the noise; a wrong result, no leak"
    return [
        *figures,
        Figure("noise of one client", spread, "ring units (sd)", share),
        Figure("correctness: sum leaves the ring", wrap, "log2 probability", bound),
    ]


def _noise(deployment: Deployment) -> tuple[float, str]:
    """The noise multiplier, and where it comes from."""
    if deployment.epsilon_per_round is None:
        given = deployment.noise_multiplier
        name = "standard deviation over the L2 sensitivity"
        return (1.0, f"{name}, by default") if given is None else (given, f"{name}, as given")
    multiplier = find_noise_multiplier(
        lambda candidate: _events(deployment, candidate),
        epsilon=deployment.epsilon_per_round,
        delta=deployment.delta,
        adversary="server",
    )
    budget = f"epsilon = {deployment.epsilon_per_round:g} per round against the server"
    return multiplier, f"least noise, to 0.1%, with {budget}"


def _events(deployment: Deployment, multiplier: float) -> Sequence[Event]:
    encoding = deployment.encoding
    if encoding is None:
        return gaussian_events(multiplier, rounds=1)
    return skellam_events(multiplier, encoding, rounds=1)


def _epsilons(deployment: Deployment, events: Sequence[Event]) -> list[Figure]:
    """Epsilon of a round against the server, and against an outsider."""
    server = claim(events, adversary="server", delta=deployment.delta)
    release = claim(events, adversary="release", delta=deployment.delta)
    condition = "q = 1: clients add the noise, and its energy tells who took part"
    if deployment.drawn == deployment.clients:
        condition = "q = 1: all clients take part"
    return [
        _epsilon("server", server, "q = 1: the server knows the cohort"),
        _epsilon("outsider", release, condition),
    ]


def _epsilon(reader: str, statement: PrivacyStatement, condition: str) -> Figure:
    noise = statement.releases[0].partition(",")[0]
    conversion = f"Renyi order {statement.spent.order:g}"
    source = f"{condition}; {noise}, {conversion}; {statement.adjacency}"
    unit = f"at delta {statement.delta:g}"
    return Figure(f"epsilon per round, {reader}", statement.epsilon, unit, source)


_OPTIONS: Mapping[str, str] = {
    **{f"dp.{name}": name for name in ("clip", "delta", "fraction_bits", "noise_multiplier")},
    **{f"masking.{name}": name for name in ("corrupt", "dropout")},
    "dp.epsilon": "epsilon_per_round",
    "masking.clients": "cohort",
    "masking.length": "dim",
    "masking.roster": "clients",
    "plan.cohort": "cohort",
    "ring.bits": "bits",
}
"""Option by the key under which the layers refuse its value."""


def _by_option(refused: ConfigError, deployment: Deployment, adversary: Adversary) -> ConfigError:
    """The same error under the name of the option that the user gave."""
    against = f"against {'an active' if adversary == 'active' else 'a curious'} server: "
    if refused.key == "plan.beacon":
        return ConfigError("--no-beacon", True, f"{against}{refused.problem}")
    given = {_option(name): getattr(deployment, name) for name in _OPTIONS.values()}
    return refused.renamed(
        {inner: _option(name) for inner, name in _OPTIONS.items()},
        values={option: value for option, value in given.items() if value is not None},
        prefix=against,
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
