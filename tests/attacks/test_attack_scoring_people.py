"""Figures of drafts and attributes, the classifier behind them, and claims without rated sets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from attacks import AttackCard, Claims, Finding, GroundTruth, NotApplicable, evaluate
from attacks.base import Claim, InapplicableError
from attacks.scoring.attributes import (
    FeatureClaim,
    People,
    cross_validated_scores,
    one_against_rest_auc,
    score_attributes,
)
from attacks.scoring.drafts import DraftClaim, Matches, Members, score_disclosed, score_drafts
from attacks.scoring.gains import Level
from attacks.scoring.profiles import HistogramClaim, LabelClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.truth import Scored
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.wire import Adversary, BlockStore, Transcript, Truth, View

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
NOBODY: frozenset[int] = frozenset()


def scored(answer: Scored | NotApplicable) -> Scored:
    assert isinstance(answer, Scored)
    return replace(answer, figures=answer.at(Level(seed=0)))


def draft_claim(vectors: FloatArray, owners: list[int], **kwargs: Any) -> DraftClaim:
    return DraftClaim(
        round=1, table="user_embeddings", vectors=vectors, owners=np.array(owners), **kwargs
    )


# --- drafts ---------------------------------------------------------------------------------------

MEMBERS = Members(
    np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 6.0], [8.0, 0.0]]),
    np.array([0, 0, 1, 1, 1]),
)
DRAFTS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0], [8.0, 0.0 + 1e-3]])
"""Client 0 discloses both members, client 1 the mean of two and almost the third."""


def matched(claim: DraftClaim, members: Members, corrupted: frozenset[int] = NOBODY) -> Matches:
    found = Matches.of(claim, members, corrupted)
    assert isinstance(found, Matches)
    return found


def score_claim(claim: DraftClaim, corrupted: frozenset[int] = NOBODY) -> Scored:
    return scored(score_drafts(matched(claim, MEMBERS, corrupted), prefix=claim.prefix, seed=0))


def test_drafts_by_hand() -> None:
    found = score_claim(draft_claim(DRAFTS, [0, 0, 1, 1]))
    assert found.figures["disclosed_share"] == pytest.approx(2 / 5)
    assert found.figures["holder_accuracy"] == 1.0
    # Guesses 0, 0, 1, 1, 1 dealt to members of clients 0, 0, 1, 1, 1.
    assert found.figures["holder_chance"] == pytest.approx((2 * 2 + 3 * 3) / 25)
    assert found.figures["holder_lift"] == pytest.approx(1 - 13 / 25)
    assert found.units == {"clients": 5, "pairs": 10, "positives": 2}
    wrong = score_claim(draft_claim(DRAFTS, [0, 1, 1, 1]))
    assert wrong.figures["holder_accuracy"] == pytest.approx(4 / 5)


def test_anonymous_drafts_disclose_but_do_not_place() -> None:
    found = score_claim(draft_claim(DRAFTS, [-1] * 4))
    assert found.figures["disclosed_share"] == pytest.approx(2 / 5)
    assert "holder_accuracy" not in found.figures
    assert found.null_control is None


def test_own_members_and_drafts_are_left_out() -> None:
    claim = draft_claim(DRAFTS, [0, 0, 1, 1], prefix="item_")
    found = score_claim(claim, frozenset({0}))
    assert found.figures["item_disclosed_share"] == 0.0
    assert found.units["clients"] == 3
    assert found.details == {"item_drafts": 2}
    with pytest.raises(InapplicableError):
        Matches.of(claim, MEMBERS, frozenset({0, 1}))


def crowd() -> tuple[Members, IntArray]:
    """Three clients of 40 members. The second value's sign is the class of the first 20 of each,
    and the first value tells whose class it is: it is 1 for the others, to whom the sign is noise.
    """
    rng = np.random.default_rng(5)
    classes = np.tile([0, 1], 60)
    telling = np.tile(np.arange(40) < 20, 3)
    signs = np.where(telling, 2 * classes - 1, rng.choice([-1, 1], 120))
    vectors = np.column_stack([~telling, signs * rng.uniform(1, 2, 120), rng.normal(size=120)])
    return Members(vectors.astype(np.float64), np.repeat([0, 1, 2], 40)), classes


@pytest.mark.parametrize("telling", [True, False])
def test_attributes_are_told_of_disclosed_members_only(telling: bool) -> None:
    """Who else there is does not matter: the same members alone give the same figure."""
    members, classes = crowd()
    sent = np.flatnonzero((members.vectors[:, 0] == 0) == telling)
    claim = draft_claim(members.vectors[sent], members.clients[sent].tolist())
    found = score_disclosed(matched(claim, members), {"group": classes}, seed=0)
    alone = Members(members.vectors[sent], members.clients[sent])
    expected = score_disclosed(matched(claim, alone), {"group": classes[sent]}, seed=0)
    assert found.figures == expected.figures
    assert found.units["clients"] == 60
    auc = found.figures["disclosed_attribute_auc"]
    assert auc is not None
    assert auc > 0.95 if telling else auc < 0.7


def test_own_members_tell_no_attribute() -> None:
    members, classes = crowd()
    claim = draft_claim(members.vectors, members.clients.tolist())
    matches = matched(claim, members, frozenset({1}))
    assert score_disclosed(matches, {"group": classes}, seed=0).units["clients"] == 80
    # Their classes are not looked at: those of the others are found at their own places.
    unknown = np.where(members.clients == 1, -1, classes)
    one, other = (score_disclosed(matches, {"group": each}, seed=0) for each in (classes, unknown))
    assert one.figures == other.figures


@pytest.mark.parametrize("disclosed", [0, 1, 19])
def test_too_few_disclosed_members_tell_nothing(disclosed: int) -> None:
    """Of two classes there must be ten each."""
    members, classes = crowd()
    drafts = members.vectors + 1.0
    drafts[:disclosed] = members.vectors[:disclosed]
    claim = draft_claim(drafts, members.clients.tolist())
    matches = matched(claim, members)
    assert np.count_nonzero(matches.disclosed) == disclosed
    found = score_disclosed(matches, {"group": classes}, seed=0)
    assert found.figures == {
        "disclosed_attribute_auc": None,
        "disclosed_attribute_auc_low": None,
        "disclosed_attribute_auc_high": None,
    }
    assert found.null_control is None


def test_members_are_those_at_the_start_of_the_next_round() -> None:
    store = BlockStore(None)
    columns = {"values": MEMBERS.vectors, "lengths": np.array([2, 3])}
    store.append(2, "private-user_embeddings", columns)
    claim = draft_claim(DRAFTS, [0, 0, 1, 1])
    members = Members.of(claim, Truth(store))
    assert members is not None
    np.testing.assert_array_equal(members.clients, MEMBERS.clients)
    late = DraftClaim(round=2, table="user_embeddings", vectors=DRAFTS, owners=claim.owners)
    assert Members.of(late, Truth(store)) is None


# --- the classifier -------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [2, 1, 0, 3]], ids=str)
def test_the_weighted_auc_counts_pairs(weights: list[int]) -> None:
    """Against every pair of a positive and a negative, as often as both were drawn."""
    scores, classes = np.array([0.3, 0.9, 0.3, 0.1]), np.array([1, 1, 0, 0])
    wins = pairs = 0.0
    for one in np.flatnonzero(classes == 1):
        for other in np.flatnonzero(classes == 0):
            times = weights[one] * weights[other]
            pairs += times
            wins += times * ((scores[one] > scores[other]) + (scores[one] == scores[other]) / 2)
    both = np.column_stack([-scores, scores])
    drawn = np.array([weights], dtype=np.float64)
    assert one_against_rest_auc(both, classes, drawn)[0] == pytest.approx(wins / pairs)


def test_a_draw_without_a_class_leaves_it_out() -> None:
    scores = np.eye(3)[[0, 0, 1, 2]]
    classes = np.array([0, 0, 1, 2])
    draws = np.array([[1.0, 1, 1, 0], [1, 1, 0, 0]])
    assert one_against_rest_auc(scores, classes, draws).tolist() == [1.0, 0.5]


def cluster_game(seed: int, people: int, spread: float) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, people)
    return np.eye(3)[classes] * spread + rng.normal(size=(people, 3)), classes


def test_what_separates_the_classes_is_found_among_many_features() -> None:
    useful, classes = cluster_game(0, 200, 3.0)
    noise = np.random.default_rng(1).normal(size=(200, 500)) * 100.0
    constant = np.full((200, 1), 7.0)
    features = np.hstack([noise, constant, useful, useful, useful])
    scores = cross_validated_scores(features, classes, seed=0)
    once = np.ones((1, 200))
    assert one_against_rest_auc(scores, classes, once)[0] > 0.75
    alone = cross_validated_scores(useful, classes, seed=0)
    assert one_against_rest_auc(alone, classes, once)[0] > 0.95


def test_no_one_is_scored_by_a_classifier_that_saw_them() -> None:
    """With a feature of one's own for everybody, training on oneself would tell every class."""
    classes = np.arange(60) % 2
    scores = cross_validated_scores(np.eye(60), classes, seed=0)
    assert abs(one_against_rest_auc(scores, classes, np.ones((1, 60)))[0] - 0.5) < 0.2


def test_with_nothing_to_go_by_folds_do_not_tell() -> None:
    """A class rarer in a fold is more frequent outside: left in, that would rank below chance."""
    classes = np.repeat([0, 1], [40, 23])
    scores = cross_validated_scores(np.zeros((63, 2)), classes, seed=0)
    assert one_against_rest_auc(scores, classes, np.ones((1, 63))).tolist() == [0.5]


def test_attributes_beside_chance_and_ceiling() -> None:
    features, classes = cluster_game(3, 200, 1.0)
    truth = np.eye(3)[classes]
    people = People(features, {"group": classes, "other": np.full(200, -1)}, truth)
    found = scored(score_attributes(people, seed=0))
    value, low, high = (found.figures[f"attribute_auc{end}"] for end in ("", "_low", "_high"))
    assert value is not None and low is not None and high is not None
    assert 0.6 < low < value < high < 0.95
    assert found.figures["attribute_lift"] == pytest.approx(value - 0.5)
    assert found.figures["attribute_ceiling_auc"] == 1.0
    assert list(found.details["attributes"]) == ["group"]
    assert found.details["attributes"]["group"]["classes"] == 3


def test_rare_and_unknown_classes_are_left_out() -> None:
    classes = np.repeat([0, 1, 2, -1], [40, 40, 9, 11])
    people = People(np.random.default_rng(0).normal(size=(100, 2)), {"group": classes}, None)
    found = scored(score_attributes(people, seed=0))
    assert found.units["clients"] == 80
    assert found.figures["attribute_ceiling_auc"] is None
    alone = People(people.features, {"group": np.where(classes == 1, -1, classes)}, None)
    with pytest.raises(InapplicableError):
        score_attributes(alone, seed=0)


@pytest.mark.parametrize("features", [3, 300], ids=["few", "many"])
def test_attributes_by_chance_are_found_to_be_by_chance(features: int) -> None:
    rng = np.random.default_rng(4)
    games, covered, passed = 30, 0, 0
    for seed in range(games):
        people = People(rng.normal(size=(120, features)), {"group": rng.integers(0, 2, 120)}, None)
        found = scored(score_attributes(people, seed=seed))
        low, high = (found.figures[f"attribute_auc_{end}"] for end in ("low", "high"))
        assert low is not None
        assert high is not None
        covered += low <= 0.5 <= high
        assert found.null_control is not None
        passed += found.null_control["passed"]
    assert covered >= binom.ppf(1e-4, games, 0.92)
    assert passed >= games - 1


@pytest.mark.parametrize(("people", "features"), [(60, 8), (200, 3)])
def test_chance_alone_stays_within_the_null_control(people: int, features: int) -> None:
    """Its ends are four deviations away: chance deviates by no more than the null control says."""
    values, deviations = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        classes = rng.permutation(people) % 3 // 2  # a third has it
        who = People(rng.normal(size=(people, features)), {"group": classes}, None)
        null = scored(score_attributes(who, seed=seed)).null_control
        assert null is not None
        values.append(null["value"])
        deviations.append((null["high"] - null["low"]) / 8)
    assert 0.5 < np.std(values, ddof=1) / np.mean(deviations) < 1.0


# --- findings without rated sets ------------------------------------------------------------------


@dataclass(frozen=True)
class Stub:
    """An attack with a fixed answer."""

    answer: Claims | NotApplicable
    name: str = "stub"
    card: AttackCard = AttackCard(  # noqa: RUF009 (frozen)
        game="g", adversary="a", needs="n", statistic="s", reference="r", limits="l"
    )
    reads_item_rows: bool = False

    def run(self, view: View) -> Claims | NotApplicable:
        assert type(view) is View
        return self.answer


def judge(claims: Claims, truth: GroundTruth, **public: Any) -> Finding:
    known = {"n_clients": 4, "ring": {"bits": 64, "fraction_bits": 32, "clip": 4096.0}, **public}
    attack = Stub(claims)
    return evaluate(attack, SERVER, Transcript(BlockStore(None), known), truth, seed=0)


def truth_with(**kwargs: Any) -> GroundTruth:
    return GroundTruth(recorded=Truth(BlockStore(None)), **kwargs)


LABELS = LabelClaim(name="majority", clients=np.arange(4), scores=np.eye(2)[[0, 1, 0, 1]])


def test_a_finding_may_have_no_rated_set() -> None:
    truth = truth_with(secrets={"labels.majority": np.array([0, 1, 0, 0])})
    finding = judge(Claims(rounds=(1,), made=(LABELS,)), truth)
    assert finding.measured
    assert finding.figures.get("auc") is None
    assert finding.figures["label_accuracy"] == 0.75
    assert finding.units["clients"] == 4
    assert finding.roc is None
    assert finding.null_control is not None
    assert finding.null_control["metric"] == "label_accuracy"


CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "labels": (LABELS,),
    "sets": (SetClaim(name="classes", clients=np.arange(4), scores=np.eye(4)),),
    "histograms": (
        HistogramClaim(
            name="attributes", clients=np.arange(4), shares=np.eye(4), activity=np.ones(4)
        ),
    ),
    "vectors": (VectorClaim(round=1, clients=np.arange(4), vectors=np.eye(4)),),
    "drafts": (draft_claim(np.eye(4), [0, 1, 2, 3]),),
    "features": (FeatureClaim(clients=np.arange(4), features=np.eye(4)),),
    "nothing": (),
}


@pytest.mark.parametrize("kind", CLAIMS)
def test_claims_without_a_truth_are_not_measured(kind: str) -> None:
    """Never a figure out of nothing, and never a silent pass."""
    finding = judge(Claims(rounds=(1,), made=CLAIMS[kind]), truth_with())
    assert not finding.measured
    assert finding.figures == {}
    assert finding.reason is not None
    assert "the truth holds no" in finding.reason


def test_attacks_on_items_are_not_asked_where_rows_are_something_else() -> None:
    @dataclass(frozen=True)
    class OnItems(Stub):
        reads_item_rows: bool = True

    truth = truth_with(secrets={"labels.majority": np.array([0, 1, 0, 0])})
    claims = Claims(rounds=(1,), made=(LABELS,))
    public: dict[str, Any] = {"ring": {"bits": 64, "fraction_bits": 32, "clip": 4096.0}}
    public["algorithm"] = {"traits": {"rows": "items"}}
    for known, measured in (({}, False), ({"n_items": 7}, True)):
        transcript = Transcript(BlockStore(None), {**public, **known})
        finding = evaluate(OnItems(claims), SERVER, transcript, truth, seed=0)
        assert finding.measured is measured
    missing = evaluate(OnItems(claims), SERVER, Transcript(BlockStore(None), public), truth, seed=0)
    assert missing.reason == "the public knowledge does not state 'n_items'"


def test_of_two_sets_the_first_gives_the_figures() -> None:
    grid = np.eye(4, dtype=bool)
    first = SetClaim(name="one", clients=np.arange(4), scores=np.eye(4))
    second = SetClaim(name="two", clients=np.arange(4), scores=-np.eye(4))
    truth = truth_with(secrets={"sets.one": grid, "sets.two": grid})
    finding = judge(Claims(rounds=(1,), made=(first, second)), truth)
    assert finding.figures["set_auc"] == 1.0
    assert finding.details["set"] == "one"


def test_ratings_are_there_only_where_the_run_was_on_ratings() -> None:
    with pytest.raises(ValueError, match="not on ratings"):
        _ = truth_with().ratings
