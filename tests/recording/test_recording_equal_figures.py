"""A recorded foreign loop reaches the figures of our own run of the same algorithm and data."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from attacks import GroundTruth
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.recording import Recorder, RowTraits, Traits
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, RecordingPolicy, Step
from tests.recording.federations import (
    LEVELS,
    SERVER,
    findings_of,
    findings_of_recording,
    matrix_factorization,
    ratings_of,
)

ROUNDS, RANK = 3, 5


def our_run(stars: Any, layers: dict[str, Any] | None = None) -> tuple[RecordedRun, GroundTruth]:
    clients, items = np.nonzero(stars)
    table = RatingTable.from_columns(
        name="drawn",
        n_clients=len(stars),
        n_items=stars.shape[1],
        clients=clients,
        items=items,
        ratings=stars[clients, items].astype(float),
        scale=RatingScale.of_levels(np.array(LEVELS)),
        client_labels=np.arange(len(stars)),
        item_labels=np.arange(stars.shape[1]),
    )
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=ROUNDS))
    knowledge = {"n_items": table.n_items, "rating_levels": LEVELS}
    problem = Problem(vault=vault_of(table), n_rows=table.n_items, knowledge=knowledge)
    streams = Streams.from_seed(7)
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(
            layers or {}, sizes=sizes_of(algorithm, problem), codec=FixedPoint(), streams=streams
        ),
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=tuple(range(1, ROUNDS + 1))),
    )
    for _ in range(ROUNDS):
        run.run_round()
    denoisers = Knowledge.of(run.transcript).denoisers
    return run, GroundTruth(train=table, recorded=run.truth, denoiser_clients=denoisers)


def test_a_numpy_loop_reaches_the_figures_of_our_run() -> None:
    """The same ratings and first vectors, gradient descent written in NumPy: every figure."""
    stars = ratings_of(60, 90, seed=3)
    run, truth = our_run(stars)
    view = run.transcript.view(SERVER)
    first = run.truth.columns(1, "private-user_vectors")
    assert first is not None
    config = PMFConfig.printed()
    recording = matrix_factorization(
        stars,
        first["values"],
        view.table(1),
        rounds=ROUNDS,
        rate=config.learning_rate,
        decay=config.decay,
        pull=config.regularization,
        facts={"name": "pmf"},
    )
    ours, theirs = findings_of(run.transcript, truth), findings_of_recording(recording)
    measured = [name for name, finding in ours.items() if finding.measured]
    assert {"direct", "lattice", "intersection", "subset-regression"} <= {*measured}
    for name, finding in ours.items():
        assert theirs[name].figures == finding.figures, name
        assert theirs[name].reason == finding.reason, name
    assert theirs["lattice"].figures["reidentified_share"] == 1.0


@pytest.mark.parametrize("who", ["server", "server+denoisers", "denoiser:0", "client:3"])
def test_denoised_rounds_written_down_again_are_the_same_evidence(who: str) -> None:
    """Anonymous messages to denoisers, their sums and the server's: message by message."""
    stars = ratings_of(40, 70, seed=5)
    from secure_fedrec.protection import LAYERS

    layers = {
        "virtual-ratings": LAYERS["virtual-ratings"](rho=1.0),
        "denoisers": LAYERS["denoisers"](count=4),
    }
    run, truth = our_run(stars, layers)
    public = run.transcript.public
    recorder = Recorder(
        n_clients=40,
        arrays={"V": (70, RANK)},
        items="V",
        data={"rating_levels": LEVELS},
        algorithm={k: v for k, v in public["algorithm"].items() if k != "traits"},
        rows=RowTraits(**public["algorithm"]["traits"]),
        sums=Traits(**{**public["protection"]["traits"], "denoisers": truth.denoiser_clients}),
    )
    rewrite(run, recorder)
    clients, items = np.nonzero(stars)
    recorder.truth(ratings=(clients, items, stars[clients, items]))
    recording = recorder.close()
    adversary = Adversary(name=who, corrupt=frozenset(who.split("+")))
    ours = findings_of(run.transcript, truth, adversary)
    theirs = findings_of_recording(recording, adversary)
    for name, finding in ours.items():
        if name == "collusion-linkage":  # tags are drawn anew, and with them the order of arrival
            assert theirs[name].measured == finding.measured
            continue
        assert theirs[name].figures == pytest.approx(finding.figures, nan_ok=True), name
    if who.startswith("server"):
        assert sum(finding.measured for finding in theirs.values()) >= 5


def rewrite(run: RecordedRun, recorder: Recorder) -> None:
    """Every message of a run, once more."""
    everybody = Adversary(name="all", corrupt=frozenset({"server", "denoisers"}))
    view = run.transcript.view(everybody)
    for round_ in range(1, ROUNDS + 1):
        recorder.message(round_, "model", "server", None, {"V": view.table(round_)})
        vectors = run.truth.columns(round_, "private-user_vectors")
        assert vectors is not None
        recorder.private(round_, vectors["values"])
        for columns in run.truth.own(round_):
            note_own(recorder, round_, columns, view.codec)
        for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE, Step.AGGREGATE):
            messages = view.messages(step, round_, payload=True)
            assert isinstance(messages.payload, RowBlock)
            roles = messages.senders.role, messages.receivers.role
            for number, block in enumerate(messages.payload.split()):
                assert block.values is not None
                ends = messages.senders.ids[number], messages.receivers.ids[number]
                sender, receiver = (
                    None if each < 0 else role if role == "server" else f"{role}:{each}"
                    for role, each in zip(roles, ends, strict=True)
                )
                values = {"V": (block.rows, view.codec.decode(block.values))}
                recorder.message(
                    round_, step.name.lower(), sender, receiver, values, counts=block.counts
                )
    recorder.after(ROUNDS, {"V": view.table(ROUNDS, after=True)})


def note_own(recorder: Recorder, round_: int, columns: Any, codec: FixedPoint) -> None:
    ends = np.concatenate([[0], np.cumsum(columns["lengths"])])
    for number, client in enumerate(columns["senders"].tolist()):
        part = slice(ends[number], ends[number + 1])
        rows, words = columns["rows"][part], columns["values"][part]
        recorder.own(round_, client, {"V": (rows.astype(int), codec.decode(words))})


def test_the_traits_of_plain_uploads_are_those_that_a_run_states() -> None:
    """What a caller says by SENT_AS_THEY_ARE is what a plain stack says of itself."""
    from secure_fedrec.recording import SENT_AS_THEY_ARE

    run, _ = our_run(ratings_of(20, 30, seed=1))
    stated = run.transcript.public["protection"]["traits"]
    assert {**asdict(SENT_AS_THEY_ARE), "denoisers": []} == stated
