"""Attacks that decode one round are tried on every recorded one, and the strongest counts."""

import pytest

from attacks import GroundTruth, attack_named, evaluate
from audits.config.audit import parse_config
from audits.run.build import build_federation
from audits.system import Wanted
from audits.systems.pmf import load_ratings
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire import Adversary, Step
from tests.attacks.made import LatticeAt

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


@pytest.fixture(scope="module")
def recorded() -> tuple[RecordedRun, GroundTruth]:
    """Averages in rounds 1 to 3, predictions in round 5; payloads of 1 and 5."""
    config = parse_config(
        {
            "data": {"clients": 120, "items": 200, "mean_ratings": 20},
            "algorithm": {"rank": 6, "rounds": 5},
            "protection": [{"layer": "virtual-ratings", "rho": 1, "predict_after": 2}],
            "recording": {"payload_rounds": [1, 5]},
        }
    )
    ratings = load_ratings(Wanted(config.data, config.algorithm, config.seed, None, config.cohort))
    federation = build_federation(config, ratings.task(0))
    split = federation.task.split
    algorithm, problem, _ = federation.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=config.recording,
    )
    for _ in range(5):
        run.run_round()
    return run, GroundTruth(train=split.train, recorded=run.truth)


def test_the_strongest_round_counts(recorded: tuple[RecordedRun, GroundTruth]) -> None:
    run, truth = recorded
    finding = evaluate(attack_named("lattice"), SERVER, run.transcript, truth, seed=1)
    alone = {
        round_: evaluate(LatticeAt(round_), SERVER, run.transcript, truth, seed=1)
        for round_ in (1, 5)
    }
    inside = {round_: one.figures["support_auc"] for round_, one in alone.items()}
    assert inside[1] is not None
    assert inside[5] is not None
    assert inside[5] > inside[1]  # a mean on the rating scale hides average-filled rows
    assert finding.rounds == (5,)
    ends = ("_low", "_high", "_certain")
    gains = {name.removesuffix("_certain") for name in finding.figures if name.endswith(ends[2])}
    limits = {f"{name}{end}" for name in gains for end in ends}
    assert {"precision_gain_low", "rating_lift_certain"} <= limits
    for name in finding.figures.keys() - limits:
        assert finding.figures[name] == alone[5].figures[name]
    # The best of two rounds is less sure than a round that was asked for: its limits are wider.
    for end, sign in (("_low", -1), ("_high", 1), ("_certain", -1)):
        two, one = (each.figures[f"support_lift_over_prior{end}"] for each in (finding, alone[5]))
        assert two is not None
        assert one is not None
        assert sign * (two - one) > 0
    by_round = finding.details["by_round"]
    assert {name: one["support_auc"] for name, one in by_round.items()} == {
        "1": inside[1],
        "5": inside[5],
    }


def test_a_view_of_one_round_holds_no_other(recorded: tuple[RecordedRun, GroundTruth]) -> None:
    view = recorded[0].transcript.view(SERVER).at(5)
    assert view.rounds(Step.UPLOAD) == view.payload_rounds(Step.UPLOAD) == (5,)
    assert len(view.messages(Step.UPLOAD, 5)) == 120
    for ask in (lambda: view.messages(Step.UPLOAD, 1), lambda: view.table(1)):
        with pytest.raises(TranscriptError, match="holds round 5 only"):
            ask()


def test_a_view_cannot_be_written_through(recorded: tuple[RecordedRun, GroundTruth]) -> None:
    view = recorded[0].transcript.view(SERVER)
    with pytest.raises(ValueError, match="read-only"):
        view.table(1)[:] = 7
    view.public["protection"]["layers"].append("masking")
    assert recorded[0].transcript.view(SERVER).public["protection"]["layers"] == ["virtual-ratings"]
