"""What the gates of an audit can decide, by the number of clients behind their figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attacks import SUITE, Finding
from attacks.scoring.gains import Gain, Level
from attacks.scoring.measures import MEASURES, Gained
from attacks.scoring.scales import COUNT
from audits.gates.gate import FEWEST_CLIENTS, GateConfig
from audits.run.build import Federation
from audits.system import Task
from secure_fedrec.core.special import ndtri

_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePower:
    """What a gate can decide.

    Args:
        gate: its name.
        clients: estimated number behind its figure, from the rounds that were tried.
        least: figure from which the gate is decided in four of five runs, however much clients
            differ; None if it does not depend on clients, or has too few.
        reason: why its attack measured nothing in the rounds that were tried; None if it did.
        holds: the lowest bound on a gain that holds with this many clients if no client gains
            anything; None if the gate's bound is not lower, or it does not bound a gain from above.
    """

    gate: str
    clients: int
    least: float | None
    reason: str | None = None
    holds: float | None = None


def gate_power(
    gate: GateConfig,
    federation: Federation[Task],
    findings: Sequence[Finding] = (),
    payloads_of: int | None = None,
) -> GatePower:
    """Compute what a gate can decide, see ``GatePower``.

    Args:
        gate: the gate.
        federation: gives the number of clients, and the rounds that an attack may choose from.
        findings: of attacks on some rounds, which give the number of clients behind a figure; all
            clients are assumed without a finding of the gate's attack.
        payloads_of: the round that was recorded with payloads; None without one.
    """
    config = federation.config
    adversary = next((each for each in config.adversaries if each.name == gate.adversary), None)
    own = () if adversary is None else adversary.members("client") or ()
    clients, there = federation.task.facts.clients - len(own), True
    for found in findings:
        if (found.attack, found.adversary) == (gate.attack, gate.adversary):
            if not found.measured:
                return GatePower(gate=gate.name, clients=0, least=None, reason=found.reason)
            clients = _behind(found, clients, federation, payloads_of)
            there = found.figures.get(gate.metric) is not None
    bound = getattr(gate, gate.bound)
    of_clients = there and gate.attack is not None and gate.metric in MEASURES
    if not of_clients or gate.attack is None or clients < FEWEST_CLIENTS:
        return GatePower(gate=gate.name, clients=clients, least=None)
    tried = 1
    if reads_one_round(gate.attack):
        tried = max(1, len(config.recording.payload_rounds))
    measure = MEASURES[gate.metric]
    if measure.scale.unit == COUNT:  # a count of persons is a whole number
        step = -1.0 if gate.bound == "min" else 1.0
        return GatePower(gate=gate.name, clients=clients, least=float(bound) + step)
    gained = isinstance(measure.severity, Gained)
    low = -1.0 if gained else 0.0
    deviations = float(ndtri(1.0 - 0.025 / tried) + ndtri(_POWER)) / math.sqrt(clients)
    end = low if gate.bound == "min" else 1.0
    # Exact intervals of shares are wider than normal ones, by a client or so.
    least = _surely(float(bound), end, low, deviations, 1.0 / clients)
    holds = _of_nothing(clients, tried) if gained and gate.bound == "max" else 0.0
    held = None if float(bound) >= holds else holds
    return GatePower(gate=gate.name, clients=clients, least=least, holds=held)


def _of_nothing(clients: int, tried: int) -> float:
    """Upper end of the interval if every client gains 0, for the worst of some rounds."""
    found = Gain(np.zeros(clients)).interval(Level(seed=0, tried=tried))
    return 0.0 if found is None else found.high


def reads_one_round(name: str) -> bool:
    """Whether an attack reads the payloads of one round, and is tried on each."""
    return bool(getattr(SUITE[name], "reads_one_round", False))


def reads_payloads(found: Finding, payloads_of: int | None) -> bool:
    """Whether a finding uses all rounds with payloads, if a tried round had them."""
    return not reads_one_round(found.attack) and found.rounds == (payloads_of,)


def _behind(
    found: Finding, clients: int, federation: Federation[Task], payloads_of: int | None
) -> int:
    """Estimate the clients behind a figure from those behind it in tried rounds.

    More rounds show more clients if not all are invited to each, and the attack reads more rounds.
    """
    config, seen = federation.config, found.units.get("clients", 0)
    rounds: Sequence[int] = found.rounds
    everybody = federation.task.facts.clients
    if reads_one_round(found.attack):  # roughly the largest recorded round
        invited = [
            config.cohort.invited(each, everybody)
            for each in (*rounds, *config.recording.payload_rounds)
        ]
        named = config.recording.payload_senders is not None
        return seen if named else round(seen * max(invited[1:], default=invited[0]) / invited[0])
    if len(rounds) > 1:
        rounds = range(1, config.algorithm.rounds + 1)
    elif reads_payloads(found, payloads_of) and config.recording.payload_senders is None:
        rounds = config.recording.payload_rounds
    if all(config.cohort.invited(round_, everybody) == everybody for round_ in found.rounds):
        return seen
    # Denoisers do not send named uploads.
    pool = max(seen, clients - len(federation.denoiser_clients))
    if any(config.cohort.invited(round_, everybody) == everybody for round_ in rounds):
        return pool
    unseen: float = (1.0 - seen / max(1, pool)) ** (len(rounds) / max(1, len(found.rounds)))
    return round(pool * (1.0 - unseen))


def _surely(bound: float, end: float, low: float, deviations: float, step: float) -> float:
    """The value between a bound and an end of its range that can be distinguished from the bound.

    It is so many standard deviations, and a step, away from the bound, or the end of the range.
    The standard deviation of values between ``low`` and 1 is taken as large as possible: all values
    at the two ends.
    """
    near, far = bound, end
    for _ in range(60):
        middle = (near + far) / 2
        spread = math.sqrt(max(0.0, (middle - low) * (1.0 - middle)))
        told = abs(middle - bound) >= deviations * spread + step
        near, far = (near, middle) if told else (middle, far)
    return far
