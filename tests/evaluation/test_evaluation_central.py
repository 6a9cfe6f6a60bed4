"""Centralised rivals: they learn what there is to learn, and a seed says all."""

import numpy as np
import pytest
import torch

from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation.protocols import RankingCase, ranking_case
from secure_fedrec.evaluation.ranks import client_ranks
from secure_fedrec.studies.central import MODELS, CentralConfig, LightGCN, epochs

N, M = 40, 60


def two_tastes() -> RankingCase:
    """Clients of even number rate even items, others odd ones: 12 of 30."""
    rng = np.random.default_rng(3)
    chosen = [np.sort(2 * rng.choice(M // 2, 12, replace=False) + user % 2) for user in range(N)]
    table = RatingTable(
        name="two tastes",
        clients=np.repeat(np.arange(N, dtype=np.int32), 12),
        items=np.concatenate(chosen).astype(np.int32),
        ratings=np.ones(12 * N),
        n_clients=N,
        n_items=M,
        scale=RatingScale(1, 2, 1),
        client_labels=np.arange(N),
        item_labels=np.arange(M),
    )
    return ranking_case(table, seed=1, negatives=20)


@pytest.mark.parametrize("model", MODELS)
def test_it_tells_two_tastes_apart(model: str) -> None:
    case = two_tastes()
    config = CentralConfig(
        model=model, rank=8, layers=2, epochs=25, batch_size=256, learning_rate=0.02
    )
    *_, scores = epochs(case, config)
    ranks = client_ranks(case, np.arange(N), scores)
    assert scores.shape == (N, M) and scores.dtype == np.float32
    # 18 of 48 unrated items are of one's taste, so 7.5 of 20 negatives: the middle of those is 4.8.
    assert ranks.test.mean() < 7
    first, again = (next(epochs(case, config)) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_the_graph_is_normalised_and_propagated_by_layers() -> None:
    model = LightGCN(torch.tensor([[0, 0, 1], [0, 1, 1]]), 2, 2, 3, 2)
    adjacency = np.zeros((4, 4))
    for user, item in ((0, 0), (0, 1), (1, 1)):
        adjacency[user, 2 + item] = adjacency[2 + item, user] = 1
    degrees = adjacency.sum(axis=1)
    graph = adjacency / np.sqrt(np.outer(degrees, degrees))
    vectors = model.vectors.detach().numpy().astype(np.float64)
    wanted = (vectors + graph @ vectors + graph @ graph @ vectors) / 3
    users, items = model.propagated()
    np.testing.assert_allclose(torch.cat([users, items]).detach(), wanted, atol=1e-6)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"central\.model"):
        CentralConfig(model="bpr")
