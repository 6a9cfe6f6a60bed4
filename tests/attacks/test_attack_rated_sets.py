"""What item numbers alone give away: one upload, and many uploads of the same client."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from attacks import Claims, Finding, GroundTruth, NotApplicable, evaluate
from attacks.families.rated_set import Direct, Intersection
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingTable, SyntheticConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.protection import RandomizedResponseConfig, VirtualRatingsConfig
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, BlockStore, Step, Transcript, View
from tests.attacks.made import predicted_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]

ROUNDS = 6


def truth_grid(train: RatingTable) -> BoolArray:
    grid = np.zeros((train.n_clients, train.n_items), dtype=bool)
    grid[train.clients, train.items] = True
    return grid


def uploads_with_item(view: View, rounds: int, shape: tuple[int, int]) -> tuple[FloatArray, int]:
    """By brute force: uploads of each client that hold each item, and all uploads read."""
    counts, total = np.zeros(shape), 0
    for round_ in range(1, rounds + 1):
        messages = view.messages(Step.UPLOAD, round_)
        assert isinstance(messages.payload, RowBlock)
        for client, part in zip(messages.senders.ids, messages.payload.split(), strict=True):
            counts[client, part.rows] += 1
            total += 1
    return counts, total


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


# --- one upload -----------------------------------------------------------------------------------


def test_a_plain_upload_is_the_rated_set(federate: Federate, server: Adversary) -> None:
    run, truth = federate()
    finding = evaluate(Direct(), server, run.transcript, truth, seed=0)
    for name in ("auc", "precision", "recall", "exact_set_share", "advantage"):
        assert finding.figures[name] == 1.0
    assert finding.figures["support_auc"] is None  # nothing in the upload to tell apart


@pytest.mark.parametrize("rho", [1.0, 2.0, 3.0])
def test_virtual_ratings_cost_the_direct_read_its_precision_alone(
    federate: Federate, server: Adversary, rho: float
) -> None:
    """Precision 1 / (1 + rho) per client, unless the catalogue is too small for rho virtual items;
    within the upload it is a coin."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=rho))
    finding = evaluate(Direct(), server, run.transcript, truth, seed=0)
    rated = truth.ratings.counts()
    virtual = np.minimum(np.floor(rho * rated), truth.ratings.n_items - rated)
    assert finding.figures["recall"] == 1.0
    assert finding.figures["precision"] == pytest.approx(np.mean(rated / (rated + virtual)))
    assert finding.figures["support_auc"] == 0.5
    expected = 1 - 0.5 * np.mean(virtual / (truth.ratings.n_items - rated))
    assert finding.figures["auc"] == pytest.approx(expected)


def test_the_direct_read_uses_the_first_round_only(federate: Federate, server: Adversary) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=1.0), rounds=ROUNDS)
    claims = Direct().run(run.transcript.view(server))
    assert isinstance(claims, Claims)
    assert claims.rounds == (1,)
    counts, _ = uploads_with_item(run.transcript.view(server), 1, rated_of(claims).scores.shape)
    np.testing.assert_array_equal(rated_of(claims).scores, counts)
    np.testing.assert_array_equal(rated_of(claims).visible, counts > 0)


# --- many uploads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"cloak": VirtualRatingsConfig(rho=2.0)},
        {
            "cloak": VirtualRatingsConfig(rho=1.0),
            "cohort": CohortConfig(clients_per_round=25),
        },
        {"cloak": VirtualRatingsConfig(rho=1.0), "denoisers": 10},
    ],
    ids=["everybody", "cohorts", "denoisers"],
)
def test_scores_are_the_share_of_uploads_with_the_item(
    federate: Federate, server: Adversary, settings: dict[str, object]
) -> None:
    run, truth = federate(rounds=ROUNDS, **settings)
    view = run.transcript.view(server)
    claims = Intersection().run(view)
    assert isinstance(claims, Claims)
    shape = (truth.ratings.n_clients, truth.ratings.n_items)
    counts, total = uploads_with_item(view, ROUNDS, shape)
    uploads = counts.max(axis=1, keepdims=True)  # a rated item is in every upload of its client
    assert uploads.sum() == total
    seen = np.flatnonzero(uploads[:, 0])
    np.testing.assert_array_equal(rated_of(claims).clients, seen)
    np.testing.assert_array_equal(rated_of(claims).scores, (counts / np.maximum(uploads, 1))[seen])
    np.testing.assert_array_equal(predicted_of(claims), (counts == uploads)[seen])
    np.testing.assert_array_equal(rated_of(claims).visible, (counts > 0)[seen])
    assert set(rated_of(claims).history) == {1, 2, 3, 5}
    for rounds, scores in rated_of(claims).history.items():
        np.testing.assert_array_equal(scores, uploads_with_item(view, rounds, shape)[0][seen])


@pytest.mark.parametrize("rho", [1.0, 2.0, 3.0])
def test_virtual_items_survive_at_the_rate_of_the_formula(
    federate: Federate, server: Adversary, rho: float
) -> None:
    """A fake is drawn again in each of T rounds with probability (k / (m - |I|)) ** T.

    The counts of surviving fakes are sums of negatively associated indicators, so binomial tails
    hold for them.
    """
    run, truth = federate(
        data=SyntheticConfig(clients=300, items=120, mean_ratings=15.0, seed=3),
        cloak=VirtualRatingsConfig(rho=rho),
        rounds=3,
        payload_rounds=(),
    )
    claims = Intersection().run(run.transcript.view(server))
    assert isinstance(claims, Claims)
    rated = truth.ratings.counts()
    room = truth.ratings.n_items - rated
    share = np.minimum(np.floor(rho * rated), room) / room
    virtual = ~truth_grid(truth.ratings)
    for rounds in (1, 2, 3):
        always = rated_of(claims).history[rounds] == rounds
        assert not (~virtual & ~always).any()  # real items never miss a round
        expected = float((room * share**rounds).sum())
        survivors = int((always & virtual).sum())
        if rounds == 1:
            assert survivors == round(expected)
            continue
        # Clients with different odds: a sum of unequal trials is no wider than one of equal ones.
        low, high = binom.interval(1 - 1e-6, int(room.sum()), expected / room.sum())
        assert low <= survivors <= high
        precision = rated.sum() / (rated.sum() + survivors)
        least, most = rated.sum() / (rated.sum() + high), rated.sum() / (rated.sum() + low)
        assert least <= precision <= most
        finding = evaluate(Intersection(), server, run.transcript, truth, seed=0)
        told = finding.details["auc_by_rounds"][str(rounds)]
        assert told["always_seen_precision"] == pytest.approx(precision)
    assert survivors < 0.5 * share.mean() * room.sum()


@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_the_support_is_a_coin_in_round_one_and_open_soon_after(
    federate: Federate, server: Adversary, rho: float
) -> None:
    """A rated item has the highest count; an unrated one ties with it only if drawn every round."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=rho), rounds=20)
    finding = evaluate(Intersection(), server, run.transcript, truth, seed=0)
    by_rounds = finding.details["auc_by_rounds"]
    assert by_rounds["1"]["support_auc"] == 0.5
    rated = truth.ratings.counts()
    room = truth.ratings.n_items - rated
    share = np.minimum(np.floor(rho * rated), room) / room
    for rounds, rounding in ((1, 1e-12), (2, 0.01), (5, 0.01), (20, 0.01)):
        expected = float(np.mean(1 - share**rounds / 2))
        assert by_rounds[str(rounds)]["auc"] == pytest.approx(expected, abs=rounding)
    assert figure(finding, "auc") == by_rounds["20"]["auc"] > by_rounds["1"]["auc"] + 0.04
    covered = float(np.mean(share == 1))  # these upload the whole catalogue every round
    assert figure(finding, "support_auc") > 1 - covered / 2 - 0.02


def test_sticky_virtual_items_leave_the_support_at_a_coin(
    federate: Federate, server: Adversary
) -> None:
    run, truth = federate(cloak=VirtualRatingsConfig(rho=2.0, sticky=True), rounds=ROUNDS)
    many = evaluate(Intersection(), server, run.transcript, truth, seed=0)
    once = evaluate(Direct(), server, run.transcript, truth, seed=0)
    assert many.figures["support_auc"] == 0.5
    for name in ("auc", "precision", "recall"):
        assert many.figures[name] == once.figures[name]
    assert {told["support_auc"] for told in many.details["auc_by_rounds"].values()} == {0.5}


def test_randomized_reports_add_up(federate: Federate, server: Adversary) -> None:
    run, truth = federate(cloak=RandomizedResponseConfig(), rounds=20)
    finding = evaluate(Intersection(), server, run.transcript, truth, seed=0)
    by_rounds = finding.details["auc_by_rounds"]
    # One report: the AUC of randomized response is (1 + q - p) / 2 for report rates q and p.
    config = RandomizedResponseConfig()
    expected = (1 + config.report_rated - config.report_unrated) / 2
    assert by_rounds["1"]["auc"] == pytest.approx(expected, abs=0.02)
    # The permanent coin of f / 2 = 5 % per side is what no number of rounds removes.
    assert figure(finding, "auc") > by_rounds["1"]["auc"]
    half = config.permanent / 2
    assert figure(finding, "auc") == pytest.approx(1 - half, abs=0.02)


# --- nothing to read ------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", [Direct(), Intersection()], ids=lambda attack: str(attack.name))
def test_an_empty_recording_is_not_applicable(
    federate: Federate, server: Adversary, attack: Direct | Intersection
) -> None:
    run, _ = federate()
    empty = Transcript(BlockStore(None), run.transcript.public).view(server)
    claims = attack.run(empty)
    assert claims == NotApplicable(reason="no upload was recorded")
