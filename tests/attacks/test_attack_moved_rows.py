"""Rows of hidden sums that moved: who rated what, from who took part when."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from attacks import Finding, evaluate
from attacks.families.moved_rows import MovedRows, _Tests
from attacks.planted.controls import WHO, planted
from attacks.scoring.measures import severity_of
from secure_fedrec.wire import Adversary
from tests.attacks.configured import SERVER, TAPPING, Recorded, found, recorded_as

MASKS = {"layer": "masking"}
FURL = {"name": "furl", "rounds": 20, "dim": 4, "hidden": [8]}


@cache
def furl(cohort: int) -> Recorded:
    return recorded_as(FURL, MASKS, cohort=cohort, negatives=1)


@cache
def fedncf() -> Recorded:
    return recorded_as({"name": "fedncf", "rank": 4, "rounds": 30}, MASKS, cohort=12)


@cache
def pmf(floor: int = 0) -> Recorded:
    masks = MASKS | {"tail_floor": floor}
    return recorded_as({"name": "pmf", "rank": 4, "rounds": 15}, masks, cohort=10)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize(
    ("recorded", "who", "interactions"),
    [
        (lambda: furl(12), SERVER, 100),
        (lambda: furl(12), TAPPING, 90),
        (lambda: furl(39), SERVER, 8),
        (pmf, SERVER, 100),
        (lambda: pmf(2), SERVER, 100),
    ],
    ids=["furl", "furl as a client", "all but one", "pmf", "floor"],
)
def test_names_what_one_client_alone_can_have_moved(
    recorded: Callable[[], Recorded], who: Adversary, interactions: int
) -> None:
    finding = found("moved-rows", recorded(), who)
    assert figure(finding, "interactions_exposed") >= interactions
    assert figure(finding, "disclosures_wrong") == 0
    assert severity_of(finding.figures) == "critical"


@pytest.mark.parametrize("who", [SERVER, TAPPING], ids=lambda who: who.name)
def test_what_sampled_negatives_move_is_ranked_and_not_certain(who: Adversary) -> None:
    finding = found("moved-rows", fedncf(), who)
    assert figure(finding, "lift_over_prior_certain") > 0
    assert figure(finding, "auc") > 0.9
    assert figure(finding, "interactions_exposed") == figure(finding, "disclosures_wrong") == 0
    assert severity_of(finding.figures) != "info"


def test_a_table_beside_a_floor_proves_nothing() -> None:
    finding = found("moved-rows", pmf(2), TAPPING)
    assert figure(finding, "interactions_exposed") == figure(finding, "disclosures_wrong") == 0


def test_denoisers_move_rows_beside_everybody_else() -> None:
    layers = ({"layer": "virtual-ratings"}, {"layer": "denoisers", "count": 4})
    algorithm = {"name": "pmf", "rank": 4, "rounds": 15}
    finding = found("moved-rows", recorded_as(algorithm, *layers, cohort=10))
    assert finding.details["pairs_alone"] == 0
    assert figure(finding, "disclosures_wrong") == 0


@pytest.mark.parametrize(
    ("layers", "cohort", "reason"),
    [
        ([MASKS], None, "all clients take part in every round"),
        (
            [{"layer": "randomized-response"}, {"layer": "denoisers", "count": 4}],
            10,
            "drawn afresh every round",
        ),
        ([{"layer": "virtual-ratings"}], 10, "virtual rows or noise are in the sums"),
    ],
    ids=["everybody", "drawn", "virtual"],
)
def test_says_why_there_is_nothing_to_test(
    layers: list[dict[str, Any]], cohort: int | None, reason: str
) -> None:
    recorded = recorded_as({"name": "pmf", "rank": 2, "rounds": 3}, *layers, cohort=cohort)
    assert reason in (found("moved-rows", recorded).reason or "")


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize("seed", range(20))
def test_federations_of_odd_shapes_without_a_leak(seed: int) -> None:
    """Everybody takes part, or all rows move, or virtual ones do: nothing above info."""
    rng = np.random.default_rng(seed)
    clients, kind = int(rng.integers(20, 60)), seed % 3
    shape: dict[str, Any] = {"clients": clients, "items": int(rng.integers(12, 90))}
    algorithm: dict[str, Any] = {"name": "pmf", "rank": int(rng.integers(1, 6)), "rounds": 4}
    cohort = None if kind == 0 else int(rng.integers(12, clients - 2))
    layers: list[dict[str, Any]] = [MASKS | {"corrupt": 0.1}]
    if kind == 1:  # negatives reach every row
        algorithm = {"name": "pfedrec", "rank": int(rng.integers(1, 6)), "rounds": 4}
        shape |= {"items": 20, "mean_ratings": 6.0}
    elif kind == 2:
        layers = [{"layer": "virtual-ratings"}]
    recorded = recorded_as(algorithm, *layers, cohort=cohort, seed=seed, **shape)
    for who in (SERVER, TAPPING):
        finding = found("moved-rows", recorded, who)
        assert severity_of(finding.figures) == "info"
        assert not finding.figures.get("disclosures_wrong")
        assert not finding.figures.get("interactions_exposed")


@pytest.mark.claim("moved-rows")
@pytest.mark.parametrize("seed", range(20))
def test_nothing_certain_is_false(seed: int) -> None:
    """Networks of few units with steps of any length: units that are all off, several epochs."""
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(14, 40))
    local = {
        "learning_rate": float(rng.choice([0.1, 1.0, 8.0])),
        "epochs": int(rng.choice([1, 1, 2])),
    }
    algorithm: dict[str, Any] = {
        "name": "furl",
        "rounds": 12,
        "dim": int(rng.integers(1, 7)),
        "local": local,
    }
    algorithm["hidden"] = [int(rng.choice([1, 2, 3, 8]))]
    masks = MASKS | {"corrupt": 0.1}
    shape: dict[str, Any] = {"clients": clients, "items": int(rng.integers(60, 300))}
    cohort = int(rng.integers(10, clients - 2))
    recorded = recorded_as(algorithm, masks, cohort=cohort, seed=seed, negatives=1, **shape)
    finding = found("moved-rows", recorded)
    assert not finding.figures.get("disclosures_wrong")


@pytest.mark.claim("moved-rows")
def test_a_row_that_moves_by_chance_convicts_after_many_rounds_alone() -> None:
    """With sampled negatives the bits of the rounds in which nobody else is left add up."""
    present = np.array([[True, True], *[[True, False]] * 9, [False, True]])
    moved = np.array([[True, False]] * 10 + [[False, False]])
    tests = _Tests(present, moved, hidden=0)
    assert tests.left.tolist() == [[True, False], [False, False]]
    assert tests.bits(np.full(11, -2.0)).tolist() == [[20.0, 0.0], [0.0, 0.0]]
    assert not _Tests(present, moved, hidden=1).alone.any()
    assert tests.consistent
    assert not _Tests(present[:, 1:], moved, hidden=0).consistent


def test_the_planted_cohorts_are_told() -> None:
    run, truth = planted("cohorts")
    finding = evaluate(MovedRows(), WHO["server"], run.transcript, truth, seed=0)
    assert figure(finding, "clients_exposed") >= 30
    assert figure(finding, "disclosures_wrong") == 0
