"""Changes of item tables: what moved, to which side, along what; what a generator read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from attacks import SUITE
from attacks.base import Claims
from attacks.families.item_changes import ItemChanges, along_main, without_decay
from attacks.families.split.flat_uploads import Architecture
from attacks.planted.controls import WHO, planted
from attacks.scoring.attributes import FeatureClaim
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.vectors import VectorClaim
from audits.config.audit import parse_config
from audits.item_tables import RankingTask
from audits.run.build import build_federation, load_dataset
from audits.run.training import open_run
from audits.run.truth import ground_truth
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import View

DATA = {"name": "synthetic", "clients": 40, "items": 150, "mean_ratings": 10.0}
SERVER = WHO["server"]
ROUNDS = (1, 2, 3)
RATES = {"fedmf": 100.0, "fedncf": 100.0, "fedrap": 20.0, "fed3cr": 20.0}
STEPS = {name: {"item_learning_rate": rate} for name, rate in RATES.items()}  # for so few items
ATTACKS = ("intersection", "touched-rows", "signed-rows", "score-vector", "dense-layer")


def recorded(name: str, *, protocol: str = "clean", **others: Any) -> RecordedRun:
    """A few rounds of a method, by its name in configurations."""
    raw = {
        "seed": 5,
        "data": {**DATA, "protocol": protocol},
        "algorithm": {"name": name, "rounds": max(ROUNDS), "rank": 8, **STEPS.get(name, {})},
        "recording": {"payload_rounds": list(ROUNDS)},
        "adversaries": [{"name": "server", "corrupt": ["server"]}],
        **others,
    }
    config = parse_config(raw)
    task = load_dataset(config, None).task(0)
    assert isinstance(task, RankingTask)
    federation = build_federation(config, task, priced=False)
    run = open_run(federation, None, resume=False)
    for _ in ROUNDS:
        run.run_round()
    TRUTHS[id(run)] = ground_truth(task.secrets(), run.truth, name="synthetic")
    return run


TRUTHS: dict[int, Any] = {}


def found(run: RecordedRun, attack: str) -> Finding:
    return evaluate(SUITE[attack], SERVER, run.transcript, TRUTHS[id(run)], seed=0)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None, finding.reason
    return value


@pytest.fixture(scope="module")
def runs() -> Mapping[str, RecordedRun]:
    return {name: recorded(name) for name in ("fedmf", "fedncf", "pfedrec", "fedrap", "fed3cr")}


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec", "fedrap", "fed3cr"])
def test_the_side_of_a_row_tells_what_was_rated(name: str, runs: Mapping[str, RecordedRun]) -> None:
    finding = found(runs[name], "signed-rows")
    assert figure(finding, "auc") > 0.98
    assert figure(finding, "precision_gain_certain") > 0.2
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec"])
def test_what_is_sent_every_time_is_rated(name: str, runs: Mapping[str, RecordedRun]) -> None:
    finding = found(runs[name], "intersection")
    curve = finding.details["auc_by_rounds"]
    assert 0.7 < curve["1"]["auc"] < curve["2"]["auc"] < curve["3"]["auc"]
    assert figure(finding, "recall") == 1.0


@pytest.mark.parametrize("name", ["fedmf", "pfedrec", "fedrap"])
def test_rows_move_along_the_score_vector(name: str, runs: Mapping[str, RecordedRun]) -> None:
    finding = found(runs[name], "score-vector")
    assert figure(finding, "vector_cosine") > 0.9
    assert figure(finding, "reidentified_share") > 0.8
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize(("name", "least"), [("fedncf", 0.9), ("fed3cr", 0.9)])
def test_a_dense_layer_tells_what_it_reads(
    name: str, least: float, runs: Mapping[str, RecordedRun]
) -> None:
    """FedNCF's user vector, and the personal prototype that Fed3CR's generator is given."""
    finding = found(runs[name], "dense-layer")
    assert figure(finding, "vector_cosine") > least
    assert figure(finding, "reidentified_share") > 0.9
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_the_parameters_of_a_generator_lie_where_they_are_said_to(
    runs: Mapping[str, RecordedRun],
) -> None:
    known = Architecture.of(runs["fed3cr"].transcript.view(SERVER))
    assert known.private == 8
    assert known.parameters[-1].stop == known.values
    starts = [each.start for each in known.parameters]
    assert starts == [0, *(each.stop for each in known.parameters[:-1])]


def test_item_numbers_tell_nothing_where_all_rows_are_sent(
    runs: Mapping[str, RecordedRun],
) -> None:
    for name in ("fedrap", "fed3cr"):
        assert figure(found(runs[name], "intersection"), "auc") == 0.5


def test_what_is_never_sent_is_what_was_held_out_as_the_protocol_says() -> None:
    told = {
        protocol: figure(
            found(recorded("pfedrec", protocol=protocol), "never-touched"), "held_out_auc"
        )
        for protocol in ("published", "clean")
    }
    assert told["published"] > 0.65
    assert told["clean"] == pytest.approx(0.5, abs=0.12)


def test_a_decay_of_the_whole_table_hides_no_row(runs: Mapping[str, RecordedRun]) -> None:
    """FedRAP moves and sends every row: those that an example moved are told all the same."""
    run = runs["fedrap"]
    view = run.transcript.view(SERVER).at(2)
    changes = ItemChanges.read(view)
    assert changes is not None
    assert changes.visible.all()
    moved = changes.sizes > 0
    assert (moved.sum(axis=1) < moved.shape[1]).mean() > 0.5
    train = TRUTHS[id(run)].ratings
    assert moved[train.clients, train.items].all()


def test_without_a_decay_nothing_is_taken_off() -> None:
    rng = np.random.default_rng(0)
    changes, table = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    assert np.array_equal(without_decay(changes, table), changes)
    assert np.array_equal(without_decay(changes, np.zeros((50, 4))), changes)
    decayed = -0.3 * table
    decayed[:20] += changes[:20]
    rest = without_decay(decayed, table)
    assert np.allclose(rest[:20], changes[:20])
    assert not rest[20:].any()


def test_the_side_is_that_of_fewer_rows_that_examples_moved() -> None:
    direction = np.array([3.0, 4.0]) / 5
    along = np.array([1.0, 1.0, -1.0, -1.0, -1.0, 1e-3, 1e-3, 1e-3])
    changes = along[:, None] * direction
    moved = np.abs(along) > 0.5
    told, main = along_main(changes, moved)
    assert np.allclose(told, along)
    assert np.allclose(main, direction)
    told, main = along_main(changes, np.ones(8, dtype=bool))  # the small ones outweigh the moved
    assert np.allclose(told, -along)
    assert np.allclose(main, -direction)


MASKS = {"layer": "masking", "execution": "simulated", "min_survivors": 40}
NOISE = {"layer": "skellam", "epsilon": 8.0, "delta": 1e-5, "fraction_bits": 10}
ENCRYPTION = {"layer": "paillier", "execution": "simulated", "min_survivors": 16}
CLIP = {"layer": "clip", "norm": 4.0, "count_scale": 0.4}
STACKS: Mapping[str, Mapping[str, Any]] = {
    "masking": {"protection": [MASKS]},
    "paillier": {"protection": [ENCRYPTION], "cohort": {"clients_per_round": 24}},
    "skellam": {"protection": [CLIP, NOISE, MASKS]},
}


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("pfedrec", "masking"),
        ("pfedrec", "paillier"),
        ("pfedrec", "skellam"),
        ("fed3cr", "masking"),
    ],
)
def test_protected_uploads_tell_nothing(name: str, stack: str) -> None:
    run = recorded(name, **STACKS[stack])
    ran = 0
    for attack in ATTACKS:
        finding = found(run, attack)
        for key, value in finding.figures.items():
            if key.endswith("_certain") and value is not None:
                ran += 1
                assert value < 0.02, (attack, key)
    assert ran > 10


@pytest.mark.claim("unknown-is-unknown")
def test_what_a_method_does_not_state_is_not_attacked() -> None:
    run, truth = planted("untouched")
    public = dict(run.transcript.public)
    traits = {**public["algorithm"]["traits"], "form": "change"}
    public["algorithm"] = {**public["algorithm"], "traits": traits}
    finding = evaluate(SUITE["score-vector"], SERVER, run.transcript.stating(public), truth, seed=0)
    assert finding.reason == "rows are not said to move along a vector of the client"
    public["negatives"] = 1
    public["algorithm"] = run.transcript.public["algorithm"]
    for attack in ("score-vector", "signed-rows"):
        found_ = evaluate(SUITE[attack], SERVER, run.transcript.stating(public), truth, seed=0)
        assert found_.reason == "positives are not outnumbered by sampled negatives"
    del public["negatives"]
    for attack in ("score-vector", "signed-rows"):
        found_ = evaluate(SUITE[attack], SERVER, run.transcript.stating(public), truth, seed=0)
        assert found_.reason == "the public knowledge does not state 'negatives'"


def test_touched_rows_of_an_item_table_are_those_that_were_sent() -> None:
    run, _ = planted("untouched")
    view: View = run.transcript.view(SERVER)
    claims = SUITE["touched-rows"].run(view)
    assert isinstance(claims, Claims)
    (claim,) = claims.made
    assert np.array_equal(claim.predicted, claim.visible)  # type: ignore[attr-defined]


def test_what_tells_who_somebody_is_is_what_other_attacks_claim(
    runs: Mapping[str, RecordedRun],
) -> None:
    """The positive items and the direction of one upload; nothing of one that is hidden."""
    view = runs["pfedrec"].transcript.view(SERVER).at(2)
    claims, signed, vectors = (
        SUITE[name].run(view) for name in ("attribute-inference", "signed-rows", "score-vector")
    )
    assert isinstance(claims, Claims)
    assert isinstance(signed, Claims)
    assert isinstance(vectors, Claims)
    (sets,), (directions,) = signed.of(RatedSetClaim), vectors.of(VectorClaim)
    (told,) = claims.of(FeatureClaim)
    assert isinstance(sets.predicted, np.ndarray)
    assert np.array_equal(told.clients, sets.clients)
    assert np.array_equal(told.features[:, :150], sets.predicted)
    assert np.array_equal(told.features[:, 150:], directions.vectors)
    hidden = SUITE["attribute-inference"].run(
        recorded("pfedrec", **STACKS["masking"]).transcript.view(SERVER).at(2)
    )
    assert isinstance(hidden, Claims)
    assert not hidden.of(FeatureClaim)[0].features.any()


def test_masked_sums_of_a_sparse_table_are_read_by_side() -> None:
    """An item that one client trained on is that client's row in the sum, whatever hid it."""
    run = recorded(
        "pfedrec",
        data={**DATA, "clients": 60, "items": 6000, "mean_ratings": 12.0},
        algorithm={"name": "pfedrec", "rounds": max(ROUNDS), "rank": 32, "item_scale": 20.0},
        recording={"payload_rounds": [2]},
        protection=[{"layer": "masking", "execution": "simulated", "min_survivors": 50}],
    )
    finding = found(run, "sum-decoding")
    assert 60 <= finding.details["pseudonyms"] <= 63  # a client may be taken for two
    assert figure(finding, "clients_exposed") >= 15
    assert figure(finding, "clients_exposed") + figure(finding, "likely_exposed") >= 40
    assert figure(finding, "disclosures_wrong") == 0
