"""The networks that HPFL's user model is compared with."""

from typing import Any

import numpy as np
import pytest
import torch

from secure_fedrec.errors import ConfigError
from secure_fedrec.models.ncd import NCD, NCDConfig
from secure_fedrec.models.ncf.ncf_model import NCF, NCFConfig

ATTRIBUTES = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0]], dtype=bool)


@pytest.fixture(autouse=True)
def one_thread_and_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def test_more_proficiency_never_makes_an_answer_less_likely() -> None:
    network = NCD(NCDConfig(hidden=(8, 4)), n_users=2, attributes=ATTRIBUTES).eval()
    with torch.no_grad():
        for weight in network.layers.parameters():
            weight.copy_(torch.randn_like(weight))  # negative ones, too
        network.proficiency.weight[1] = network.proficiency.weight[0] + torch.rand(3)
    items = torch.arange(3)
    less, more = (network(torch.full((3,), user), items) for user in (0, 1))
    assert torch.all(more > less)


def test_only_the_concepts_of_a_question_count() -> None:
    network = NCD(NCDConfig(hidden=(8, 4)), n_users=2, attributes=ATTRIBUTES).eval()
    with torch.no_grad():
        network.proficiency.weight[1] = network.proficiency.weight[0]
        network.proficiency.weight[1, 2] += 3.0
    items = torch.tensor([0, 1])
    one, other = (network(torch.full((2,), user), items) for user in (0, 1))
    assert one[0] == other[0]  # question 0 is about concept 0 alone
    assert one[1] < other[1]


def test_ncd_learns_to_tell_students_apart() -> None:
    network = NCD(NCDConfig(hidden=(16,), dropout=0.0), n_users=4, attributes=ATTRIBUTES)
    users, items = torch.arange(4).repeat_interleave(3), torch.arange(3).repeat(4)
    right = (users % 2 == 0).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy(network(users, items), right)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss < 0.1
    able = network.characteristics()
    assert able.shape == (4, 3)
    assert np.all(able[::2].min(axis=0) > able[1::2].max(axis=0))


def test_ncf_stays_in_the_range_and_learns() -> None:
    network = NCF(NCFConfig(factors=4, hidden=(8,)), n_users=6, n_items=5, low=1.0, high=5.0)
    users, items = torch.arange(6).repeat_interleave(5), torch.arange(5).repeat(6)
    ratings = 1.0 + ((users + items) % 5).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(400):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(users, items), ratings)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.eval()
    found = network(users, items)
    assert torch.all((found > 1.0) & (found < 5.0))
    assert torch.nn.functional.mse_loss(found, ratings) < 0.3 * ratings.var()
    assert network.characteristics().shape == (6, 4)


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (NCDConfig, {"hidden": ()}, "ncd.hidden"),
        (NCDConfig, {"dropout": 1.0}, "ncd.dropout"),
        (NCFConfig, {"factors": 0}, "ncf.factors"),
        (NCFConfig, {"hidden": (0,)}, "ncf.hidden"),
        (NCFConfig, {"dropout": -0.1}, "ncf.dropout"),
    ],
)
def test_settings_out_of_range(kind: type, settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        kind(**settings)
