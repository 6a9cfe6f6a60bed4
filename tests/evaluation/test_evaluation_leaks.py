"""A leaking protocol is found by measuring it, a sound one is left alone."""

import os
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.top_n import load_top_n
from secure_fedrec.evaluation.leaks import Leak, _as_few, measured_leak
from secure_fedrec.evaluation.oracles import drawn_items, expected_quality, rule_quality
from secure_fedrec.evaluation.protocols import RankingCase, ranking_case
from secure_fedrec.evaluation.ranking import client_quality
from secure_fedrec.streams import Streams

FOLDER = os.environ.get("SECURE_FEDREC_DATA")
with_data = pytest.mark.skipif(not FOLDER, reason="SECURE_FEDREC_DATA is not set")


def leak_of(case: RankingCase, *, rounds: int, seed: int = 0) -> Leak:
    stream = Streams.from_seed(seed).stream("negatives")
    return measured_leak(case, rounds=rounds, stream=stream, seed=0, per_positive=4)


def small_table() -> RatingTable:
    return generate(SyntheticConfig(clients=150, items=260, mean_ratings=15.0, seed=4))


def test_expectations_are_means_over_all_orders() -> None:
    """Three above, three tied with the item, cutoff 5: all orders of the four."""
    places = [3 + order.index(0) + 1 for order in permutations(range(4))]
    each = client_quality(np.array(places), cutoff=5)
    found = expected_quality(np.array([3, -1]), np.array([3, 0]), cutoff=5)
    for name, values in each.items():
        assert found[name][0] == pytest.approx(values.mean())
        assert np.isnan(found[name][1])
    surely = expected_quality(np.array([0, 4, 5, 9]), np.zeros(4, dtype=np.int64), cutoff=5)
    assert surely["hit_rate_at_5"].tolist() == [1, 1, 0, 0]
    assert (
        surely["ndcg_at_5"].tolist()
        == client_quality(np.array([1, 5, 6, 10]), cutoff=5)["ndcg_at_5"].tolist()
    )


def test_a_rule_is_ranked_among_the_negatives_alone() -> None:
    item, negatives = np.array([2, -1]), np.array([[0, 1, -1], [0, 1, 3]], dtype=np.int32)
    found = rule_quality(item, negatives, np.array([5.0, 1.0, 3.0, 9.0]), cutoff=2)
    assert found["ndcg_at_2"][0] == pytest.approx(1 / np.log2(3))
    assert np.isnan(found["ndcg_at_2"][1])
    own = np.array([[0, 0, 1, 0], [0, 0, 0, 0]])
    assert rule_quality(item, negatives, own, cutoff=2)["ndcg_at_2"][0] == 1.0


def test_what_is_kept_out_is_never_drawn_and_nothing_else_is_spared() -> None:
    for protocol in ("published", "clean"):
        case = ranking_case(small_table(), protocol=protocol, seed=1)
        stream = Streams.from_seed(0).stream("negatives")
        drawn = drawn_items(case, rounds=120, stream=stream, per_positive=4)
        trained = np.zeros_like(drawn)
        trained[case.train.clients, case.train.items] = True
        assert not (drawn & trained).any()
        rows = np.arange(case.n_clients)
        found = drawn[rows, case.test].mean(), drawn[rows, case.validation].mean()
        assert found == ((0, 0) if protocol == "published" else pytest.approx((1, 1), abs=0.05))
        drawn[rows, case.test] = drawn[rows, case.validation] = True
        assert (drawn | trained).mean() > 0.97


def test_draws_are_of_those_who_take_part() -> None:
    """Found by attacking: what a training of few a round draws was taken for everybody's."""
    case, stream = ranking_case(small_table(), protocol="published", seed=0), "negatives"
    cohorts = {1: np.array([3, 7]), 2: np.array([7, 9, 20]), 3: np.arange(case.n_clients)}
    everybody = [
        drawn_items(case, rounds=rounds, stream=Streams.from_seed(0).stream(stream), per_positive=4)
        for rounds in (1, 2)
    ]
    drawn = drawn_items(
        case,
        rounds=2,
        stream=Streams.from_seed(0).stream(stream),
        per_positive=4,
        present=cohorts.__getitem__,
    )
    assert np.array_equal(drawn[3], everybody[0][3])  # of round 1 alone
    assert np.array_equal(drawn[7], everybody[1][7])
    assert not drawn[[n for n in range(case.n_clients) if n not in (3, 7, 9, 20)]].any()
    whole = leak_of(case, rounds=20)
    few = measured_leak(
        case,
        rounds=20,
        stream=Streams.from_seed(0).stream(stream),
        seed=0,
        per_positive=4,
        present=lambda round_: np.array([round_, round_ + 1]),
    )
    assert whole.leaks
    assert few.means["never drawn"]["hit_rate_at_10"].value < 0.5


def test_a_leaking_protocol_is_warned_about_and_a_sound_one_is_not() -> None:
    published = leak_of(ranking_case(small_table(), protocol="published", seed=0), rounds=20)
    assert published.leaks
    assert published.means["never drawn"]["hit_rate_at_10"].low > 0.6
    assert published.warning is not None
    assert "'published' leaks: after 20 rounds" in published.warning
    clean = leak_of(ranking_case(small_table(), protocol="clean", seed=0), rounds=20)
    assert not clean.leaks
    assert clean.warning is None
    assert abs(clean.over_chance.value) < 0.05
    assert clean.means["random"]["hit_rate_at_10"].value == pytest.approx(0.1, abs=1e-3)


@pytest.mark.claim("never-touched")
def test_the_verdict_follows_the_measurement_and_not_the_name() -> None:
    """What is kept out is taken away from one protocol and given to the other."""
    cases = {
        name: ranking_case(small_table(), protocol=name, seed=0) for name in ("clean", "published")
    }
    kept = cases["published"].kept_out
    for name, leaks in (("clean", True), ("published", False)):
        case = cases[name]
        changed = RankingCase(
            protocol=name,
            train=case.train,
            validation=case.validation,
            test=case.test,
            validation_negatives=case.validation_negatives,
            test_negatives=case.test_negatives,
            kept_out=kept if leaks else Ragged.empty(case.n_clients),
        )
        assert leak_of(changed, rounds=20).leaks is leaks


@pytest.mark.claim("never-touched")
def test_a_sound_protocol_is_rarely_warned_about() -> None:
    """Twenty-five seeds; at 99.9 % one false warning in two thousand is expected."""
    table = generate(SyntheticConfig(clients=60, items=200, mean_ratings=10.0, seed=9))
    found = [leak_of(ranking_case(table, seed=s), rounds=5, seed=s) for s in range(25)]
    assert not any(each.leaks for each in found)
    mean = np.mean([each.over_chance.value for each in found])
    spread = np.std([each.over_chance.value for each in found], ddof=1) / 5
    assert abs(mean) < 4 * spread


@pytest.mark.parametrize(("clients", "items", "rounds"), [(60, 2000, 1), (20, 300, 1), (6, 200, 5)])
def test_a_sound_protocol_is_rarely_warned_about_where_little_is_drawn(
    clients: int, items: int, rounds: int
) -> None:
    """Found by attacking: a bootstrap warned about two in three of them."""
    table = generate(SyntheticConfig(clients=clients, items=items, mean_ratings=6.0, seed=9))
    found = [leak_of(ranking_case(table, seed=s), rounds=rounds, seed=s) for s in range(100)]
    assert sum(each.leaks for each in found) <= 1
    assert min(each.probability for each in found) < 0.5  # there is something to be wrong about


def test_the_probability_of_a_sound_protocol_is_one_of_counting() -> None:
    """Three clients, one negative each: of 2^3 equally likely cases four draw 0 or 1 test items."""
    table = generate(SyntheticConfig(clients=3, items=40, mean_ratings=6.0, seed=3))
    case = ranking_case(table, seed=0, negatives=1)
    drawn = np.zeros((3, 40), dtype=np.bool_)
    drawn[[0, 1], case.test_negatives[[0, 1], 0]] = True
    drawn[2, case.test[2]] = True
    assert _as_few(case, drawn) == pytest.approx(0.5)
    drawn[2, case.test[2]] = False
    assert _as_few(case, drawn) == pytest.approx(0.25)
    assert _as_few(case, ~drawn) == 1.0


def test_items_that_nobody_trains_on_tell_nothing_of_warm_test_items() -> None:
    """Found by attacking: more items than clients, and putting the cold ones first beats chance."""
    whole = generate(SyntheticConfig(clients=80, items=800, mean_ratings=12.0, seed=5))
    known, items = np.unique(whole.items, return_inverse=True)
    table = replace(
        whole,
        n_items=len(known),
        items=items.astype(np.int32),
        item_labels=whole.item_labels[known],
        timestamps=None,
    )
    gains = []
    for seed in range(10):
        case = ranking_case(table, seed=seed)
        cold = (case.train.item_popularity() == 0) * 1.0
        hits = rule_quality(case.test, case.test_negatives, cold)["hit_rate_at_10"]
        gains.append((hits.mean() - 0.1, hits[~case.cold].mean() - 0.1))
    everywhere, warm = np.mean(gains, axis=0)
    assert everywhere > 0.02
    assert warm <= 0


def test_before_the_first_round_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="first round"):
        leak_of(ranking_case(small_table(), seed=0), rounds=0)


@pytest.mark.data
@with_data
@pytest.mark.parametrize(
    ("name", "hits", "ndcg"), [("ml-100k", 1.0, 0.978), ("douban-book", 0.581, 0.407)]
)
def test_the_oracle_of_public_samplers_on_real_data(name: str, hits: float, ndcg: float) -> None:
    """100 rounds, as in the tables that report them; another seed moves the mean by its spread."""
    table = load_top_n(name, Path(str(FOLDER))).table
    found = leak_of(ranking_case(table, protocol="published", seed=0), rounds=100)
    assert found.means["never drawn"]["hit_rate_at_10"].value == pytest.approx(hits, abs=0.01)
    assert found.means["never drawn"]["ndcg_at_10"].value == pytest.approx(ndcg, abs=0.01)
    if name == "ml-100k":
        clean = leak_of(ranking_case(table, seed=0), rounds=100)
        assert not clean.leaks
        assert clean.means["never drawn"]["hit_rate_at_10"].value == pytest.approx(0.1, abs=0.02)
        assert clean.means["popularity"]["hit_rate_at_10"].value == pytest.approx(0.402, abs=0.02)


@pytest.mark.data
@with_data
def test_two_of_three_test_items_of_data_without_times_are_cold() -> None:
    """LastFM: what appears last in the file is mostly in nobody's training set."""
    table = load_top_n("lastfm-2k", Path(str(FOLDER))).table
    case = ranking_case(table, protocol="published", seed=0)
    assert case.cold.mean() == pytest.approx(0.636, abs=0.001)
    scores = case.train.item_popularity()
    popular = rule_quality(case.test, case.test_negatives, scores)["hit_rate_at_10"].mean()
    assert popular < 0.08  # below chance
