"""What a partner reads off item vectors: sales of items that it has never had, and no more."""

from typing import Any

import numpy as np
import pytest

from attacks import SUITE
from attacks.base import InapplicableError
from attacks.planted.controls import WHO
from attacks.planted.partners import plant_partner_users, plant_partners
from attacks.scoring.gains import Estimate
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.organisations import MembersClaim, SalesClaim, explained, probe
from attacks.scoring.truth import Scored
from audits.config.audit import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.training import open_run
from audits.run.truth import ground_truth
from secure_fedrec.errors import ConfigError
from secure_fedrec.wire import Adversary

ATTACK, MEMBERS = SUITE["item-sales"], SUITE["partner-members"]
PARTNER, SERVER = WHO["one client"], WHO["server"]
MASKS = [{"layer": "masking", "execution": "simulated", "min_survivors": 3}]


def found(form: str, adversary: Adversary, **others: Any) -> Finding:
    attack, epochs = others.pop("attack", ATTACK), others.pop("epochs", 3)
    raw = {
        "seed": 2,
        "data": {
            **{"name": "synthetic", "clients": 120, "items": 120, "mean_ratings": 25.0},
            "cut": {"organisations": others.pop("organisations", 2)},
        },
        "algorithm": {
            **{"name": "feddmf", "form": form, "epochs": epochs},
            "training": {"learning_rate": 5e-3},
        },
        "recording": {"payload_rounds": [epochs]},
        "adversaries": [{"name": "a", "corrupt": sorted(adversary.corrupt)}],
        **others,
    }
    config = parse_config(raw)
    federation = build_federation(config, load_dataset(config, None).task(0))
    run = open_run(federation, None, resume=False)
    for _ in range(epochs):
        run.run_round()
    truth = ground_truth(federation.task.secrets(), run.truth, name="synthetic")
    return evaluate(attack, adversary, run.transcript, truth, seed=0)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None, finding.reason
    return value


def test_vectors_of_items_that_are_handed_over_tell_their_sales() -> None:
    finding = found("served", PARTNER)
    assert figure(finding, "item_sales_correlation") > 0.5
    assert figure(finding, "item_sales_prior") == 0.0
    assert figure(finding, "item_sales_gain_certain") > 0.0
    assert not finding.details["of_items_it_sells"]
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize(
    ("form", "who", "others"),
    [
        ("exchanged", PARTNER, {}),
        ("summed", PARTNER, {}),
        ("summed", SERVER, {}),
        ("summed", PARTNER, {"organisations": 3, "protection": MASKS}),
    ],
)
def test_of_common_items_the_own_sales_tell_as_much(
    form: str, who: Adversary, others: dict[str, Any]
) -> None:
    finding = found(form, who, **others)
    assert finding.details["of_items_it_sells"]
    assert figure(finding, "item_sales_prior") > 0.3
    assert figure(finding, "item_sales_gain_certain") < 0.0


def test_masks_hide_the_vectors_from_the_server_and_are_refused_for_two() -> None:
    hidden = found("summed", SERVER, organisations=3, protection=MASKS)
    assert figure(hidden, "item_sales_gain_certain") < 0.0
    two = [{"layer": "masking", "execution": "simulated", "min_survivors": 2}]
    with pytest.raises(ConfigError, match="of two clients each knows the other's upload"):
        found("summed", SERVER, protection=two)


def test_the_server_sees_nothing_of_what_organisations_give_each_other() -> None:
    reason = found("exchanged", SERVER).reason
    assert reason == "no vectors of organisations are in view, nor their sum"


def test_vectors_that_follow_nothing_tell_nothing() -> None:
    """Forty federations: the mean lies within four of its own standard errors of zero."""
    values = []
    for seed in range(40):
        run, truth = plant_partners(told=False, seed=seed)
        finding = evaluate(ATTACK, PARTNER, run.transcript, truth, seed=0)
        values.append(figure(finding, "item_sales_correlation"))
        assert figure(finding, "item_sales_gain_certain") <= 0
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 4 * error
    assert error < 0.05


def test_the_probe_is_a_regression() -> None:
    rng = np.random.default_rng(1)
    features, known = rng.normal(size=(200, 3)), np.arange(200) < 100
    told = probe(features, features @ [1.0, -2.0, 0.5], known)
    assert np.corrcoef(told, features @ [1.0, -2.0, 0.5])[0, 1] > 0.999


def test_few_items_and_own_organisations_are_not_judged() -> None:
    truth = np.array([[3, 4, -1, 5], [1, -1, 2, 2]])
    claim = SalesClaim(
        name="items", clients=np.array([1]), items=(np.arange(3),), vectors=(np.eye(3),)
    )
    for corrupted in (frozenset({0}), frozenset({1}), frozenset[int]()):
        with pytest.raises(InapplicableError):
            SalesClaim.judged(claim, truth, corrupted, 0)
    many = np.tile(np.arange(30) % 7, (2, 1))
    broken = SalesClaim(
        name="items",
        clients=np.array([1]),
        items=(np.arange(30),),
        vectors=(np.full((30, 2), np.nan),),
    )
    with pytest.raises(ValueError, match="finite"):
        SalesClaim.judged(broken, many, frozenset({0}), 0)
    fine = SalesClaim(
        name="items",
        clients=np.array([1]),
        items=(np.arange(30),),
        vectors=(many[1][:, None].astype(float),),
    )
    judged = SalesClaim.judged(fine, many, frozenset({0}), 0)
    assert isinstance(judged, Scored)
    assert judged.figures["item_sales_prior"] == pytest.approx(1.0)


def test_what_is_handed_over_beside_changes_no_bit_of_the_training() -> None:
    tables = []
    for form in ("exchanged", "served"):
        raw = {
            "data": {"name": "synthetic", "clients": 24, "items": 24, "mean_ratings": 12.0},
            "algorithm": {"name": "feddmf", "form": form, "epochs": 3},
        }
        config = parse_config(raw)
        federation = build_federation(config, load_dataset(config, None).task(0))
        run = open_run(federation, None, resume=False)
        for _ in range(3):
            run.run_round()
        tables.append({name: values.copy() for name, values in run.engine.vault.tables().items()})
    assert tables[0].keys() == tables[1].keys()
    for name, values in tables[0].items():
        assert np.array_equal(values, tables[1][name]), name


def test_vectors_that_are_trained_long_on_few_users_tell_whose_they_are() -> None:
    """Sixty users an organisation, by vectors of all its items; too few are common to judge by."""
    finding = found("served", PARTNER, attack=MEMBERS, epochs=40)
    assert figure(finding, "member_auc") > 0.65
    assert finding.null_control is not None
    assert finding.null_control["passed"]
    reason = found("exchanged", PARTNER, attack=MEMBERS, epochs=1).reason
    assert reason == "too few items or persons are known to tell one from another"


def test_before_training_vectors_tell_nobody() -> None:
    finding = found("served", PARTNER, attack=MEMBERS, epochs=1)
    assert abs(figure(finding, "member_auc") - 0.5) < 0.15
    assert figure(finding, "member_gain_certain") <= 0


def test_the_server_sees_no_users_in_what_organisations_give_each_other() -> None:
    reason = found("exchanged", SERVER, attack=MEMBERS).reason
    assert reason == "no vectors of organisations are in view, nor their sum"


def test_vectors_of_nobody_tell_no_member() -> None:
    """Forty federations: at chance on average, and no gain is certain; the intervals hold."""
    values, inside = [], 0
    for seed in range(40):
        run, truth = plant_partner_users(told=False, seed=seed)
        finding = evaluate(MEMBERS, PARTNER, run.transcript, truth, seed=0)
        values.append(figure(finding, "member_auc"))
        assert figure(finding, "member_gain_certain") <= 0
        assert finding.null_control is not None
        inside += bool(finding.null_control["passed"])
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - 0.5) < 4 * error
    assert error < 0.015
    assert inside >= 39
    # What the scorer takes for the spread of an area of 40 against 40 is what it is.
    assert np.std(values, ddof=1) == pytest.approx(np.sqrt(81 / (12 * 40 * 40)), rel=0.35)


def test_what_vectors_explain_of_a_record_by_hand() -> None:
    """Of popularity nothing is left; a record that is one of the vectors is explained in full."""
    rng = np.random.default_rng(0)
    chosen = (rng.random((5, 40)) < 0.3).astype(float)
    vectors = np.stack([chosen[0], rng.normal(size=40)], axis=1)
    shares = explained(vectors, chosen, np.zeros(40))
    assert shares[0] == pytest.approx(1.0)
    assert (shares[1:] < 0.5).all()
    popular = np.log1p(chosen[0])
    assert explained(vectors, chosen[:1], popular)[0] == pytest.approx(0.0, abs=1e-9)


def test_a_size_that_tells_members_is_no_gain() -> None:
    """Members chose less: vectors of noise do no better than that, whichever way round."""
    rng = np.random.default_rng(0)
    truth = np.zeros((2, 80, 61), dtype=np.int8)
    truth[1, :40, -1] = 1
    truth[:, :40, :-1] = rng.random((2, 40, 60)) < 0.2
    truth[:, 40:, :-1] = rng.random((2, 40, 60)) < 0.5
    claim = MembersClaim(
        name="users",
        clients=np.array([1]),
        items=(np.arange(60),),
        vectors=(rng.normal(size=(60, 4)),),
    )
    found = MembersClaim.judged(claim, truth, frozenset({0}), 0)
    assert isinstance(found, Scored)
    prior = found.figures["member_prior_auc"]
    assert prior is not None
    assert prior > 0.95
    gained = found.gains["member_gain"]
    assert isinstance(gained, Estimate)
    assert gained.value < 0


def test_members_are_not_told_from_few_persons_or_few_items() -> None:
    rng = np.random.default_rng(0)
    truth = np.zeros((2, 60, 41), dtype=np.int8)
    truth[:, :, :-1] = rng.random((2, 60, 40)) < 0.3
    truth[1, :30, -1] = 1

    def judged(width: int, people: int = 60, corrupted: int = 0) -> Any:
        claim = MembersClaim(
            name="users",
            clients=np.array([1]),
            items=(np.arange(40),),
            vectors=(rng.normal(size=(40, width)),),
        )
        return MembersClaim.judged(claim, truth[:, :people], frozenset({corrupted}), 0)

    found = judged(4)
    assert isinstance(found, Scored)
    assert (found.details["persons_left_out"], found.details["organisations_left_out"]) == (0, 0)
    truth[1, 5, :-1] = 0
    truth[1, 40, 2:-1] = 0  # two choices at most: not judged, and counted
    assert judged(4).details["persons_left_out"] == 2
    for few in ({"width": 18}, {"width": 4, "people": 45}, {"width": 4, "corrupted": 1}):
        with pytest.raises(InapplicableError):
            judged(**few)
    with pytest.raises(ValueError, match="finite"):
        MembersClaim.judged(
            MembersClaim(
                name="users",
                clients=np.array([1]),
                items=(np.arange(40),),
                vectors=(np.full((40, 4), np.nan),),
            ),
            truth,
            frozenset(),
            0,
        )
