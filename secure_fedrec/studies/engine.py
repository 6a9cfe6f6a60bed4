"""The engine of a study: one process, mostly without protection of uploads."""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.engines.federated_problem import Problem, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig, LocalEngine
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire


def unprotected(
    algorithm: Algorithm,
    problem: Problem,
    streams: Streams,
    *,
    codec: FixedPoint | None = None,
    bags: Mapping[str, BagShape] | None = None,
    cohort: CohortConfig | None = None,
) -> LocalEngine:
    """A federation without layers, ready for its first round.

    Args:
        algorithm: what is trained.
        problem: what it learns from.
        streams: of all draws.
        codec: of the sums; None for the usual ring.
        bags: shapes of the vectors that clients give to bags, by bag.
        cohort: of a round; None for everybody.
    """
    sizes = sizes_of(algorithm, problem, bags=bags)
    stack = build_stack({}, sizes=sizes, codec=codec or FixedPoint(), streams=streams)
    return engine_of(algorithm, problem, stack, streams, evaluate=None, cohort=cohort)


def bag_shapes(sizes: Mapping[str, tuple[int, int]]) -> dict[str, BagShape]:
    """Shapes of bags, of the width of a vector and the most vectors of a client, by bag."""
    return {name: BagShape(width=width, most=most) for name, (width, most) in sizes.items()}


def engine_of(
    algorithm: Algorithm, problem: Problem, stack: Stack, streams: Streams, **more: Any
) -> LocalEngine:
    """The engine of a federation in one process, whose messages are metered.

    Args:
        algorithm: what is trained.
        problem: what it learns from, and how it is measured.
        stack: of layers.
        streams: of all draws.
        more: further arguments of ``LocalEngine``, which may replace these.
    """
    vault = problem.vault
    given = {
        "vault": vault,
        "n_rows": problem.n_rows,
        "evaluate": problem.evaluate,
        "wire": Wire(meter=Meter(vault.n_clients)),
    }
    return LocalEngine(algorithm=algorithm, stack=stack, streams=streams, **{**given, **more})
