import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.errors import ConfigError


@pytest.fixture(scope="module")
def table() -> RatingTable:
    return generate(SyntheticConfig(clients=800, seed=0))


def test_same_seed_same_table() -> None:
    first, again, other = (generate(SyntheticConfig(seed=seed)) for seed in (3, 3, 4))
    assert first.fingerprint() == again.fingerprint()
    assert first.fingerprint() != other.fingerprint()


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 30),
    items=st.integers(6, 60),
    rank=st.integers(1, 5),
    sigma=st.floats(0.0, 3.0),
    noise=st.floats(0.0, 5.0),
    seed=st.integers(0, 2**64),
)
def test_every_client_has_five_ratings_and_an_unrated_item(
    clients: int, items: int, rank: int, sigma: float, noise: float, seed: int
) -> None:
    config = SyntheticConfig(
        clients=clients,
        items=items,
        rank=rank,
        mean_ratings=5.0,
        activity_sigma=sigma,
        noise=noise,
        seed=seed,
    )
    made = generate(config)
    assert (made.n_clients, made.n_items) == (clients, items)
    assert made.counts().min() >= 5
    assert made.counts().max() <= items - 1


def test_blocks_join_up() -> None:
    made = generate(SyntheticConfig(clients=1100, items=20, mean_ratings=6, seed=1))
    assert made.counts().min() >= 5


def test_activity_has_its_mean(table: RatingTable) -> None:
    assert table.counts().mean() == pytest.approx(30, rel=0.15)


def test_popularity_has_a_long_tail(table: RatingTable) -> None:
    popularity = np.sort(table.item_popularity())[::-1]
    assert popularity[:30].sum() > 0.35 * len(table)
    assert popularity[150:].sum() < 0.25 * len(table)
    flat = generate(SyntheticConfig(clients=800, popularity_exponent=0.0, seed=0))
    top = np.sort(flat.item_popularity())[::-1]
    assert top[:30].sum() < 0.3 * len(flat)


def test_item_numbers_do_not_tell_popularity(table: RatingTable) -> None:
    assert int(np.argmax(table.item_popularity())) != 0
    correlation = np.corrcoef(np.arange(table.n_items), table.item_popularity())[0, 1]
    assert abs(correlation) < 0.25


def test_every_level_occurs(table: RatingTable) -> None:
    assert set(table.ratings.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_demographics_have_known_categories(table: RatingTable) -> None:
    assert set(table.demographics) == {"gender", "age_band", "occupation"}
    assert set(table.demographics["gender"].tolist()) == {"F", "M"}
    assert len(set(table.demographics["age_band"].tolist())) == 7


@pytest.mark.parametrize("with_values", [False, True])
def test_gender_can_be_inferred(table: RatingTable, with_values: bool) -> None:
    features = np.zeros((table.n_clients, table.n_items))
    features[table.clients, table.items] = table.ratings - 3.5 if with_values else 1.0
    truth = table.demographics["gender"] == "F"
    model = LogisticRegression(C=0.1, max_iter=500).fit(features[:500], truth[:500])
    assert roc_auc_score(truth[500:], model.decision_function(features[500:])) > 0.65


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clients", 0),
        ("clients", 2.5),
        ("items", 5),
        ("rank", 0),
        ("mean_ratings", 4.0),
        ("mean_ratings", 300.0),
        ("mean_ratings", math.nan),
        ("popularity_exponent", -0.1),
        ("activity_sigma", math.inf),
        ("noise", -1.0),
        ("seed", -1),
        ("seed", 1.0),
    ],
)
def test_bad_settings(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        SyntheticConfig(**({"seed": 0} | {field: value}))
    assert caught.value.key == f"data.{field}"
