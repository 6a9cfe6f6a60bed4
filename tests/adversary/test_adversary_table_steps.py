"""What clients read off two public tables is exact: nothing named that nobody else rated.

Found by attacking the attack: recordings that leave own uploads out, biases that move without a
rating, coarse rings, clients who rate alike, denoisers, who upload nothing and are in the sum.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks import Finding, GroundTruth, evaluate
from attacks.base import Claims
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.truth import NotApplicable
from attacks.suite import SUITE
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, Sizes, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, OwnUploads, RecordingPolicy, Step, View
from tests.adversary.test_adversary_coalitions import (
    CLIENTS,
    ITEMS,
    Run,
    recorded,
    settings_of,
)
from tests.attacks.made import rated_of

pytestmark = pytest.mark.claim("public-tables")


def them(*corrupt: str) -> Adversary:
    return Adversary(name="them", corrupt=frozenset(corrupt))


def clients(number: int) -> Adversary:
    return them(*(f"client:{each}" for each in range(number)))


def found_by(run: Run, adversary: Adversary) -> Finding:
    return evaluate(SUITE["sum-decoding"], adversary, run.transcript, run.truth, seed=1)


def view_of(run: Run, adversary: Adversary) -> View:
    known = run.truth.corrupted_clients(adversary)
    return run.transcript.view(adversary, own=OwnUploads(run.truth.recorded, known))


def claims_of(view: View) -> Claims:
    claims = SumDecoding().run(view)
    assert not isinstance(claims, NotApplicable)
    return claims


def test_own_uploads_that_were_not_kept_are_not_taken_for_those_of_others(tmp_path: Path) -> None:
    settings = settings_of((), ["client:0"])
    settings["recording"]["payload_senders"] = [0, CLIENTS - 1]
    run = recorded(settings, tmp_path)
    missing = found_by(run, clients(CLIENTS - 1))
    assert not missing.measured
    assert "recording.payload_senders" in (missing.reason or "")
    assert found_by(run, clients(1)).measured


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    ("floor", "shrinkage", "fraction_bits"), [(3, 4.0, 32), (0, 0.0, 0), (0, 4.0, 2)]
)
def test_with_biases_the_items_of_the_others_are_named_and_no_others(
    rank: int, floor: int, shrinkage: float, fraction_bits: int, tmp_path: Path
) -> None:
    """Biases move without a rating, and in a coarse ring another rating may not move them."""
    settings = settings_of(("masking",), ["client:0"])
    settings["algorithm"] |= {
        "biases": True,
        "rank": rank,
        "rounds": 4,
        "bias_shrinkage": shrinkage,
    }
    settings["protection"][0]["tail_floor"] = floor
    settings["cohort"] = {"clients_per_round": 6}
    settings["recording"]["payload_rounds"] = [1, 2, 3, 4]
    settings["ring"] = {"bits": 48, "fraction_bits": fraction_bits, "clip": 64.0}
    run = recorded(settings, tmp_path)
    rated = np.zeros((4, CLIENTS, ITEMS), dtype=bool)
    for round_ in (1, 2, 3, 4):
        columns = run.truth.recorded.columns(round_, "own")
        assert columns is not None
        senders = np.repeat(columns["senders"], columns["lengths"])
        rated[round_ - 1, senders, columns["rows"]] = True
    summed = rated.sum(axis=1) >= floor
    named = 0
    for known in (1, 5, CLIENTS - 1):
        claims = claims_of(view_of(run, clients(known)))
        assert claims.rounds == (1, 2, 3, 4)
        moved = (rated[:, known:].any(axis=1) & summed).sum(axis=0)
        assert np.array_equal(4 * rated_of(claims).scores[0], moved)
        named += int(moved.sum())
    kept_back = np.count_nonzero(rated.any(axis=1) & ~summed)
    assert named > 40
    assert (kept_back > 10) == (floor > 0)


def alike(codec: FixedPoint, rank: int, init_scale: float) -> tuple[RecordedRun, GroundTruth]:
    """Clients 1 and 2 rate six items alike, client 3 alone rates six others."""
    ratings = [5, 4, 3, 2, 1, 5]
    rows = [(0, 0, 3), (0, 12, 4), (1, 13, 4), (2, 14, 3)]
    rows += [(who, item, rating) for who in (1, 2) for item, rating in enumerate(ratings)]
    rows += [(3, item + 6, rating) for item, rating in enumerate(ratings)]
    owners, items, values = map(np.asarray, zip(*sorted(rows), strict=True))
    train = RatingTable.from_columns(
        name="alike",
        n_clients=4,
        n_items=15,
        clients=owners,
        items=items,
        ratings=values.astype(np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(4),
        item_labels=np.arange(15),
    )
    streams = Streams.from_seed(1)
    algorithm = PMF(PMFConfig.printed(rank=rank, rounds=2, init_scale=init_scale))
    sizes = Sizes(n_clients=4, n_items=15, width=rank, cohort=4, bags={})
    layers: dict[str, Any] = {"masking": LAYERS["masking"]()}
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=codec, streams=streams, bag_layers={}),
        problem=rating_problem(algorithm, train, train),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1,)),
    )
    for _ in range(2):
        run.run_round()
    return run, GroundTruth(train=train, recorded=run.truth)


@pytest.mark.parametrize(
    ("rank", "init_scale", "fraction_bits"),
    [(20, 0.005, 20), (20, 0.001, 32), (20, 0.0001, 32), (4, 0.005, 20), (4, 0.001, 32)],
)
def test_means_of_clients_who_rate_alike_are_not_taken_for_one(
    rank: int, init_scale: float, fraction_bits: int
) -> None:
    """Their means are collinear and fit the rating scale; their values are no ring words."""
    codec = FixedPoint(fraction_bits=fraction_bits, clip=64.0)
    run, truth = alike(codec, rank, init_scale)
    finding = evaluate(SUITE["sum-decoding"], clients(1), run.transcript, truth, seed=1)
    told = finding.figures
    assert told["disclosures_wrong"] == 0
    # Of client 3 alone; 24 values that could be ring words by chance are too few to be certain.
    assert (told["interactions_exposed"] or 0) >= (6 if rank == 20 else 0)
    assert (told["vectors_exposed"] or 0) >= (1 if rank == 20 else 0)
    assert told["clients_exposed"] or told["likely_exposed"]


def test_denoisers_are_in_the_sum_that_rows_are_judged_by(tmp_path: Path) -> None:
    found = []
    for layer in ("masking", "denoisers"):
        folder = tmp_path / layer
        folder.mkdir()
        run = recorded(settings_of((layer,), ["client:0"]), folder)
        found.append(found_by(run, clients(1)).figures)
    alone, beside = found
    names = ("clients_exposed", "interactions_exposed", "vectors_exposed", "disclosures_wrong")
    assert {name: beside[name] for name in names} == {name: alone[name] for name in names}
    assert alone["disclosures_wrong"] == 0
    assert alone["clients_exposed"]


def test_a_rating_that_was_not_reported_hides_no_other(tmp_path: Path) -> None:
    settings = settings_of(("randomized-response", "denoisers"), ["client:0"])
    settings["algorithm"]["rank"], settings["seed"] = 20, 5
    run = recorded(settings, tmp_path)
    figures = found_by(run, them("denoisers")).figures
    assert figures["disclosures_wrong"] == 0
    assert figures["interactions_exposed"]


def test_rounds_that_nobody_came_to_are_no_rounds_for_denoisers(tmp_path: Path) -> None:
    settings = settings_of(("denoisers",), ["client:0"])
    settings["cohort"] = {"clients_per_round": 1}
    run = recorded(settings, tmp_path)
    assert run.transcript.view(them("server")).rounds(Step.UPLOAD) == ()
    assert not found_by(run, them("denoisers")).measured
