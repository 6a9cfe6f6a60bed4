"""Shares of uploads: noise to some of their holders, the upload itself to all of them."""

import numpy as np
import pytest

from attacks import SUITE, Finding, GroundTruth, evaluate
from attacks.view.named import named_payload_rounds, named_rounds, named_rows, sees_named_rows
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, VirtualRatingsConfig, build_stack
from secure_fedrec.protection.shared_upload import SharedUploadConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, RecordingPolicy, View

CLIENTS, ITEMS, RANK = 40, 60, 5
TABLE = generate(SyntheticConfig(clients=CLIENTS, items=ITEMS, mean_ratings=12.0, seed=4))
SOME = [["server"], ["denoisers"], ["denoiser:0"], ["server", "denoiser:1"]]
ALL = ["server", "denoisers"]


@pytest.fixture(scope="module")
def run() -> RecordedRun:
    streams, codec = Streams.from_seed(6), FixedPoint()
    layers = {
        "virtual-ratings": VirtualRatingsConfig(sticky=True),
        "shared-upload": SharedUploadConfig(count=2, floor=16),
    }
    sizes = Sizes(n_clients=CLIENTS, n_items=ITEMS, width=RANK, cohort=CLIENTS)
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=3))
    made = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=codec, streams=streams),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 3)),
    )
    for _ in range(3):
        made.run_round()
    return made


def view_of(run: RecordedRun, corrupt: list[str]) -> View:
    return run.transcript.view(Adversary(name="them", corrupt=frozenset(corrupt)))


def finding(run: RecordedRun, corrupt: list[str], attack: str) -> Finding:
    truth = GroundTruth(train=TABLE, recorded=run.truth)
    them = Adversary(name="them", corrupt=frozenset(corrupt))
    return evaluate(SUITE[attack], them, run.transcript, truth, seed=1)


@pytest.mark.parametrize("corrupt", [*SOME, ALL], ids=" + ".join)
def test_every_holder_sees_the_same_named_rows(run: RecordedRun, corrupt: list[str]) -> None:
    view = view_of(run, corrupt)
    assert sees_named_rows(view)
    assert named_rounds(view) == (1, 2, 3)
    assert named_payload_rounds(view) == (1, 3)
    messages = named_rows(view, 2)
    assert messages.senders.ids.tolist() == list(range(CLIENTS))
    mine = named_rows(view_of(run, ["server"]), 2).payload
    assert isinstance(messages.payload, RowBlock)
    assert isinstance(mine, RowBlock)
    assert np.array_equal(messages.payload.rows, mine.rows)


@pytest.mark.parametrize("corrupt", SOME, ids=" + ".join)
def test_some_holders_decode_nothing(run: RecordedRun, corrupt: list[str]) -> None:
    found = finding(run, corrupt, "lattice")
    assert found.measured
    inside = found.figures["support_auc"]
    assert inside is not None
    assert abs(inside - 0.5) < 0.1
    assert found.figures["user_vector_share"] == 0


def test_all_holders_together_read_everything(run: RecordedRun) -> None:
    found = finding(run, ALL, "lattice")
    accuracy, vectors = found.figures["rating_accuracy"], found.figures["user_vector_share"]
    assert accuracy is not None
    assert vectors is not None
    assert accuracy > 0.95
    assert vectors > 0.9
    inside = found.figures["support_auc"]
    assert inside is not None
    assert inside > 0.95


def test_a_client_holds_no_shares(run: RecordedRun) -> None:
    assert not sees_named_rows(view_of(run, ["client:3"])) or named_rows(
        view_of(run, ["client:3"]), 1
    ).senders.ids.tolist() == [3]
