"""Figures of vectors, labels and histograms against hand computation, and their controls."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from attacks.base import InapplicableError
from attacks.scoring.chance import hit_null
from attacks.scoring.gains import Level
from attacks.scoring.profiles import HistogramClaim, LabelClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.truth import Scored
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import BlockStore, Truth
from tests.attacks.made import scored_by

NOBODY: frozenset[int] = frozenset()


def truth_of(values: FloatArray, *, round_: int = 1, table: str = "user_vectors") -> Truth:
    store = BlockStore(None)
    store.append(round_, f"private-{table}", {"values": values})
    return Truth(store)


def vectors(values: FloatArray, clients: list[int] | None = None, **kwargs: Any) -> VectorClaim:
    named = range(len(values)) if clients is None else clients
    return VectorClaim(round=1, clients=np.array(list(named)), vectors=values, **kwargs)


def scored(answer: Scored) -> Scored:
    return replace(answer, figures=answer.at(Level(seed=0)))


def figure(figures: Mapping[str, float | None], name: str) -> float:
    value = figures[name]
    assert value is not None
    return value


# --- vectors --------------------------------------------------------------------------------------

ACTUAL = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [0.0, -1.0]])


def test_cosine_and_reidentification_by_hand() -> None:
    """Cosines to the own vector: 1, 1/sqrt(2) (tied with client 0's), 1 and -1."""
    claimed = np.array([[9.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [0.0, 5.0]])
    figures = scored(scored_by(vectors(claimed), truth_of(ACTUAL), NOBODY, 0)).figures
    half = 1 / np.sqrt(2)
    assert figures["vector_cosine"] == pytest.approx((1 + half + 1 - 1) / 4)
    assert figures["user_vector_cosine"] == pytest.approx((1 + half) / 2)
    assert figures["user_vector_share"] == 0.0  # no length is right
    # Directions of the others sum to minus the own direction.
    assert figures["vector_cosine_chance"] == pytest.approx(-(1 + half + 1 - 1) / 4 / 3)
    assert figures["vector_cosine_lift"] == pytest.approx((1 + half + 1 - 1) / 3)
    assert figures["reidentified_share"] == pytest.approx((1 + 1 / 2 + 1 + 0) / 4)
    assert figures["reidentified_chance"] == 1 / 4
    assert figures["reidentified_lift"] == pytest.approx(2.5 / 4 - 1 / 4)


def test_equal_vectors_are_guessed_among() -> None:
    """Before the first training all clients have one vector: the odds are one in four."""
    same = np.tile([1.0, 2.0], (4, 1))
    found = scored(scored_by(vectors(same), truth_of(same), NOBODY, 0))
    assert found.figures["vector_cosine"] == pytest.approx(1.0)
    assert found.figures["vector_cosine_lift"] == pytest.approx(0.0, abs=1e-12)
    assert found.figures["reidentified_share"] == pytest.approx(1 / 4)
    assert found.figures["reidentified_lift"] == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(12))
def test_rounding_does_not_tell_perfect_answers_apart(seed: int) -> None:
    """All clients at one value: the interval is that of so many, whatever the last bits are."""
    actual = np.random.default_rng(seed).normal(size=(20, 7))
    figures = scored(scored_by(vectors(actual * 3.0), truth_of(actual), NOBODY, 0)).figures
    assert figures["vector_cosine"] == 1.0
    assert figures["vector_cosine_low"] == pytest.approx(0.647, abs=1e-3)


@pytest.mark.parametrize("cells", [1, 60, 200])
def test_cosines_do_not_hang_on_how_many_are_compared_at_once(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    actual = rng.normal(size=(41, 7))
    claimed = vectors(actual + rng.normal(size=actual.shape))
    whole = scored(scored_by(claimed, truth_of(actual), NOBODY, 0)).figures
    monkeypatch.setattr("attacks.scoring.vectors._CELLS", cells)
    assert scored(scored_by(claimed, truth_of(actual), NOBODY, 0)).figures == whole


@pytest.mark.parametrize("zero", ["claimed", "actual"])
def test_vectors_of_length_zero_point_nowhere(zero: str) -> None:
    claimed, actual = np.eye(3), np.eye(3)
    (claimed if zero == "claimed" else actual)[:] = 0.0
    figures = scored(scored_by(vectors(claimed), truth_of(actual), NOBODY, 0)).figures
    assert figures["vector_cosine"] == 0.0
    assert figures["reidentified_share"] == pytest.approx(1 / 3)
    assert figures["user_vector_share"] == 0.0


def test_the_adversarys_own_clients_are_neither_judged_nor_candidates() -> None:
    claimed = np.array([[0.0, 9.0], [0.0, 9.0]])
    claim, truth = vectors(claimed, [1, 3]), truth_of(ACTUAL)
    assert scored(scored_by(claim, truth, NOBODY, 0)).figures["reidentified_share"] == 0.5
    without = scored(scored_by(claim, truth, frozenset({1}), 0))
    assert without.units["clients"] == 1
    assert without.figures["reidentified_chance"] == 1 / 3
    # Client 3 points the other way; clients 0 and 2 tie, so the guess is between them.
    assert without.figures["reidentified_share"] == 0.0
    with pytest.raises(InapplicableError, match="adversary's own"):
        scored_by(claim, truth, frozenset({1, 3}), 0)


def test_vectors_are_judged_by_their_own_table_and_round() -> None:
    claim = vectors(ACTUAL, table="private_parameters")
    right = truth_of(ACTUAL, table="private_parameters")
    figures = scored(scored_by(claim, right, NOBODY, 0)).figures
    assert figures["user_vector_share"] == 1.0
    assert figures["reidentified_share"] == 1.0
    other_round = truth_of(ACTUAL, table="private_parameters", round_=2)
    for other in (truth_of(ACTUAL), other_round):
        unknown = scored(scored_by(claim, other, NOBODY, 0))
        assert set(unknown.figures.values()) == {None}
        assert not unknown.units


def test_private_parameters_of_any_shape_are_one_vector() -> None:
    actual = np.arange(12.0).reshape(3, 2, 2) + 1
    claim = vectors(actual.reshape(3, 4))
    figures = scored(scored_by(claim, truth_of(actual), NOBODY, 0)).figures
    assert figures["user_vector_share"] == 1.0


def test_a_cosine_is_at_most_one_whatever_the_rounding() -> None:
    """Found by an audit of tables of single precision, whose report was out of its own schema."""
    actual: Any = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    claimed = 3.0 * actual.astype(np.float64)
    figures = scored(scored_by(vectors(claimed), truth_of(actual), NOBODY, 0)).figures
    assert figure(figures, "vector_cosine") == pytest.approx(1.0, abs=1e-15)
    assert figure(figures, "vector_cosine") <= 1.0


def test_vectors_by_chance_are_found_to_be_by_chance() -> None:
    """Random claims: the exact interval covers one in n, the null control rarely cries wolf."""
    rng = np.random.default_rng(5)
    actual, covered, passed, games = rng.normal(size=(50, 6)), 0, 0, 40
    for seed in range(games):
        claim = vectors(rng.normal(size=(50, 6)))
        found = scored(scored_by(claim, truth_of(actual), NOBODY, seed))
        low, high = (figure(found.figures, f"reidentified_share_{end}") for end in ("low", "high"))
        covered += low <= 1 / 50 <= high
        assert found.null_control is not None
        passed += found.null_control["passed"]
    assert covered >= binom.ppf(1e-4, games, 0.95)
    assert passed >= games - 1


def test_the_null_control_fails_where_the_truth_leaks_into_it() -> None:
    """Hits that permuting the truth does not take away are above the range of the binomial."""
    assert not hit_null("reidentified_share", np.ones(50), 1 / 50)["passed"]
    assert not hit_null("label_accuracy", np.zeros(500), 1 / 5)["passed"]
    assert hit_null("label_accuracy", np.repeat([1.0, 0.0], [100, 400]), 1 / 5)["passed"]


# --- labels ---------------------------------------------------------------------------------------


def labels(scores: list[list[float]], clients: list[int] | None = None) -> LabelClaim:
    named = range(len(scores)) if clients is None else clients
    return LabelClaim(name="majority", clients=np.array(list(named)), scores=np.array(scores))


def test_labels_by_hand() -> None:
    """Guesses 0, 1, 0 or 2, 2; truth 0, 1, 2, 0."""
    claim = labels([[2.0, 1.0, 0.0], [0.0, 5.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    found = scored(claim.judged(np.array([0, 1, 2, 0]), NOBODY, 0))
    assert found.figures["label_accuracy"] == pytest.approx((1 + 1 + 1 / 2 + 0) / 4)
    assert found.figures["label_base_rate"] == 0.5
    # Guessed shares (1.5, 1, 1.5) / 4 against true shares (2, 1, 1) / 4.
    assert found.figures["label_chance"] == pytest.approx((1.5 * 2 + 1 + 1.5) / 16)
    assert found.figures["label_lift"] == pytest.approx(2.5 / 4 - 0.5)
    assert found.units == {"clients": 4, "pairs": 12, "positives": 4}


def test_clients_without_a_label_are_left_out() -> None:
    claim = labels([[1.0, 0.0]] * 3, [4, 0, 2])
    truth = np.array([1, 0, -1, 0, 0])
    found = scored(claim.judged(truth, NOBODY, 0))
    assert found.units["clients"] == 2
    assert found.figures["label_accuracy"] == 0.5
    with pytest.raises(InapplicableError):
        claim.judged(np.full(5, -1), NOBODY, 0)
    with pytest.raises(InapplicableError):  # one class
        claim.judged(truth, frozenset({0}), 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_class_score_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        LabelClaim.judged(labels([[1.0, 0.0], [bad, 0.0]]), np.array([0, 1]), NOBODY, 0)


# --- histograms -----------------------------------------------------------------------------------


def test_histograms_by_hand() -> None:
    """Client 0 is told exactly; client 1's shares are reversed, so it looks like client 0's."""
    truth = np.array([[6.0, 3.0, 1.0], [0.0, 2.0, 6.0]])
    shares = np.array([[0.6, 0.3, 0.1], [0.75, 0.25, 0.0]])
    claim = HistogramClaim(
        name="attributes", clients=np.arange(2), shares=shares, activity=np.array([5.0, 4.0])
    )
    found = scored(HistogramClaim.judged(claim, truth, NOBODY, 0))
    assert found.figures["histogram_error"] == pytest.approx((0 + 0.75) / 2)
    # Against the other's truth: (0, .25, .75) from (.6, .3, .1), and (.6, .3, .1) from (.75, .25).
    assert found.figures["histogram_error_chance"] == pytest.approx((0.65 + 0.15) / 2)
    assert found.figures["histogram_error_lift"] == pytest.approx((0.65 + 0.15 - 0.75) / 2)
    assert found.figures["histogram_correlation"] == pytest.approx(0.0)  # 1 and -1
    assert found.figures["histogram_correlation_chance"] == pytest.approx(0.0)  # -1 and 1
    assert found.figures["activity_correlation"] is None  # two clients only


def test_activity_is_ranked_over_clients() -> None:
    truth = np.diag([1.0, 20.0, 300.0])
    claim = HistogramClaim(
        name="attributes",
        clients=np.arange(3),
        shares=np.eye(3),
        activity=np.array([1.0, 30.0, 20.0]),
    )
    found = scored(HistogramClaim.judged(claim, truth, NOBODY, 0))
    assert found.figures["activity_correlation"] == pytest.approx(0.5)
    assert found.figures["histogram_error"] == 0.0
    own = scored(HistogramClaim.judged(claim, truth, frozenset({1}), 0))
    assert own.units["clients"] == 2
    with pytest.raises(InapplicableError):
        HistogramClaim.judged(claim, 0 * truth, NOBODY, 0)


def test_profiles_by_chance_are_found_to_be_by_chance() -> None:
    rng = np.random.default_rng(1)
    games, covered, passed = 40, 0, 0
    for seed in range(games):
        truth = rng.multinomial(300, rng.dirichlet(np.ones(12)), size=30).astype(np.float64)
        claim = HistogramClaim(
            name="attributes",
            clients=np.arange(30),
            shares=rng.dirichlet(np.ones(12), size=30),
            activity=np.ones(30),
        )
        found = scored(HistogramClaim.judged(claim, truth, NOBODY, seed))
        low, high = (
            figure(found.figures, f"histogram_correlation_lift_{end}") for end in ("low", "high")
        )
        covered += low <= 0 <= high
        assert found.null_control is not None
        passed += found.null_control["passed"]
    assert covered >= binom.ppf(1e-4, games, 0.92)
    assert passed >= games - 1


# --- sets -----------------------------------------------------------------------------------------


def test_sets_by_hand() -> None:
    """AUCs 1 and 1/2 (a tie), priors 1 and 0 from the other clients' sets."""
    truth = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=bool)
    claim = SetClaim(
        name="classes",
        clients=np.array([0, 2]),
        scores=np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]),
        predicted=np.array([[1, 0, 0], [1, 1, 1]], dtype=bool),
    )
    found = scored(SetClaim.judged(claim, truth, NOBODY, 0))
    assert found.figures["set_auc"] == pytest.approx(0.75)
    # Others' sets hold 2, 1, 1 for client 0; 2, 1, 0 for client 2, whose own are 0 and 2.
    assert found.figures["set_prior_auc"] == pytest.approx((1.0 + 0.5) / 2)
    assert found.figures["set_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found.figures["set_recall"] == 1.0
    assert found.figures["set_exact_share"] == 0.5
    assert found.units == {"clients": 2, "pairs": 6, "positives": 3}
    assert found.null_control is not None
    assert found.null_control["metric"] == "set_auc"
    one = scored(SetClaim.judged(claim, truth, frozenset({2}), 0))
    assert one.figures["set_auc"] == 1.0
    everything = np.ones((3, 3), dtype=bool)
    with pytest.raises(InapplicableError):
        SetClaim.judged(claim, everything, NOBODY, 0)
    with pytest.raises(InapplicableError):
        SetClaim.judged(claim, truth, frozenset({0, 2}), 0)
