"""Gains over public knowledge: combined scores, headroom, ties, abstentions, sure limits."""

import math

import numpy as np
import pytest

from attacks.scoring.gains import Estimate, Figures, Gain, Level, gain_figures, headroom
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.posterior import combined_scores
from attacks.scoring.ranking import CatalogueGame, PublicRanking, halved, public_ranking
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.rows import Rows
from attacks.scoring.sets import SetClaim
from attacks.scoring.statistics import precision_at_size
from attacks.scoring.truth import Scored
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from tests.attacks.made import scored_by, table_of_grids, table_of_marks

NOBODY: frozenset[int] = frozenset()
LEVEL = Level(seed=0)


def figure(figures: Figures, name: str) -> float:
    value = figures[name]
    assert value is not None
    return value


def rated_sets(clients: int, items: int, seed: int, *, mean: float = 0.2) -> BoolArray:
    """Skewed popularity, shuffled numbering, nobody without a rating."""
    rng = np.random.default_rng(seed)
    weights = rng.permutation(np.arange(1, items + 1.0) ** -1.0)
    labels: BoolArray = rng.random((clients, items)) < np.minimum(
        0.9, mean * items * weights / weights.sum()
    )
    labels[np.arange(clients), rng.integers(items, size=clients)] = True
    return labels


def claim(scores: FloatArray, visible: BoolArray | None = None) -> RatedSetClaim:
    return RatedSetClaim(
        clients=np.arange(len(scores)),
        scores=scores,
        visible=np.ones(scores.shape, dtype=bool) if visible is None else visible,
    )


def with_virtual_items(labels: BoolArray, seed: int) -> BoolArray:
    """As many unrated items as rated ones, drawn uniformly."""
    rng = np.random.default_rng(seed)
    support = labels.copy()
    for row, own in zip(support, labels, strict=True):
        free = np.flatnonzero(~own)
        row[rng.choice(free, min(len(free), int(own.sum())), replace=False)] = True
    return support


def judged(rated: RatedSetClaim, labels: BoolArray) -> Figures:
    scored = scored_by(rated, train=table_of_marks(labels))
    assert isinstance(scored, Scored)
    return scored.at(LEVEL)


# --- view and popularity together -----------------------------------------------------------------


@pytest.mark.claim("popularity-counts")
def test_a_support_that_is_seen_tells_the_rated_set_with_popularity() -> None:
    """A coin inside the support falls below popularity there, and both together tell most of it."""
    labels = rated_sets(200, 400, 1, mean=0.05)
    support = with_virtual_items(labels, 2)
    figures = judged(claim(support.astype(np.float64), support), labels)
    assert figure(figures, "support_lift_over_prior") < -0.1
    assert figure(figures, "alone_precision_at_k") == pytest.approx(0.5, abs=0.02)
    assert figure(figures, "precision_at_k") > 0.6
    assert figure(figures, "precision_gain_certain") > 0.15
    assert figure(figures, "headroom_lift_certain") > 0.5


@pytest.mark.claim("popularity-counts")
@pytest.mark.parametrize("blind", ["noise", "nothing", "popularity"])
def test_a_view_that_adds_nothing_gains_nothing(blind: str) -> None:
    labels = rated_sets(200, 100, 3)
    scores = {
        "noise": np.random.default_rng(4).standard_normal(labels.shape),
        "nothing": np.zeros(labels.shape),
        "popularity": labels.sum(axis=0) - labels.astype(np.float64),
    }[blind]
    figures = judged(claim(scores), labels)
    assert figure(figures, "precision_gain") == pytest.approx(0.0, abs=0.01)
    assert figure(figures, "headroom_lift") == pytest.approx(0.0, abs=0.02)
    assert figure(figures, "precision_gain_low") < 0.01


def test_everything_told_is_everything_gained() -> None:
    labels = rated_sets(200, 60, 5)
    figures = judged(claim(labels.astype(np.float64)), labels)
    assert figures["precision_at_k"] == figures["combined_auc"] == figures["headroom_lift"] == 1.0


@pytest.mark.claim("popularity-counts")
def test_no_clients_truth_is_in_its_own_ranking() -> None:
    """Another truth of a client changes the ranking of the other half only."""
    labels = rated_sets(20, 30, 6)
    rng = np.random.default_rng(7)
    scores = Rows.of_grid(rng.standard_normal(labels.shape) + labels)
    popularity = np.tile(np.arange(30.0), (2, 1))

    def combined(truth: BoolArray) -> FloatArray:
        sets = ItemSets.of_grid(truth)
        public = PublicRanking(popularity, popularity, halved(20, 0), sets)
        (table,) = combined_scores(CatalogueGame(scores, sets), public).parts()
        return table.scores.reshape(20, 30)

    before = combined(labels)
    half = set(np.random.default_rng(0).permutation(20)[:10].tolist())
    for client in range(20):
        changed = labels.copy()
        changed[client] = rng.permutation(changed[client])
        after = combined(changed)
        moved = set(np.flatnonzero((after != before).any(axis=1)).tolist())
        assert not moved & (half if client in half else set(range(20)) - half)


# --- what everybody could rank by -----------------------------------------------------------------


@pytest.mark.parametrize("extra", [0, 1])
def test_popularity_does_not_rank_backwards_where_counts_are_nearly_equal(extra: int) -> None:
    """Every item has 5 raters (or 5 and 6): less its own rating, a client's items have fewest."""
    labels = np.zeros((20, 20), dtype=bool)
    for client in range(20):
        labels[client, np.arange(client, client + 5) % 20] = True
    if extra:
        labels[np.arange(0, 20, 2), (np.arange(0, 20, 2) + 10) % 20] = True
    counts = labels.sum(axis=0)[None, :] - labels.astype(np.float64)
    assert counts[labels].mean() < counts[~labels].mean()
    figures = judged(claim(np.zeros(labels.shape)), labels)
    assert figure(figures, "prior_auc") == 0.5
    assert figure(figures, "lift_over_prior") == 0.0
    assert figure(figures, "prior_precision_at_k") == pytest.approx(labels.mean(), abs=1e-9)
    same = SetClaim.judged(
        SetClaim(name="set", clients=np.arange(20), scores=np.zeros(labels.shape)),
        labels,
        NOBODY,
        0,
    )
    assert isinstance(same, Scored)
    assert same.figures["set_prior_auc"] == 0.5


def test_what_is_said_of_all_clients_alike_is_no_news_of_one() -> None:
    labels = rated_sets(30, 50, 8)
    truly = np.tile(labels.mean(axis=0) ** 3, (30, 1))
    wrong = np.random.default_rng(9).permutation(50)[None, :] * np.ones((30, 1))
    game = CatalogueGame(Rows.of_grid(wrong), ItemSets.of_grid(labels))
    truly = 1000 * truly[0]  # the own rating that is taken off weighs next to nothing
    best = public_ranking(game, truly, 0).rows[0]
    assert np.array_equal(np.argsort(best[truly > 100]), np.argsort(truly[truly > 100]))


@pytest.mark.parametrize("clients", [20, 100])
@pytest.mark.parametrize("skewed", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("apart", ["one client", "rounding"])
def test_released_counts_gain_nothing_though_one_client_is_told_something_else(
    clients: int, skewed: bool, sign: float, apart: str
) -> None:
    """Counts of all less counts of all others are a client's own set: nobody's subtraction."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = rated_sets(clients, 60, seed) if skewed else rng.random((clients, 60)) < 0.15
        labels[:, 0] |= ~labels.any(axis=1)
        scores = sign * np.tile(labels.sum(axis=0).astype(np.float64), (clients, 1))
        if apart == "one client":
            scores[0] = 0.0
        else:
            scores += 1e-6 * rng.random(scores.shape)
        figures = judged(claim(scores), labels)
        assert figure(figures, "precision_gain") < 0.015
        assert figure(figures, "precision_gain_certain") < 0.0


def test_noise_about_clients_who_come_four_times_gains_nothing() -> None:
    """Copies of a client stay in the counts that leave it out, fewer of them in those of a half."""
    found = []
    for seed in range(25):
        labels = np.tile(rated_sets(15, 50, seed, mean=0.15), (4, 1))
        figures = judged(claim(np.random.default_rng(seed).standard_normal(labels.shape)), labels)
        found.append((figure(figures, "precision_gain"), figures["precision_gain_certain"]))
    assert np.mean([gain for gain, _ in found]) < 0.005
    assert all(limit is not None and limit < 0 for _, limit in found)


def test_scores_that_only_say_who_is_active_have_no_gain_in_tpr() -> None:
    rng = np.random.default_rng(10)
    active = np.clip(rng.pareto(1.2, 100) + 0.2, 0.2, 6.0)
    labels = rng.random((100, 60)) < np.minimum(0.95, 0.15 * active)[:, None]
    labels[:, 0] |= ~labels.any(axis=1)
    noise = rng.random(labels.shape) * labels.sum(axis=1, keepdims=True)
    figures = judged(claim(noise), labels)
    told = figure(figures, "tpr_at_1pct_fpr") - figure(figures, "prior_tpr_at_1pct_fpr")
    assert told > 0.05
    assert abs(figure(figures, "tpr_gain")) < 0.02
    assert figure(figures, "tpr_gain_certain") < 0.0


def test_the_only_client_left_has_its_upload_read() -> None:
    labels = rated_sets(30, 50, 11)
    alone = RatedSetClaim(
        clients=np.array([29]), scores=labels[29:].astype(np.float64), visible=labels[29:]
    )
    scored = scored_by(alone, None, frozenset(range(29)), train=table_of_marks(labels))
    assert isinstance(scored, Scored)
    figures = scored.at(LEVEL)
    assert figures["precision_at_k"] == figures["combined_auc"] == 1.0
    assert figure(figures, "precision_gain") > 0.2


# --- ties -----------------------------------------------------------------------------------------


def test_ties_at_the_cut_are_expected_hits_whatever_the_order_of_rows() -> None:
    labels = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=bool)
    level = precision_at_size(table_of_grids(np.zeros((3, 5)), labels))
    assert level[:2].tolist() == [2 / 5, 2 / 5]
    assert math.isnan(level[2])
    scores = np.array([[2.0, 1, 1, 0, 0], [2, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    # Client 0: one sure hit and half of the other; client 1: item 0, then one of 1, 2 and 3.
    assert precision_at_size(table_of_grids(scores, labels))[:2] == pytest.approx([3 / 4, 1 / 6])
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(5)
        again = precision_at_size(table_of_grids(scores[:, order], labels[:, order]))
        assert again[:2] == pytest.approx([3 / 4, 1 / 6])


# --- ratings --------------------------------------------------------------------------------------


def table(ratings: FloatArray, clients: int, items: int) -> RatingTable:
    grid = np.arange(clients * items)
    return RatingTable.from_columns(
        name="tiny",
        n_clients=clients,
        n_items=items,
        clients=grid // items,
        items=grid % items,
        ratings=ratings,
        scale=RatingScale(0.0, 5.0, 1.0),
        client_labels=np.arange(clients),
        item_labels=np.arange(items),
    )


def named(train: RatingTable, keep: BoolArray, said: FloatArray | None = None) -> Figures:
    claimed = RatingClaim(
        clients=train.clients[keep].astype(np.int64),
        items=train.items[keep].astype(np.int64),
        ratings=(train.ratings if said is None else said)[keep],
        about=np.arange(train.n_clients),
    )
    return scored_by(claimed, train=train).at(LEVEL)


@pytest.mark.claim("abstention-recovers-nothing")
def test_silence_about_equal_ratings_recovers_none_of_them() -> None:
    train = table(np.ones(600), 60, 10)
    for keep in (np.zeros(600, dtype=bool), np.ones(600, dtype=bool)):
        figures = named(train, keep)
        assert figures["rating_accuracy"] == figures["rating_mode_accuracy"] == 1.0
        assert figures["rating_lift"] == 0.0
        assert figures["rating_headroom_lift"] is None  # nothing is left to be told
        assert figures["coverage"] == keep.mean()


@pytest.mark.claim("abstention-recovers-nothing")
def test_an_abstention_is_the_modal_guess() -> None:
    rng = np.random.default_rng(10)
    train = table(rng.choice([1.0, 4.0, 4.0, 4.0, 4.0, 5.0], 1200), 120, 10)
    keep = rng.random(1200) < 0.3
    figures = named(train, keep)
    right = np.where(keep, True, train.ratings == 4.0)
    assert figure(figures, "rating_accuracy") == pytest.approx(right.mean())
    assert figure(figures, "rating_mode_accuracy") == pytest.approx((train.ratings == 4.0).mean())
    assert figure(figures, "coverage") == pytest.approx(keep.mean())
    assert figure(figures, "rating_headroom_lift") == pytest.approx(0.3, abs=0.05)


def test_the_constant_is_that_of_the_item_where_it_tells_more() -> None:
    train = table(np.tile([1.0, 5.0], 30), 30, 2)
    figures = named(train, np.zeros(60, dtype=bool))
    assert figures["rating_mode_accuracy"] == 1.0


# --- headroom and limits --------------------------------------------------------------------------


def test_a_complete_break_has_all_of_the_headroom_where_the_lift_has_none() -> None:
    prior = np.full(1000, 0.944) + np.random.default_rng(11).uniform(-0.05, 0.05, 1000)
    figures = gain_figures(
        {"plain": Gain(1.0 - prior), "share": headroom(1.0 - prior, 1.0 - prior)}, LEVEL
    )
    assert figure(figures, "plain") < 0.06
    assert figures["share"] == pytest.approx(1.0)
    assert figure(figures, "share_certain") > 0.9
    assert headroom(1.0 - prior[:500], 1.0 - prior[:500]) is None  # 28 units of room
    half = headroom((1.0 - prior) / 2, 1.0 - prior)
    assert half is not None
    assert half.values.mean() == pytest.approx(0.5)


def test_headroom_spreads_as_the_ratio_does() -> None:
    rng = np.random.default_rng(12)
    prior = rng.uniform(0.2, 0.9, 300)
    gained = prior + (1 - prior) * rng.uniform(0, 0.5, 300)
    gain = headroom(gained - prior, 1.0 - prior)
    assert gain is not None
    picks = rng.integers(300, size=(4000, 300))
    ratios = (gained - prior)[picks].sum(axis=1) / (1 - prior)[picks].sum(axis=1)
    assert gain.values.std() / math.sqrt(300) == pytest.approx(ratios.std(), rel=0.05)


@pytest.mark.parametrize("guesses", [True, False])
def test_limits_are_wider_for_more_rounds_and_more_findings(guesses: bool) -> None:
    rng = np.random.default_rng(13)
    values: FloatArray = rng.normal(0.3, 0.2, 80)
    if guesses:
        values = np.where(values > 0.3, 0.9, -0.1)
    gain = Gain(values, guesses=guesses)
    one, rounds, many = (
        gain_figures({"g": gain}, Level(seed=0, tried=tried, judged=all_))
        for tried, all_ in ((1, 1), (12, 1), (12, 24))
    )
    assert figure(rounds, "g_low") < figure(one, "g_low") < figure(one, "g_high")
    assert figure(one, "g_high") < figure(rounds, "g_high")
    assert figure(many, "g_certain") < figure(rounds, "g_certain") < figure(one, "g_certain")
    assert figure(one, "g_certain") < figure(one, "g_low")
    assert rounds["g_low"] == many["g_low"]  # gates judge one finding at a time


@pytest.mark.parametrize("units", [20, 60, 200])
def test_limits_of_nothing_are_rarely_above_nothing(units: int) -> None:
    """One comparison in 1,600 may: none of 400 skewed ones does, nor of 400 lucky hits."""
    level = Level(seed=0)
    rng = np.random.default_rng(14)
    skewed = [Gain(rng.beta(0.5, 4.5, units) - 0.1) for _ in range(400)]
    hits = [Gain(np.where(rng.random(units) < 0.05, 0.95, -0.05), guesses=True) for _ in range(400)]
    wins = [Gain(rng.choice([-1.0, 0.0, 1.0], units, p=(0.02, 0.96, 0.02))) for _ in range(400)]
    for gains in (skewed, hits, wins):
        certain = [gain.certain(level) for gain in gains]
        assert sum(low is not None and low > 0 for low in certain) <= 3


def test_equal_gains_are_not_certain_by_themselves() -> None:
    gain = Gain(np.full(25, 0.7))
    low = gain.certain(LEVEL)
    assert low is not None
    assert 0.0 < low < 0.55
    assert Gain(np.array([0.7])).certain(LEVEL) is None
    assert Gain(np.full(3, np.nan)).interval(LEVEL) is None
    assert Estimate(0.2, 0.05, 100).certain(LEVEL) == pytest.approx(0.2 - 3.227 * 0.05, abs=1e-3)


@pytest.mark.parametrize(("units", "low", "high"), [(20, 0.90, 0.945), (60, 0.93, 0.97)])
def test_intervals_cover_as_reports_say(units: int, low: float, high: float) -> None:
    """Means of skewed per-client shares with mean 0.2, 2,000 times, each with draws of its own."""
    rng = np.random.default_rng(15)
    covered = 0
    for seed in range(2000):
        interval = Gain(rng.beta(1.0, 4.0, units)).interval(Level(seed=seed % 8))
        assert interval is not None
        covered += interval.low <= 0.2 <= interval.high
    assert low <= covered / 2000 <= high
