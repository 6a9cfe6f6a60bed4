"""Federations as a configuration names them, run and recorded in memory."""

from collections.abc import Mapping
from typing import Any

from attacks import Finding, GroundTruth, attack_named, evaluate
from audits.config.audit import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.training import open_run
from audits.run.truth import ground_truth
from secure_fedrec.wire import Adversary, Transcript

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
TAPPING = Adversary(name="tapping", corrupt=frozenset({"client:3"}), taps=frozenset({"network"}))

Recorded = tuple[Transcript, GroundTruth]


def recorded_as(
    algorithm: Mapping[str, Any],
    *layers: Mapping[str, Any],
    cohort: int | None = None,
    seed: int = 1,
    ring: Mapping[str, Any] | None = None,
    **data: Any,
) -> Recorded:
    """All rounds of a synthetic federation, with the payloads of each."""
    rounds = algorithm["rounds"]
    raw: dict[str, Any] = {
        "seed": seed,
        "data": {"name": "synthetic", "clients": 40, "items": 300, "mean_ratings": 8.0, **data},
        "algorithm": dict(algorithm),
        "run": {"evaluate_every": rounds},
        "recording": {"payload_rounds": list(range(1, rounds + 1))},
        "adversaries": [{"name": "server", "corrupt": ["server"]}],
        "protection": [dict(layer) for layer in layers],
    }
    if ring is not None:
        raw["ring"] = dict(ring)
    if cohort is not None:
        raw["cohort"] = {"clients_per_round": cohort}
    config = parse_config(raw)
    task = load_dataset(config, None).task(0)
    run = open_run(build_federation(config, task, priced=False), None, resume=False)
    for _ in range(rounds):
        run.run_round()
    return run.transcript, ground_truth(task.secrets(), run.truth, name="synthetic")


def found(name: str, recorded: Recorded, who: Adversary = SERVER) -> Finding:
    """What an attack finds there."""
    return evaluate(attack_named(name), who, *recorded, seed=0)
