"""Ranking problems: every client's held-out item among all others, or among drawn ones."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import Split, SyntheticConfig, generate, leave_one_out
from secure_fedrec.engines import ranking_problem
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams

SPLIT = leave_one_out(
    generate(SyntheticConfig(clients=25, items=40, mean_ratings=9.0, seed=6)), seed=1
)
HELD = dict(zip(SPLIT.test.clients.tolist(), SPLIT.test.items.tolist(), strict=True))


class Oracle(PMF):
    """Scores by a table of its own."""

    def __init__(self, table: Any) -> None:
        super().__init__(PMFConfig.printed(rank=1))
        self.table, self.asked = table, []  # type: ignore[var-annotated]

    def predict(self, public: Any, vault: Any, clients: Any, items: Any) -> Any:
        self.asked.append((clients, items))
        return self.table[clients, items]


def figures(table: Any, **settings: Any) -> tuple[dict[str, float], Oracle]:
    algorithm = Oracle(table)
    problem = ranking_problem(algorithm, SPLIT, **settings)
    assert problem.evaluate is not None
    public = algorithm.initial_public(problem.n_rows, Streams.from_seed(1))
    return dict(problem.evaluate(public, problem.vault) or {}), algorithm


def by_hand(table: Any, candidates: Any, cutoff: int) -> dict[str, float]:
    hits, gains = [], []
    for client, item in HELD.items():
        others = [i for i in candidates[client] if i != item]
        rank = 1 + sum(table[client, other] >= table[client, item] for other in others)
        hits.append(rank <= cutoff)
        gains.append(1 / np.log2(rank + 1) if rank <= cutoff else 0.0)
    return {f"hit_rate_at_{cutoff}": np.mean(hits), f"ndcg_at_{cutoff}": np.mean(gains)}


@pytest.mark.parametrize("negatives", [None, 7, 1, 1000])
def test_figures_are_those_of_the_definition(negatives: int | None) -> None:
    table = np.random.default_rng(3).integers(0, 9, (25, 40)).astype(float)  # with ties
    found, oracle = figures(table, negatives=negatives, cutoff=3)
    asked = {int(clients[0]): items.tolist() for clients, items in oracle.asked}
    assert asked.keys() == HELD.keys()
    for client, items in asked.items():
        rated = set(SPLIT.train.items[SPLIT.train.clients == client].tolist())
        assert HELD[client] in items
        assert not rated & set(items)
        room = 40 - len(rated) - 1
        assert len(set(items)) == 1 + (room if negatives is None else min(negatives, room))
    expected = by_hand(table, asked, 3)
    assert found == pytest.approx(expected)
    again, _ = figures(table, negatives=negatives, cutoff=3)
    assert again == found


def test_a_model_that_tells_nothing_apart_finds_nothing() -> None:
    found, _ = figures(np.zeros((25, 40)))
    assert found == {"hit_rate_at_10": 0.0, "ndcg_at_10": 0.0}
    best = np.zeros((25, 40))
    best[list(HELD), list(HELD.values())] = 1.0
    assert figures(best)[0] == {"hit_rate_at_10": 1.0, "ndcg_at_10": 1.0}


def test_negatives_follow_the_seed() -> None:
    table = np.random.default_rng(4).normal(size=(25, 40))
    (_, one), (_, other) = (figures(table, negatives=5, seed=seed) for seed in (0, 1))
    pairs = zip(one.asked, other.asked, strict=True)
    assert any(not np.array_equal(a[1], b[1]) for a, b in pairs)


def test_a_split_of_several_held_out_ratings_is_refused() -> None:
    several = Split(train=SPLIT.test, test=SPLIT.train)
    with pytest.raises(ConfigError, match="one held-out rating per client"):
        ranking_problem(Oracle(None), several)
    with pytest.raises(ConfigError, match="at least 1"):
        ranking_problem(Oracle(None), SPLIT, negatives=0)


def test_a_trained_algorithm_is_ranked() -> None:
    algorithm = PMF(PMFConfig.printed(rank=3, rounds=1))
    problem = ranking_problem(algorithm, SPLIT, negatives=20)
    public = algorithm.initial_public(problem.n_rows, Streams.from_seed(1))
    algorithm.initialise(problem.vault, Streams.from_seed(1))
    assert problem.evaluate is not None
    found = problem.evaluate(public, problem.vault)
    assert found is not None
    assert 0 <= found["ndcg_at_10"] <= found["hit_rate_at_10"] <= 1
