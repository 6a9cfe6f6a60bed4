"""FedRec++'s published tables on the real ml-100k: rating error and communication cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.run.build import Federation
from audits.run.training import check_lossless
from audits.systems.pmf import RatingTask
from secure_fedrec.engines import RecordedRun
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, RecordingPolicy, Step

pytestmark = [pytest.mark.data, pytest.mark.xdist_group("ml-100k")]

Recorded = Callable[[int, int, int], Any]
Build = Callable[..., Federation[RatingTask]]
N_CLIENTS = 943
EVERYBODY = Adversary(name="all", corrupt=frozenset({"server", "denoisers"}))


@pytest.fixture(scope="module")
def build(recorded: Recorded, request: pytest.FixtureRequest) -> Build:
    """The federation builder of this folder's conftest."""
    del recorded
    conftest = Path(__file__).with_name("conftest.py")
    plugin = request.config.pluginmanager.getplugin(str(conftest))
    builder: Build = plugin.federation
    return builder


def one_round(federation: Federation[RatingTask]) -> RecordedRun:
    algorithm, problem, _ = federation.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=RecordingPolicy(payload_rounds=()),
    )
    run.run_round()
    return run


def test_rating_error_within_one_deviation(build: Build) -> None:
    """Five-fold means stay below the paper's mean plus one deviation (table 2).

    Trained as the plain twin: that FedRec++ ends in the same bits is shown below and, for any
    input, by the properties.
    """
    errors = []
    for fold in range(5):
        federation = build(rho=0, denoisers=0, fold=fold)
        run = one_round(federation)
        for _ in range(federation.config.algorithm.rounds - 1):
            run.run_round()
        metrics = run.history[-1].metrics
        assert metrics is not None
        errors.append((metrics["mae"], metrics["rmse"]))
    mae, rmse = np.mean(errors, axis=0)
    assert mae <= 0.7466
    assert rmse <= 0.9493


@pytest.mark.parametrize("rho", [1, 2, 3])
def test_lossless_on_real_ratings(recorded: Recorded, rho: int) -> None:
    """FedRec++ equals the plain twin bit for bit, under averages and under predictions."""
    rounds = {1: 20, 2: 8, 3: 20}[rho]
    result = recorded(rho, 1, rounds)
    outcome = check_lossless(result.federation, result.run, progress=False)
    assert outcome is not None
    assert outcome.rounds == rounds
    assert outcome.holds


def test_ordinary_clients_send_what_the_paper_counts(build: Build) -> None:
    """Every ordinary client sends (1 + rho) |I_u| + rho |I_u| vectors, capped by its complement."""
    for rho in (1, 3):
        federation = build(rho=rho, denoisers=N_CLIENTS // 4)
        run = one_round(federation)
        view = run.transcript.view(EVERYBODY)
        uploads, noise = view.messages(Step.UPLOAD, 1), view.messages(Step.NOISE, 1)
        origins = run.truth.columns(1, "noise-origins")
        assert isinstance(uploads.payload, RowBlock)
        assert isinstance(noise.payload, RowBlock)
        assert origins is not None
        assert noise.tags is not None
        sender = dict(zip(origins["tags"].tolist(), origins["clients"].tolist(), strict=True))
        sent = np.zeros(N_CLIENTS, dtype=np.int64)
        sent[uploads.senders.ids] += uploads.payload.lengths
        sent[[sender[tag] for tag in noise.tags.tolist()]] += noise.payload.lengths
        train = federation.task.split.train
        rated = train.counts()
        virtual = np.minimum(rho * rated, train.n_items - rated)
        ordinary = np.setdiff1d(np.arange(N_CLIENTS), federation.denoiser_clients)
        assert np.array_equal(sent[ordinary], (rated + 2 * virtual)[ordinary])


@pytest.mark.parametrize(
    ("denoisers", "ordinary", "denoiser"),
    [(0, 170, None), (1, 254, 81_550), (N_CLIENTS // 4, 256, 571), (N_CLIENTS // 2, 256, 251)],
)
def test_communication_cost(
    build: Build, denoisers: int, ordinary: int, denoiser: int | None
) -> None:
    """Mean vectors per client and round over 20 draws of denoisers (table 3, rho = 1)."""
    draws = 20 if denoisers else 1
    costs = []
    for seed in range(draws):
        federation = build(rho=1, denoisers=denoisers, seed=seed)
        run = one_round(federation)
        is_denoiser = np.zeros(N_CLIENTS, dtype=bool)
        is_denoiser[list(federation.denoiser_clients)] = True
        meter = run.engine.wire.meter
        vectors = meter.clients("vectors_sent") + meter.clients("vectors_received")
        at_denoisers = vectors[is_denoiser].mean() if denoisers else 0.0
        costs.append((vectors[~is_denoiser].mean(), at_denoisers))
    mean_ordinary, mean_denoiser = np.mean(costs, axis=0)
    assert mean_ordinary == pytest.approx(ordinary, rel=0.02)
    if denoiser is not None:
        assert mean_denoiser == pytest.approx(denoiser, rel=0.05)
