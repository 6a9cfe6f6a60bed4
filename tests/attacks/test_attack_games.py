"""Scoring: figures against hand computation, the controls of every figure, and who is left out."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from attacks import AttackCard, Claims, Finding, GroundTruth, NotApplicable, evaluate
from attacks.scoring.links import Fits, LinkClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.vectors import VectorClaim
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary, BlockStore, Transcript, Truth, View

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CARD = AttackCard(game="g", adversary="a", needs="n", statistic="s", reference="r", limits="l")


@dataclass(frozen=True)
class Stub:
    """An attack with a fixed answer."""

    answer: Claims | NotApplicable
    name: str = "stub"
    card: AttackCard = CARD

    def run(self, view: View) -> Claims | NotApplicable:
        assert type(view) is View
        return self.answer


def ratings_of(
    rows: Mapping[int, Mapping[int, float]], n_clients: int, n_items: int
) -> RatingTable:
    triples = [(u, i, r) for u, rated in rows.items() for i, r in rated.items()]
    return RatingTable.from_columns(
        name="tiny",
        n_clients=n_clients,
        n_items=n_items,
        clients=np.array([u for u, _, _ in triples], dtype=np.int64),
        items=np.array([i for _, i, _ in triples], dtype=np.int64),
        ratings=np.array([r for _, _, r in triples], dtype=np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(n_clients, dtype=np.int64),
        item_labels=np.arange(n_items, dtype=np.int64),
    )


def transcript_of(train: RatingTable) -> Transcript:
    public = {
        "n_clients": train.n_clients,
        "n_items": train.n_items,
        "ring": {"bits": 64, "fraction_bits": 32, "clip": 4096.0},
        "algorithm": {"traits": {"rows": "items", "row_sets": "rated"}},
    }
    return Transcript(BlockStore(None), public)


def truth_of(
    train: RatingTable,
    recorded: Mapping[str, dict[str, Any]] | None = None,
    denoisers: tuple[int, ...] = (),
) -> GroundTruth:
    store = BlockStore(None)
    for name, columns in (recorded or {}).items():
        store.append(1, name, columns)
    return GroundTruth(train=train, recorded=Truth(store), denoiser_clients=denoisers)


def claim(
    scores: list[list[float]],
    *,
    visible: list[list[int]] | None = None,
    predicted: list[list[int]] | None = None,
    clients: list[int] | None = None,
) -> RatedSetClaim:
    shape = (len(scores), len(scores[0]))
    return RatedSetClaim(
        clients=np.array(range(shape[0]) if clients is None else clients, dtype=np.int64),
        scores=np.array(scores),
        visible=np.ones(shape, dtype=bool) if visible is None else np.array(visible, dtype=bool),
        predicted=None if predicted is None else np.array(predicted, dtype=bool),
    )


def judge(
    claims: Claims | NotApplicable,
    truth: GroundTruth,
    adversary: Adversary = SERVER,
    *,
    seed: int = 0,
) -> Finding:
    assert truth.train is not None
    return evaluate(Stub(claims), adversary, transcript_of(truth.train), truth, seed=seed)


TINY = ratings_of({0: {0: 5.0, 1: 3.0}, 1: {1: 4.0}, 2: {1: 2.0, 3: 1.0}}, 3, 4)
"""Client 0 rated items 0 and 1, client 1 item 1, client 2 items 1 and 3."""

SCORES = [[4.0, 1.0, 2.0, 0.0], [0.0, 3.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0]]


# --- the rated-set game by hand -------------------------------------------------------------------


def test_catalogue_figures_of_a_tiny_game() -> None:
    """AUCs 3/4, 5/6 and 1/2: item 1 of client 0 loses once, that of client 1 ties once."""
    finding = judge(Claims(rounds=(1, 2), made=(claim(SCORES),)), truth_of(TINY))
    assert finding.measured
    assert (finding.attack, finding.adversary, finding.game) == ("stub", "server", "g")
    assert finding.rounds == (1, 2)
    assert finding.units == {"clients": 3, "pairs": 12, "positives": 5}
    assert finding.figures["auc"] == pytest.approx((3 / 4 + 5 / 6 + 1 / 2) / 3)
    low, high = finding.figures["auc_low"], finding.figures["auc_high"]
    assert low is not None
    assert high is not None
    assert low <= (3 / 4 + 5 / 6 + 1 / 2) / 3 <= high
    # Best threshold: "score >= 1" holds for 3 of 5 rated pairs and 3 of 7 others; ">= 3" for 2
    # and 1; ">= 4" for 1 and 0.
    assert finding.figures["advantage"] == pytest.approx(2 / 5 - 1 / 7)
    # Seven negatives cannot support an operating point at 1 %.
    assert finding.figures["tpr_at_1pct_fpr"] is None
    assert finding.figures["tpr_at_01pct_fpr"] is None
    assert "precision" not in finding.figures


def test_the_prior_leaves_the_client_itself_out() -> None:
    """Raters per item are 1, 3, 0, 1. Less the client's own: client 0 sees 0, 2, 0, 1."""
    finding = judge(Claims(rounds=(1,), made=(claim(SCORES),)), truth_of(TINY))
    # client 0: positives 0 and 2 against 0 and 1 -> (0.5 + 0 + 1 + 1) / 4
    # client 1: positive 2 against 1, 0, 1 -> 1;  client 2: positives 2, 0 against 1, 0 -> 2.5 / 4
    prior = (2.5 / 4 + 1 + 2.5 / 4) / 3
    auc = (3 / 4 + 5 / 6 + 1 / 2) / 3
    assert finding.figures["prior_auc"] == pytest.approx(prior)
    assert finding.figures["lift_over_prior"] == pytest.approx(auc - prior)
    # The interval is that of the clients' differences 1/8, -1/6 and -1/8, not of the AUC alone.
    low, high = (finding.figures[f"lift_over_prior_{end}"] for end in ("low", "high"))
    assert low == pytest.approx(-1 / 6)
    assert high == pytest.approx(1 / 8)


def test_support_figures_use_visible_items_only() -> None:
    """Client 0 shows items 1 and 2 (AUC 0), client 1 items 1 and 3 (AUC 1), client 2 only rated
    ones (no AUC)."""
    visible = [[0, 1, 1, 0], [0, 1, 0, 1], [0, 1, 0, 1]]
    finding = judge(Claims(rounds=(1,), made=(claim(SCORES, visible=visible),)), truth_of(TINY))
    assert finding.figures["support_auc"] == pytest.approx(0.5)
    # Prior inside: client 0 has 2 against 0, client 1 has 2 against 1.
    assert finding.figures["support_prior_auc"] == pytest.approx(1.0)
    assert finding.figures["support_lift_over_prior"] == pytest.approx(-0.5)


def test_guessed_sets_are_scored_per_client() -> None:
    """Precision 1/2 and 1/1, recall 1/2 and 1; client 2's empty guess has recall 0 only."""
    predicted = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    finding = judge(Claims(rounds=(1,), made=(claim(SCORES, predicted=predicted),)), truth_of(TINY))
    assert finding.figures["precision"] == pytest.approx((1 / 2 + 1) / 2)
    assert finding.figures["recall"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert finding.figures["exact_set_share"] == pytest.approx(1 / 3)


def test_history_is_scored_at_every_stop() -> None:
    rated = replace(
        claim(SCORES), history={2: np.array([[2.0, 1, 2, 0], [0, 2, 0, 0], [0, 1, 0, 2]])}
    )
    told = judge(Claims(rounds=(1, 2), made=(rated,)), truth_of(TINY)).details["auc_by_rounds"]["2"]
    # Client 0: 2 and 1 against 2 and 0 -> 2.5 / 4; clients 1 and 2 are perfect.
    assert told["auc"] == pytest.approx((2.5 / 4 + 1 + 1) / 3)
    assert told["support_auc"] == pytest.approx((0.5 + 0) / 2)  # client 0 alone has both kinds
    # Always seen: items 0 and 2 of client 0, item 1 of client 1, item 3 of client 2.
    assert told["always_seen_precision"] == pytest.approx(3 / 4)
    assert told["exact_set_share"] == pytest.approx(1 / 3)


def unmasked_claim(visible: object, proven: BoolArray) -> UnmaskedClaim:
    return UnmaskedClaim(
        clients=np.arange(len(proven)), visible=np.array(visible, dtype=bool), proven=proven
    )


def test_unmasked_rows_by_hand() -> None:
    visible = [[1, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
    unmasked = np.array([[0, 0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 0]], dtype=bool)
    claims = Claims(
        rounds=(1,), made=(claim(SCORES, visible=visible), unmasked_claim(visible, unmasked))
    )
    figures = judge(claims, truth_of(TINY)).figures
    assert figures["unmasked_share"] == pytest.approx(3 / 5)  # virtual: 2 of 2, 1 of 2, 0 of 1
    assert figures["clients_mostly_unmasked_share"] == pytest.approx(1 / 3)
    assert figures["wrongly_unmasked_share"] == pytest.approx(1 / 5)


# --- ratings, vectors, links ----------------------------------------------------------------------


def test_ratings_are_scored_on_true_ratings_only() -> None:
    """Claims about unrated items are the rated-set game's business, not this figure's."""
    ratings = RatingClaim(
        clients=np.array([0, 0, 0, 1, 2]),
        items=np.array([0, 1, 2, 1, 3]),
        ratings=np.array([5.0, 4.0, 3.0, 4.0, 2.0]),
    )
    claims = Claims(rounds=(1,), made=(claim(SCORES), ratings))
    # The rating that is not named, client 2's of item 1, counts as the most frequent one: wrong.
    assert judge(claims, truth_of(TINY)).figures["rating_accuracy"] == pytest.approx(2 / 5)
    own = Adversary(name="two", corrupt=frozenset({"server", "client:2"}))
    figures = judge(claims, truth_of(TINY), own).figures
    assert figures["rating_accuracy"] == pytest.approx(2 / 3)
    nothing = replace(ratings, items=np.array([2, 3, 2, 3, 0]))
    unrated = judge(replace(claims, made=(claim(SCORES), nothing)), truth_of(TINY)).figures
    assert (unrated["coverage"], unrated["rating_lift"]) == (0.0, 0.0)
    assert unrated["rating_accuracy"] == unrated["rating_mode_accuracy"]


def test_vectors_are_scored_by_error_and_direction() -> None:
    actual = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
    claimed = np.array([[3.0, 4.0004], [2.0, 0.0], [0.0, -2.0]])
    vectors = VectorClaim(round=1, clients=np.arange(3), vectors=claimed)
    claims = Claims(rounds=(1,), made=(claim(SCORES), vectors))
    truth = truth_of(TINY, {"private-user_vectors": {"values": actual}})
    figures = judge(claims, truth).figures
    assert figures["user_vector_share"] == pytest.approx(1 / 3)  # the first is off by 1e-4 only
    assert figures["user_vector_cosine"] == pytest.approx(1.0)  # of about 1, 1 and -1
    own = Adversary(name="own", corrupt=frozenset({"server", "client:0"}))
    figures = judge(claims, truth, own).figures
    assert figures["user_vector_share"] == 0.0
    assert figures["user_vector_cosine"] == pytest.approx(0.0)
    unrecorded = judge(claims, truth_of(TINY)).figures
    assert unrecorded["user_vector_share"] is None
    assert unrecorded["user_vector_cosine"] is None


def fitting(*clients: Iterable[int]) -> Fits:
    """Which of seven clients fit each message."""
    messages, places = np.nonzero([np.isin(np.arange(7), list(some)) for some in clients])
    return Fits(messages, places, len(clients))


def test_links_are_scored_by_tag_and_without_the_adversary_himself() -> None:
    link = LinkClaim(
        round=1,
        tags=np.array([30, 10, 20], dtype=np.uint64),
        senders=np.arange(7),
        fits={"value": fitting([2], [0], []), "set": fitting([0], range(4), range(7))},
    )
    assert link.guesses["value"].tolist() == [2, 0, -1]
    assert link.guesses["set"].tolist() == [0, -1, -1]
    origins = {"tags": np.array([10, 20, 30], dtype=np.uint64), "clients": np.array([0, 1, 2])}
    claims = Claims(rounds=(1,), made=(claim(SCORES), link))
    figures = judge(claims, truth_of(TINY, {"noise-origins": origins})).figures
    assert figures["linked_by_value_share"] == pytest.approx(2 / 3)
    # A wrong client alone, one in four, one in seven.
    assert figures["linked_by_set_share"] == pytest.approx((0 + 1 / 4 + 1 / 7) / 3)
    assert figures["linked_share"] == pytest.approx(2 / 3)
    assert figures["linked_lift"] == pytest.approx(2 / 3 - 1 / 7)
    assert figures["candidates_by_value_median"] == 1.0
    assert figures["candidates_by_set_median"] == 4.0
    own = Adversary(name="own", corrupt=frozenset({"server", "client:0"}))
    figures = judge(claims, truth_of(TINY, {"noise-origins": origins}), own).figures
    assert figures["linked_by_value_share"] == pytest.approx(1 / 2)
    assert figures["candidates_by_set_median"] == 4.0  # of 1 and 7
    assert judge(claims, truth_of(TINY)).figures["linked_share"] is None


# --- who is left out ------------------------------------------------------------------------------


def test_nobody_attacks_himself() -> None:
    """With client 0 on the adversary's side only the other two are scored, in every figure."""
    predicted = [[1, 1, 1, 1], [0, 1, 0, 0], [0, 1, 0, 1]]
    rated = replace(claim(SCORES, predicted=predicted), history={1: np.array(SCORES)})
    unmasked = np.ones((3, 4), dtype=bool)
    claims = Claims(rounds=(1,), made=(rated, unmasked_claim(unmasked, unmasked)))
    own = Adversary(name="own", corrupt=frozenset({"server", "client:0"}))
    finding = judge(claims, truth_of(TINY), own)
    assert finding.units == {"clients": 2, "pairs": 8, "positives": 3}
    assert finding.figures["auc"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert finding.figures["precision"] == 1.0
    assert finding.figures["exact_set_share"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 1.0
    assert finding.details["auc_by_rounds"]["1"]["auc"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    everybody = Adversary(name="all", corrupt=frozenset(f"client:{u}" for u in range(3)))
    finding = judge(claims, truth_of(TINY), everybody)
    assert not finding.measured
    assert finding.reason == "every client the claims are about is the adversary's own"


# --- what cannot be scored ------------------------------------------------------------------------


def test_a_reason_is_passed_on() -> None:
    finding = judge(NotApplicable(reason="no light"), truth_of(TINY))
    assert finding.reason == "no light"
    assert not finding.measured
    assert finding.figures == {}
    assert finding.null_control is None


@pytest.mark.parametrize(
    "rows",
    [
        {0: {0: 1.0, 1: 2.0}, 1: {0: 3.0, 1: 4.0}},
        {0: {0: 1.0, 1: 2.0}},  # one client rated everything, the other nothing
    ],
    ids=["all-rated", "all-or-nothing"],
)
def test_a_truth_without_contrast_is_a_reason(rows: dict[int, dict[int, float]]) -> None:
    train = ratings_of(rows, 2, 2)
    finding = judge(Claims(rounds=(1,), made=(claim([[1.0, 0.0], [0.0, 1.0]]),)), truth_of(train))
    assert finding.reason == "there is nothing to tell apart in the truth"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_score_is_refused(bad: float) -> None:
    scores = [row.copy() for row in SCORES]
    scores[1][2] = bad
    with pytest.raises(ValueError, match="scores must be finite, but pair 6"):
        judge(Claims(rounds=(1,), made=(claim(scores),)), truth_of(TINY))
