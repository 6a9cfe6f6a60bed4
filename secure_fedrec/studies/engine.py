"""The engine of a study: one process, and nothing that protects what clients upload."""

from collections.abc import Mapping

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.engines.federated_problem import Problem, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig, LocalEngine
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.bags import BagShape
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
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes, codec=codec or FixedPoint(), streams=streams),
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=streams,
        wire=Wire(meter=Meter(problem.vault.n_clients)),
        cohort=cohort,
    )
