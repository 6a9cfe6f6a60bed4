"""What a client never touches: named under one protocol, chance under the other."""

import os
from pathlib import Path

import numpy as np
import pytest

from attacks import SUITE
from attacks.base import InapplicableError
from attacks.planted.controls import WHO, planted
from attacks.planted.untouched import plant_untouched
from attacks.scoring import held_out
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.held_out import HeldOutClaim, held_out_grid
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.rows import Rows
from attacks.scoring.truth import Scored
from secure_fedrec.data import load
from secure_fedrec.evaluation.oracles import drawn_items
from secure_fedrec.evaluation.protocols import ranking_case
from secure_fedrec.streams import Streams

FOLDER = os.environ.get("SECURE_FEDREC_DATA")
ATTACK = SUITE["never-touched"]


def found(protocol: str, *, rounds: int = 10, seed: int = 1) -> Finding:
    run, truth = plant_untouched(protocol=protocol, rounds=rounds, seed=seed)
    return evaluate(ATTACK, WHO["server"], run.transcript, truth, seed=0)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


@pytest.mark.claim("never-touched")
def test_the_published_sampler_names_held_out_interests() -> None:
    finding = found("published")
    assert figure(finding, "held_out_auc_low") > 0.9
    assert figure(finding, "held_out_gain_certain") > 0.05
    curve = finding.details["held_out_auc_by_rounds"]
    assert list(curve) == ["1", "5", "10"]
    assert 0.5 < curve["1"] < curve["5"] < curve["10"]
    assert finding.null_control is not None
    assert finding.null_control["passed"]
    assert finding.units["positives"] == 2 * finding.units["clients"]


@pytest.mark.claim("never-touched")
def test_the_clean_sampler_leaves_it_at_chance() -> None:
    """Forty federations: the mean lies within four of its own standard errors of one half."""
    findings = [found("clean", rounds=3, seed=seed) for seed in range(40)]
    aucs = np.array([figure(each, "held_out_auc") for each in findings])
    error = aucs.std(ddof=1) / np.sqrt(len(aucs))
    assert abs(aucs.mean() - 0.5) < 4 * error
    assert error < 0.005  # or chance would be a wide word
    assert all(figure(each, "held_out_gain_certain") <= 0 for each in findings)


def test_items_a_client_trains_on_are_no_part_of_the_game() -> None:
    """Whatever is said of them, by the largest score or the smallest, the figures are the same."""
    truth = np.array([[1, 0, 0, -1, -1], [0, 1, 0, 0, -1], [-1, 0, 0, 0, 1]], dtype=np.int8)
    rng = np.random.default_rng(0)
    scores = rng.random(truth.shape)
    figures = []
    for said in (-9.0, 9.0):
        claim = HeldOutClaim(
            name="items", clients=np.arange(3), scores=np.where(truth < 0, said, scores)
        )
        judged = HeldOutClaim.judged(claim, truth, frozenset(), 0)
        assert isinstance(judged, Scored)
        figures.append(judged.figures)
    assert figures[0] == figures[1]


def test_clients_are_judged_alike_in_blocks_of_any_size_and_as_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    truth = rng.choice(np.array([-1, 0, 1], dtype=np.int8), size=(30, 12), p=[0.4, 0.4, 0.2])
    clients, touched = np.arange(3, 30), rng.random((27, 12)) < 0.5
    rows = Rows(
        listed=ItemSets.of_grid(touched), values=np.zeros(int(touched.sum()), dtype=bool), rest=True
    )
    grid = (~touched).astype(np.float64)
    found = []
    for at_once, scores in ((1000, grid), (40, grid), (12, rows), (1, rows)):
        monkeypatch.setattr(held_out, "_PAIRS_AT_ONCE", at_once)
        claim = HeldOutClaim(name="items", clients=clients, scores=scores, history={1: scores})
        found.append(HeldOutClaim.judged(claim, truth, frozenset({5}), 7))
    assert isinstance(found[0], Scored)
    assert found[0].units["clients"] == 26
    assert {repr(each) for each in found} == {repr(found[0])}


def test_corrupted_clients_and_empty_truths_are_not_judged() -> None:
    truth = np.array([[1, 0, -1], [0, 1, 0]], dtype=np.int8)
    claim = HeldOutClaim(name="items", clients=np.arange(2), scores=np.eye(2, 3))
    for corrupted, grid in ((frozenset({0, 1}), truth), (frozenset[int](), np.zeros_like(truth))):
        with pytest.raises(InapplicableError):
            HeldOutClaim.judged(claim, grid, corrupted, 0)
    with pytest.raises(ValueError, match="finite"):
        HeldOutClaim.judged(
            HeldOutClaim(name="items", clients=np.arange(2), scores=np.full((2, 3), np.nan)),
            truth,
            frozenset(),
            0,
        )


def test_clients_that_send_rated_items_alone_are_told_apart_by_nothing() -> None:
    run, truth = planted("ratings")
    finding = evaluate(ATTACK, WHO["server"], run.transcript, truth, seed=0)
    assert finding.reason == "clients send rows of their rated items only"


@pytest.mark.data
@pytest.mark.skipif(not FOLDER, reason="no data folder")
def test_the_curve_on_real_data() -> None:
    """ML-100K, four negatives per positive: AUC after 1, 5, 10 and 30 rounds."""
    case = ranking_case(load("ml-100k", Path(str(FOLDER))), protocol="published", seed=0)
    truth, stream = held_out_grid(case), Streams.from_seed(0).stream("negatives")
    for rounds, wanted in ((1, 0.61), (5, 0.79), (10, 0.87), (30, 0.97)):
        touched = drawn_items(case, rounds=rounds, stream=stream, per_positive=4)
        claim = HeldOutClaim(
            name="items", clients=np.arange(case.n_clients), scores=(~touched).astype(np.float64)
        )
        judged = HeldOutClaim.judged(claim, truth, frozenset(), 0)
        assert isinstance(judged, Scored)
        assert judged.figures["held_out_auc"] == pytest.approx(wanted, abs=0.02)
