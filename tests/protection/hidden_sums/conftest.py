"""Small federations under layers that hide uploads."""

from collections.abc import Callable
from typing import Any

import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig, RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, Stack, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Fault, RecordingPolicy, Step, View

N_CLIENTS, N_ITEMS, RANK = 10, 24, 3


def _table_of(seed: int = 1) -> RatingTable:
    return generate(SyntheticConfig(clients=N_CLIENTS, items=N_ITEMS, mean_ratings=6.0, seed=seed))


def _run_of(
    layers: dict[str, Any],
    *,
    done: int = 0,
    codec: FixedPoint | None = None,
    faults: tuple[Fault, ...] = (),
    rounds: int = 3,
    cohort: int | None = None,
    table: RatingTable | None = None,
    stack: Stack | None = None,
) -> RecordedRun:
    streams = Streams.from_seed(5)
    if stack is None:
        stack = build_stack(
            layers,
            sizes=Sizes(
                n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=cohort or N_CLIENTS
            ),
            codec=FixedPoint() if codec is None else codec,
            streams=streams,
        )
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=rounds, init_scale=0.3))
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=rating_problem(algorithm, _table_of() if table is None else table),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2, 3)),
        cohort=CohortConfig(clients_per_round=cohort),
        faults=faults,
    )
    for _ in range(done):
        run.run_round()
    return run


def _uploads(view: View, round_: int, step: Step = Step.UPLOAD) -> RowBlock:
    block = view.messages(step, round_, payload=True).payload
    assert isinstance(block, RowBlock)
    return block


@pytest.fixture(scope="session")
def table_of() -> Callable[..., RatingTable]:
    """Ratings of ten clients on 24 items, by seed."""
    return _table_of


@pytest.fixture(scope="session")
def run_of() -> Callable[..., RecordedRun]:
    """A recorded run over layers, of which some rounds are done."""
    return _run_of


@pytest.fixture(scope="session")
def uploads() -> Callable[..., RowBlock]:
    """What a view shows of a round's messages."""
    return _uploads
