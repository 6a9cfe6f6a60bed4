"""A planted federation's run: built, trained and recorded to its last round."""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.local import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Stack, build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.wire import RecordingPolicy


def protected(
    algorithm: Algorithm,
    problem: Problem,
    streams: Streams,
    layers: Mapping[str, Any],
    *,
    bag_layers: Mapping[str, Any] | None = None,
    bags: Mapping[str, BagShape] | None = None,
) -> Stack:
    """The stack of some layers for a federation; settings by layer name."""
    sizes, codec = sizes_of(algorithm, problem, bags=bags), FixedPoint()
    return build_stack(layers, sizes=sizes, codec=codec, streams=streams, bag_layers=bag_layers)


def recorded(
    algorithm: Algorithm,
    problem: Problem,
    stack: Stack,
    streams: Streams,
    payload_rounds: tuple[int, ...],
    *,
    cohort: CohortConfig | None = None,
) -> RecordedRun:
    """All rounds of a federation, payloads of some of them kept."""
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
        cohort=cohort,
    )
    for _ in range(algorithm.rounds):
        run.run_round()
    return run
