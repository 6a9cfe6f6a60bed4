"""The costs of a deployment of masked sums: graph, thresholds, bytes and processor time.

Parameters come from ``parameters``, bytes from ``message_sizes``, times from ``workload``: CPU
seconds of one thread on this machine. The server's times are given without dropouts and with as
many as the round survives, each after its secrets were shared, which is the most expensive case:
for each of them the server restores a secret and expands a mask per surviving neighbour.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from secure_fedrec.errors import ConfigError
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.workload import calibrate, client_seconds, server_seconds
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.parameters import (
    COMPLETE_UP_TO,
    MaskingParameters,
    find_parameters,
)
from secure_fedrec.protection.masking.config.round_settings import KeyAgreement, MaskingConfig
from secure_fedrec.protection.masking.messages.sizes import MessageSize, message_sizes


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a plan.

    Args:
        name: the stated quantity.
        value: how much.
        unit: of what.
        source: the bound, count or measurement it comes from.
    """

    name: str
    value: float | int
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters and costs of one round.

    Args:
        roster: clients of the deployment.
        beacon: whether the round needs public randomness that the server does not choose.
        parameters: result of ``find_parameters``.
        config: the configuration of the round.
        messages: messages that each client sends and receives.
        calibration: times of single operations.
        figures: everything above as lines; privacy loss at the end, if an accountant was given.
    """

    roster: int
    beacon: bool
    parameters: MaskingParameters
    config: MaskingConfig
    messages: tuple[MessageSize, ...]
    calibration: Calibration
    figures: tuple[Figure, ...]

    def as_json(self) -> dict[str, object]:
        """The plan as JSON values; the logarithm of an impossible event is null."""
        bounds = [
            {**asdict(bound), "log2": _finite(bound.log2)} for bound in self.parameters.bounds
        ]
        figures = [{**asdict(figure), "value": _finite(figure.value)} for figure in self.figures]
        return {
            "adversary": self.parameters.adversary,
            "clients": self.roster,
            "beacon": self.beacon,
            "parameters": {**asdict(self.parameters), "bounds": bounds},
            "messages": [asdict(message) for message in self.messages],
            "calibration": asdict(self.calibration),
            "figures": figures,
        }

    def lines(self) -> list[str]:
        """The plan as a plain table: name, value with unit, source."""
        rows = [(figure.name, _quantity(figure), figure.source) for figure in self.figures]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return [
            f"masked sum against {_ARTICLE[self.parameters.adversary]} server",
            *(
                f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {source}"
                for name, value, source in rows
            ),
        ]


_ARTICLE = {"curious": "an honest-but-curious", "active": "an active"}


def plan(
    *,
    clients: int,
    cohort: int,
    dropout: float,
    corrupt: float,
    dim: int,
    adversary: Adversary,
    bits: int = 32,
    beacon: bool = True,
    key_agreement: KeyAgreement = "x25519",
    privacy_bits: int = 40,
    correctness_bits: int = 20,
    calibration: Calibration | None = None,
    epsilon: Callable[[MaskingConfig], Sequence[Figure]] | None = None,
) -> Plan:
    """Parameters and costs of a deployment.

    Args:
        clients: clients of the roster.
        cohort: clients of a round; if fewer than ``clients``, drawn at random from the roster, and
            ``corrupt`` is a fraction of the roster.
        dropout: largest fraction of dropouts that a round survives.
        corrupt: largest fraction of corrupt clients.
        dim: ring words of a client's vector, weights and counts included.
        adversary: "curious" or "active".
        bits: ring width, 1 to 64.
        beacon: whether there is public randomness that the server does not choose.
        key_agreement: "x25519" or "x25519+mlkem768".
        privacy_bits: statistical security.
        correctness_bits: of failures by dropouts.
        calibration: costs of the operations; measured here if absent.
        epsilon: what a DP accountant states about a round of this configuration.

    Raises:
        ConfigError: no parameters meet the bounds, the cohort is larger than the roster, or an
            active server would draw the cohort or the graph for lack of a beacon.
    """
    _require_feasible(clients, cohort, adversary, beacon)
    parameters = find_parameters(
        cohort,
        corrupt=corrupt,
        dropout=dropout,
        adversary=adversary,
        privacy_bits=privacy_bits,
        correctness_bits=correctness_bits,
        roster=clients,
    )
    config = MaskingConfig.of(
        parameters, bits=bits, length=dim, layout_hash=bytes(32), key_agreement=key_agreement
    )
    measured = calibrate(config) if calibration is None else calibration
    figures = [
        *_parameter_figures(parameters, clients, corrupt, dropout),
        *_byte_figures(message_sizes(config)),
        *_time_figures(config, parameters, measured),
        *(() if epsilon is None else epsilon(config)),
    ]
    drawn = clients > parameters.n
    return Plan(
        roster=clients,
        beacon=parameters.adversary == "active" and (drawn or not parameters.complete),
        parameters=parameters,
        config=config,
        messages=message_sizes(config),
        calibration=measured,
        figures=tuple(figures),
    )


def _require_feasible(clients: int, cohort: int, adversary: Adversary, beacon: bool) -> None:
    """Without a beacon an active server chooses whatever is left to chance."""
    if not 3 <= cohort <= clients:
        raise ConfigError("plan.cohort", cohort, f"must be between 3 and the {clients} clients")
    if adversary == "curious" or beacon:
        return
    problem = None
    if cohort < clients:
        problem = (
            f"an active server would choose the {cohort} of {clients} clients itself, the corrupt "
            "ones first; use a beacon, or the whole roster as the cohort"
        )
    elif cohort > COMPLETE_UP_TO:
        problem = (
            f"an active server would choose the graph of {cohort} clients; use a beacon, or at "
            f"most {COMPLETE_UP_TO} clients on the complete graph"
        )
    if problem is not None:
        raise ConfigError("plan.beacon", False, problem, choices=(True,))


def _parameter_figures(
    parameters: MaskingParameters, clients: int, corrupt: float, dropout: float
) -> list[Figure]:
    n, k, t = parameters.n, parameters.degree, parameters.threshold
    drawn = f"floor({corrupt:g} n)"
    if clients > n:
        drawn = f"hypergeometric tail: {n} of {clients} drawn, fraction {corrupt:g} corrupt"
    graph = f"smallest degree with all privacy events below 2^-{parameters.privacy_bits}"
    if parameters.complete:
        graph = f"complete graph (n <= {COMPLETE_UP_TO}, or no smaller degree suffices)"
    least, most = parameters.threshold_least, parameters.threshold_most
    shares = f"shares that restore a secret; {least} to {most} meet the bounds"
    quorum = "a curious server names one set; nothing to agree on"
    if parameters.committee is not None:
        quorum = "of members of the committee; no two survivor sets can both gather it"
    elif parameters.adversary == "active":
        quorum = "floor((n + c) / 2) + 1: no two survivor sets can both gather it"
    survivors = f"n - floor({dropout:g} n)"
    figures = [
        Figure("corrupt clients", parameters.corrupt_clients, "clients", drawn),
        Figure("graph degree", k, "neighbours", graph),
        Figure("threshold", t, "shares", shares),
        Figure("quorum", parameters.quorum, "signatures", quorum),
        Figure("survivors at least", parameters.min_survivors, "clients", survivors),
    ]
    if parameters.committee is not None:
        drawn = "smallest m within half of what the windows leave; 2q - m corrupt members break it"
        figures.append(Figure("committee", parameters.committee, "clients", drawn))
    if parameters.window_least is not None:
        window = "survivors in every k/2 consecutive ring places, c_w + 1"
        unit = f"of {k // 2} places"
        figures.append(Figure("window check", parameters.window_least, unit, window))
    private = [bound for bound in parameters.bounds if bound.protects == "privacy"]
    chance = sum(2.0**bound.log2 for bound in private)
    chances = [
        (f"{each.protects}: {each.event}", each.log2, each.formula) for each in parameters.bounds
    ]
    summed = f"{', '.join(bound.event for bound in private)}: the sum, in each round"
    chances.append(("privacy: all events", math.log2(chance) if chance else -math.inf, summed))
    return figures + [Figure(name, value, "log2 probability", why) for name, value, why in chances]


def _byte_figures(messages: Sequence[MessageSize]) -> list[Figure]:
    figures = [
        Figure(f"{each.step} {each.kind} {each.direction}", each.size, "bytes", each.contents)
        for each in messages
    ]
    for direction, name in (("up", "client sends"), ("down", "client receives")):
        size = sum(message.size for message in messages if message.direction == direction)
        figures.append(Figure(name, size, "bytes", "sum of the messages above"))
    return figures


def _time_figures(
    config: MaskingConfig, parameters: MaskingParameters, calibration: Calibration
) -> list[Figure]:
    d = parameters.dropped_clients
    rate = f"masks at {calibration.mask_gigabytes_per_second:.2f} GB/s, measured now"
    whole = client_seconds(config, calibration)
    alone = server_seconds(config, calibration, dropped=0)
    dropped = server_seconds(config, calibration, dropped=d)
    why = "and for each dropout a secret and a mask per surviving neighbour"
    return [
        Figure("client time", whole, "CPU s", f"operations and bookkeeping; {rate}"),
        Figure("server time, no dropouts", alone, "CPU s", "n self masks and vectors, signatures"),
        Figure(f"server time, {d} dropouts", dropped, "CPU s", why),
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _quantity(figure: Figure) -> str:
    text = f"{figure.value:,}" if isinstance(figure.value, int) else f"{figure.value:.4g}"
    return f"{text} {figure.unit}"
