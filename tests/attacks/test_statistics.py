"""The statistics of a score-based game, against brute force, scikit-learn and their own null."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score, roc_curve

import attacks.scoring.statistics as statistics
from attacks.scoring.statistics import (
    advantage,
    dealt_labels,
    per_client_auc,
    pooled_roc,
    tpr_at_fpr_interval,
)
from attacks.scoring.tables import ScoreTable
from secure_fedrec.core.bounded import Bounded
from secure_fedrec.evaluation import intervals
from secure_fedrec.evaluation.intervals import check_share
from tests.attacks.made import mean_auc_interval

Client = Sequence[tuple[float, bool]]

# Few distinct scores force ties; -0.0 and 0.0 must tie as well.
SCORES = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 3.0]) | st.floats(-5, 5)
CLIENTS = st.lists(st.lists(st.tuples(SCORES, st.booleans()), max_size=12), max_size=6)


def tpr_at_fpr(table: ScoreTable, fpr: float = 0.01) -> float:
    """By the definition: of the thresholds above a negative, the loosest within the target."""
    check_share("fpr", fpr)
    if table.labels.all() or not table.labels.any():
        raise ValueError("need both")
    positives, negatives = table.scores[table.labels], np.sort(table.scores[~table.labels])
    # With k false positives allowed, the loosest rule is "score > the (k + 1)th largest negative".
    cut = negatives[-1 - statistics._allowed(len(negatives), fpr)]
    return float(np.mean(positives > cut))


def table_of(clients: Sequence[Client]) -> ScoreTable:
    pairs = [pair for client in clients for pair in client]
    return ScoreTable(
        indptr=np.cumsum([0, *map(len, clients)], dtype=np.int64),
        scores=np.array([score for score, _ in pairs], dtype=np.float64),
        labels=np.array([label for _, label in pairs], dtype=np.bool_),
    )


def random_table(
    n_clients: int, n_items: int, *, lift: float = 0.0, seed: int = 0, share: float = 0.2
) -> ScoreTable:
    """Clients differ in their leak, in their score level and in their number of positives."""
    rng = np.random.default_rng(seed)
    labels = rng.random((n_clients, n_items)) < rng.uniform(0.5, 1.5, (n_clients, 1)) * share
    scores = rng.standard_normal((n_clients, n_items)) + rng.normal(0, 0.3, (n_clients, 1))
    scores += labels * lift * rng.uniform(0, 2, (n_clients, 1))
    indptr = np.arange(n_clients + 1, dtype=np.int64) * n_items
    return ScoreTable(indptr=indptr, scores=scores.ravel(), labels=labels.ravel())


def brute_rates(table: ScoreTable) -> list[tuple[float, float]]:
    """(FPR, TPR) of every rule "score >= t"."""
    hits, misses = table.scores[table.labels], table.scores[~table.labels]
    cuts = [math.inf, *np.unique(table.scores)]
    return [(float((misses >= t).mean()), float((hits >= t).mean())) for t in cuts]


def both_classes(table: ScoreTable) -> bool:
    return bool(table.labels.any()) and not bool(table.labels.all())


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_attack_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="pair 2 has"):
        table_of([[(0.0, True), (1.0, False)], [(bad, True)]])


@pytest.mark.parametrize(
    "indptr", [[], [0], [1, 3], [0, 2], [0, 4], [0, 2, 1, 3], [0, 4, 3], [[0, 3]]]
)
def test_an_indptr_that_does_not_fit_is_refused(indptr: list[int]) -> None:
    with pytest.raises(ValueError, match="indptr must"):
        ScoreTable(
            indptr=np.array(indptr, dtype=np.int64), scores=np.zeros(3), labels=np.ones(3, np.bool_)
        )


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("indptr", np.array([0, 3], dtype=np.int32), TypeError),
        ("scores", np.zeros(3, dtype=np.float32), TypeError),
        ("scores", [0.0, 0.0, 0.0], TypeError),
        ("scores", np.zeros((3, 1)), ValueError),
        ("labels", np.zeros(3, dtype=np.int64), TypeError),
        ("labels", np.zeros(2, dtype=np.bool_), ValueError),
    ],
)
def test_a_wrong_column_is_refused(column: str, value: object, error: type[Exception]) -> None:
    columns: dict[str, object] = {
        "indptr": np.array([0, 3], dtype=np.int64),
        "scores": np.zeros(3),
        "labels": np.zeros(3, dtype=np.bool_),
    }
    with pytest.raises(error, match=column):
        ScoreTable(**(columns | {column: value}))  # type: ignore[arg-type]


def test_an_empty_table_has_no_statistics() -> None:
    table = table_of([])
    assert (table.n_clients, table.n_pairs) == (0, 0)
    assert per_client_auc(table).shape == (0,)
    assert dealt_labels(table, np.random.default_rng(1)).n_pairs == 0
    assert tpr_at_fpr_interval(table, seed=1) is None
    for statistic in (pooled_roc, tpr_at_fpr, advantage):
        with pytest.raises(ValueError, match="need both"):
            statistic(table)
    with pytest.raises(ValueError, match="no client"):
        mean_auc_interval(table, seed=1)


# --- AUC ------------------------------------------------------------------------------------------


@given(CLIENTS)
@settings(deadline=None)
def test_auc_is_that_of_scikit_learn(clients: list[Client]) -> None:
    aucs = per_client_auc(table_of(clients))
    for auc, client in zip(aucs, clients, strict=True):
        labels = [label for _, label in client]
        if len(set(labels)) == 2:
            assert auc == pytest.approx(roc_auc_score(labels, [score for score, _ in client]))
        else:
            assert math.isnan(auc)


def test_a_constant_score_is_exactly_chance() -> None:
    table = table_of([[(2.0, True), (2.0, False), (2.0, False)]] * 4)
    assert (per_client_auc(table) == 0.5).all()
    assert tpr_at_fpr(table, 0.5) == advantage(table) == 0.0


def test_mean_auc_skips_undefined_clients() -> None:
    table = table_of([[(1.0, True), (0.0, False)], [(1.0, True)], [], [(0.0, True), (1.0, False)]])
    interval = mean_auc_interval(table, seed=3)
    assert (interval.value, interval.n_clients) == (0.5, 2)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_mean_auc_interval_agrees_with_the_normal_one_of_client_means() -> None:
    table = random_table(400, 40, lift=0.7)
    aucs = per_client_auc(table)
    aucs = aucs[~np.isnan(aucs)]
    half = 1.96 * aucs.std(ddof=1) / math.sqrt(len(aucs))
    interval = mean_auc_interval(table, seed=1)
    assert interval.low == pytest.approx(aucs.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(aucs.mean() + half, abs=0.1 * half)
    assert interval == mean_auc_interval(table, seed=1)
    assert interval != mean_auc_interval(table, seed=2)
    wider = mean_auc_interval(table, seed=1, confidence=0.99)
    assert wider.low < interval.low < interval.high < wider.high


@pytest.mark.parametrize("clients", [1, 2, 50])
def test_equal_clients_do_not_make_a_certainty(clients: int) -> None:
    interval = mean_auc_interval(table_of([[(1.0, True), (0.0, False)]] * clients), seed=1)
    assert (interval.value, interval.high) == (1.0, 1.0)
    # Clopper-Pearson for n - 1 of n - 1 in closed form.
    assert interval.low == pytest.approx(0.0 if clients == 1 else 0.025 ** (1 / (clients - 1)))


def test_equal_inexact_clients_are_widened_on_both_sides() -> None:
    client = [(1.0, True), (0.0, False), (0.0, False), (2.0, False)]  # AUC 2/3, not a binary float
    interval = mean_auc_interval(table_of([client] * 30), seed=1)
    assert interval.low < interval.value < interval.high < 1.0
    assert interval.high - interval.low == pytest.approx(1 - 0.025 ** (1 / 29))


def test_an_interval_holds_its_value_however_narrow() -> None:
    for seed in range(20):
        interval = mean_auc_interval(random_table(7, 30, seed=seed), seed=1, confidence=0.001)
        assert interval.low <= interval.value <= interval.high


def test_repeating_the_pairs_of_each_client_changes_no_interval() -> None:
    """More pairs per client are not more evidence: a bootstrap over pairs would narrow by half."""
    table = random_table(60, 50, lift=1.0)
    four = ScoreTable(
        indptr=4 * table.indptr, scores=table.scores.repeat(4), labels=table.labels.repeat(4)
    )
    assert mean_auc_interval(table, seed=5) == mean_auc_interval(four, seed=5)
    once, repeated = (tpr_at_fpr_interval(t, fpr=0.05, seed=5) for t in (table, four))
    assert once is not None
    assert repeated is not None
    assert (repeated.low, repeated.high) == pytest.approx((once.low, once.high), abs=0.005)


@pytest.mark.claim("intervals-cover")
def test_the_null_is_covered_at_the_stated_level() -> None:
    repeats, table = 300, random_table(80, 12, lift=1.5)
    missed = 0
    for seed in range(repeats):
        null = dealt_labels(table, np.random.default_rng(seed))
        interval = mean_auc_interval(null, seed=seed, draws=400)
        missed += not interval.low <= 0.5 <= interval.high
    low, high = binom.interval(0.999, repeats, 0.05)
    assert low <= missed <= high


# --- ROC, TPR at low FPR, advantage ---------------------------------------------------------------


@given(CLIENTS, st.sampled_from([0.01, 0.1, 1 / 3, 0.29, 0.5, 0.9]))
@settings(deadline=None)
def test_operating_points_are_those_of_brute_force(clients: list[Client], fpr: float) -> None:
    table = table_of(clients)
    if not both_classes(table):
        return
    rates = brute_rates(table)
    assert tpr_at_fpr(table, fpr) == max(tpr for f, tpr in rates if f <= fpr)
    assert advantage(table) == pytest.approx(max(tpr - f for f, tpr in rates), abs=1e-15)
    curve = pooled_roc(table)
    assert set(zip(curve.fpr, curve.tpr, strict=True)) == set(rates)


@pytest.mark.parametrize("negatives", [100, 1000, 4321])
def test_the_target_itself_is_allowed_whatever_the_rounding(negatives: int) -> None:
    scores = np.append(np.arange(negatives, dtype=np.float64), np.arange(negatives) + 0.5)
    table = ScoreTable(
        indptr=np.array([0, 2 * negatives], dtype=np.int64),
        scores=scores,
        labels=np.arange(2 * negatives) >= negatives,
    )
    for allowed in range(1, negatives, 7):  # "allowed" negatives and one positive more lie on top
        assert tpr_at_fpr(table, allowed / negatives) == (allowed + 1) / negatives
    fpr = 10 / negatives
    interval = tpr_at_fpr_interval(table, fpr=fpr, seed=1, draws=100)
    assert interval is not None
    assert interval.value == tpr_at_fpr(table, fpr) == 11 / negatives


def test_the_thinned_curve_lies_on_the_exact_one_and_resolves_the_corner() -> None:
    table = random_table(100, 500, lift=1.0)
    curve = pooled_roc(table)
    assert 256 < len(curve.fpr) <= 512
    assert (curve.fpr[0], curve.tpr[0], curve.thresholds[0]) == (0.0, 0.0, math.inf)
    assert (curve.fpr[-1], curve.tpr[-1]) == (1.0, 1.0)
    assert (np.diff(curve.thresholds) < 0).all()
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    hits, misses = table.scores[table.labels], table.scores[~table.labels]
    for fpr, tpr, cut in zip(curve.fpr, curve.tpr, curve.thresholds, strict=True):
        assert (fpr, tpr) == ((misses >= cut).mean(), (hits >= cut).mean())
    assert ((curve.fpr > 0) & (curve.fpr < 0.001)).sum() > 10
    fpr, tpr, _ = roc_curve(table.labels, table.scores)
    exact = np.trapezoid(tpr, fpr)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(exact, abs=1e-3)


def test_a_perfect_attack_reaches_the_corner() -> None:
    table = random_table(40, 100)
    scores = np.where(table.labels, 10.0, 0.0) + np.tanh(table.scores)
    table = ScoreTable(indptr=table.indptr, scores=scores, labels=table.labels)
    assert tpr_at_fpr(table, 0.001) == advantage(table) == 1.0
    assert ((pooled_roc(table).fpr == 0.0) & (pooled_roc(table).tpr == 1.0)).any()
    interval = tpr_at_fpr_interval(table, fpr=0.01, seed=1)
    assert interval is not None
    assert (interval.value, interval.high) == (1.0, 1.0)
    assert interval.low == pytest.approx(0.025 ** (1 / 39))


def test_a_rate_from_too_few_negatives_is_not_measurable() -> None:
    def table(negatives: int, positives: int) -> ScoreTable:
        count = negatives + positives
        scores, labels = np.arange(count, dtype=np.float64), np.arange(count) >= negatives
        indptr = np.array([0, count // 2, count], dtype=np.int64)
        return ScoreTable(indptr=indptr, scores=scores, labels=labels)

    assert tpr_at_fpr_interval(table(999, 50), fpr=0.01, seed=1) is None
    assert tpr_at_fpr_interval(table(1000, 50), fpr=0.01, seed=1) is not None
    assert tpr_at_fpr_interval(table(1000, 50), fpr=0.001, seed=1) is None
    assert tpr_at_fpr_interval(table(1000, 0), fpr=0.01, seed=1) is None


@pytest.mark.parametrize("fpr", [0.002, 0.01, 0.1])
def test_binned_draws_agree_with_exact_ones(fpr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(80, 250, lift=1.5)
    binned = tpr_at_fpr_interval(table, fpr=fpr, seed=7, draws=500)
    monkeypatch.setattr(statistics, "_MAX_POINTS", table.n_pairs)  # now every negative is a cut
    exact = tpr_at_fpr_interval(table, fpr=fpr, seed=7, draws=500)
    assert binned is not None
    assert exact is not None
    assert binned.value == exact.value == tpr_at_fpr(table, fpr)
    width = exact.high - exact.low
    assert 0 <= exact.low - binned.low < 0.03 * width
    assert 0 <= exact.high - binned.high < 0.03 * width


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    table, fpr = random_table(30, 60, lift=1.5), 0.05
    rng, rates = np.random.default_rng(11), []
    scores, labels = table.scores.reshape(30, 60), table.labels.reshape(30, 60)
    for _ in range(3000):
        rows = rng.integers(30, size=30)
        again = ScoreTable(
            indptr=table.indptr, scores=scores[rows].ravel(), labels=labels[rows].ravel()
        )
        rates.append(tpr_at_fpr(again, fpr))
    interval = tpr_at_fpr_interval(table, fpr=fpr, seed=1)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(
        np.quantile(rates, [0.025, 0.975]), abs=0.02
    )


def test_draws_without_positives_are_left_out() -> None:
    rng = np.random.default_rng(0)
    labels = np.zeros((20, 100), dtype=np.bool_)
    labels[0, :10] = True
    table = ScoreTable(
        indptr=np.arange(21, dtype=np.int64) * 100,
        scores=rng.standard_normal(2000) + 2.0 * labels.ravel(),
        labels=labels.ravel(),
    )
    interval = tpr_at_fpr_interval(table, seed=1)
    assert interval is not None
    assert interval.n_clients == 1
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan])
def test_arguments_out_of_range_are_refused(bad: float) -> None:
    table = random_table(20, 60)
    with pytest.raises(ValueError, match="fpr"):
        tpr_at_fpr(table, bad)
    with pytest.raises(ValueError, match="fpr"):
        tpr_at_fpr_interval(table, fpr=bad, seed=1)
    with pytest.raises(ValueError, match="confidence"):
        tpr_at_fpr_interval(table, seed=1, confidence=bad)
    with pytest.raises(ValueError, match="confidence"):
        mean_auc_interval(table, seed=1, confidence=bad)
    with pytest.raises(ValueError, match="draws"):
        mean_auc_interval(table, seed=1, draws=99)


# --- the null control -----------------------------------------------------------------------------


@given(CLIENTS, st.integers(0, 2**32))
@settings(deadline=None)
def test_permuting_keeps_scores_and_base_rates(clients: list[Client], seed: int) -> None:
    table = table_of(clients)
    before = table.labels.copy()
    null = dealt_labels(table, np.random.default_rng(seed))
    assert null.scores is table.scores
    assert np.array_equal(table.labels, before)
    for start, stop in zip(table.indptr[:-1], table.indptr[1:], strict=True):
        assert null.labels[start:stop].sum() == before[start:stop].sum()


def test_permutations_are_uniform_and_seeded() -> None:
    clients = [[(0.0, True), (0.0, False), (0.0, False), (0.0, False)]] * 4000
    table = table_of(clients)
    null = dealt_labels(table, np.random.default_rng(1))
    shares = null.labels.reshape(-1, 4).mean(axis=0)
    assert shares == pytest.approx(np.full(4, 0.25), abs=4 * math.sqrt(0.25 * 0.75 / 4000))
    assert np.array_equal(null.labels, dealt_labels(table, np.random.default_rng(1)).labels)
    assert not np.array_equal(null.labels, dealt_labels(table, np.random.default_rng(2)).labels)


def test_a_table_of_a_million_pairs_is_ordinary() -> None:
    table = random_table(600, 1700, lift=1.0)
    auc = mean_auc_interval(table, seed=1)
    assert 0.6 < auc.low < auc.value < auc.high < 0.9
    for fpr in (0.01, 0.001):
        rate = tpr_at_fpr_interval(table, fpr=fpr, seed=1)
        assert rate is not None
        assert rate.low < tpr_at_fpr(table, fpr) == rate.value < rate.high


def test_draws_that_are_kept_two_in_a_byte_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = np.concatenate([*intervals.resampled(1001, 200, 5)])
    monkeypatch.setattr(intervals, "_DRAWN", Bounded(2**20, lambda kept: kept.nbytes))
    monkeypatch.setattr(intervals, "_PACKED_FROM", 0)
    packed = np.concatenate([*intervals.resampled(1001, 200, 5)])
    np.testing.assert_array_equal(packed, plain)
    monkeypatch.setattr(intervals, "_HALF", 2)  # what no half byte holds
    monkeypatch.setattr(intervals, "_DRAWN", Bounded(2**20, lambda kept: kept.nbytes))
    np.testing.assert_array_equal(np.concatenate([*intervals.resampled(1001, 200, 5)]), plain)
