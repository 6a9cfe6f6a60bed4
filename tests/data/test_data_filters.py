"""Filters: what they leave, and that it is numbered anew."""

import numpy as np
import pytest

from secure_fedrec.data import RatingTable, SyntheticConfig, filtered, generate
from secure_fedrec.data.splits import leave_one_out
from secure_fedrec.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def table() -> RatingTable:
    return generate(SyntheticConfig(clients=80, items=120, mean_ratings=9.0, seed=4))


def test_both_limits_hold_at_once(table: RatingTable) -> None:
    once = filtered(table, min_ratings=6).table
    assert (filtered(once, min_raters=6).table.counts() < 6).any()  # one after the other is not it
    left = filtered(table, min_ratings=6, min_raters=6)
    assert left.table.counts().min() >= 6
    assert left.table.item_popularity().min() >= 6
    assert 0 < len(left.table) == int(left.rows.sum()) < len(table)


def test_labels_go_along(table: RatingTable) -> None:
    left = filtered(table, min_ratings=8, min_raters=5, sample_clients=10, seed=2)
    assert left.table.n_clients == 10
    assert left.table.client_labels.tolist() == np.flatnonzero(left.clients).tolist()
    whole = set(zip(table.clients, table.items, table.ratings, strict=True))
    labels = left.table.client_labels[left.table.clients], left.table.item_labels[left.table.items]
    assert set(zip(*labels, left.table.ratings, strict=True)) <= whole
    assert left.table.demographics["gender"].shape == (10,)


def test_a_sample_is_the_seeds(table: RatingTable) -> None:
    samples = [filtered(table, sample_clients=20, seed=seed).clients for seed in (1, 1, 2)]
    assert np.array_equal(samples[0], samples[1])
    assert not np.array_equal(samples[0], samples[2])
    assert filtered(table, sample_clients=20).table.n_items == table.n_items


def test_refusals(table: RatingTable) -> None:
    with pytest.raises(ConfigError, match=r"data\.sample_clients = 81: there are only 80"):
        filtered(table, sample_clients=81)
    with pytest.raises(DataError, match=r"data\.min_ratings = 500, data\.min_raters = 2"):
        filtered(table, min_ratings=500, min_raters=2)


def test_random_instead_of_the_latest(table: RatingTable) -> None:
    timed = RatingTable(
        **{name: getattr(table, name) for name in table.__dataclass_fields__}
        | {"timestamps": np.arange(len(table))}
    )
    latest, random = (
        leave_one_out(timed, choice=choice, seed=3) for choice in ("latest", "random")
    )
    untimed = leave_one_out(table, seed=3)
    assert random.test.items.tolist() == untimed.test.items.tolist()
    assert latest.test.items.tolist() != random.test.items.tolist()
    assert leave_one_out(timed, seed=3).test.items.tolist() == latest.test.items.tolist()
    with pytest.raises(ConfigError, match=r"data\.held_out"):
        leave_one_out(table, choice="latest", seed=3)
