"""Implicit feedback: positives as they are, negatives from all else, the held-out item too."""

import numpy as np
import pytest

from secure_fedrec.data import Split, SyntheticConfig, generate, leave_one_out
from secure_fedrec.data.interactions import Interactions, sample_interactions
from secure_fedrec.errors import ConfigError, DataError

TABLE = generate(SyntheticConfig(clients=30, items=50, mean_ratings=8.0, seed=3))
SPLIT = leave_one_out(TABLE, seed=3)


def rows(found: Interactions, client: int) -> dict[int, float]:
    own = slice(int(found.indptr[client]), int(found.indptr[client + 1]))
    return dict(zip(found.items[own].tolist(), found.ratings[own].tolist(), strict=True))


@pytest.mark.parametrize("negatives", [1, 4, 100])
def test_every_positive_has_its_negatives(negatives: int) -> None:
    found = sample_interactions(SPLIT, negatives=negatives, seed=3)
    for client in range(found.n_clients):
        examples, positive = rows(found, client), set(found.trained_on(client).tolist())
        assert {item for item, label in examples.items() if label == 1.0} == positive
        others = [item for item, label in examples.items() if label == 0.0]
        assert not positive & set(others)
        assert len(others) == min(negatives * len(positive), found.n_items - len(positive))
        assert list(examples) == sorted(examples)
    vault = found.vault()
    assert vault.n_clients == 30
    assert list(vault.examples(0)) == ["items", "ratings"]


def test_the_held_out_item_can_be_a_negative() -> None:
    drawn = [
        float(rows(sample_interactions(SPLIT, negatives=4, seed=seed), client).get(int(item), -1.0))
        for seed in range(6)
        for client, item in enumerate(sample_interactions(SPLIT, negatives=4, seed=seed).held_out)
        if item >= 0
    ]
    assert set(drawn) == {-1.0, 0.0}  # never a positive, sometimes a negative
    share = np.mean(np.array(drawn) == 0.0)
    assert 0.4 < share < 0.9  # about as often as any other item: 4 |I| of m - |I|


def test_draws_are_a_function_of_the_seed_and_the_client() -> None:
    one, same, other = (sample_interactions(SPLIT, negatives=2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.items, same.items)
    assert not np.array_equal(one.items, other.items)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"negatives": 0, "seed": 1}, "data.negatives = 0: must be at least 1"),
        ({"negatives": 1, "seed": -1}, "data.seed = -1: must be at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        sample_interactions(SPLIT, **settings)


def test_a_client_needs_something_to_train_on_and_at_most_one_held_out_item() -> None:
    idle = TABLE.subset(TABLE.clients != 4)
    with pytest.raises(DataError, match="client 4 has no training interaction"):
        sample_interactions(Split(idle, TABLE.subset(TABLE.clients < 0)), negatives=1, seed=1)
    with pytest.raises(DataError, match="more than one held-out item"):
        sample_interactions(Split(TABLE, TABLE), negatives=1, seed=1)
