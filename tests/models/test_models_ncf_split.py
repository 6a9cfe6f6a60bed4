"""The split rating model: what it computes, what stays home, and which settings it refuses."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from secure_fedrec.errors import ConfigError
from secure_fedrec.models.ncf.split import ITEM_TABLE, PRIVATE, NCFSplit, ncf_loss
from secure_fedrec.models.settings import NCFSplitConfig
from secure_fedrec.models.split import ParameterSplit


def model(**kwargs: Any) -> NCFSplit:
    torch.manual_seed(0)
    users = kwargs.pop("users", 1)
    return NCFSplit(
        NCFSplitConfig(**{"items": 7, "dim": 3, "hidden": (5, 4), **kwargs}), users=users
    )


def test_the_forward_pass_by_hand() -> None:
    net = model(users=2, centre=3.0)
    items, users = torch.tensor([0, 6, 6]), torch.tensor([1, 0, 1])
    values = {name: value.detach() for name, value in net.named_parameters()}
    inputs = torch.cat(
        [values["user_embedding.weight"][users], values["item_embedding.weight"][items]], dim=1
    )
    for layer in (0, 1):
        weight, bias = values[f"hidden.{layer}.weight"], values[f"hidden.{layer}.bias"]
        inputs = torch.clamp(inputs @ weight.T + bias, min=0.0)
    expected = (inputs @ values["output.weight"].T + values["output.bias"])[:, 0] + 3.0
    torch.testing.assert_close(net(items, users), expected)


def test_a_device_has_one_user() -> None:
    net = model()
    items = torch.tensor([2, 3])
    torch.testing.assert_close(net(items), net(items, torch.zeros(2, dtype=torch.int64)))


def test_only_the_user_vector_stays_home() -> None:
    split = ParameterSplit.of(model(), private=PRIVATE)
    assert [(each.name, each.shape) for each in split.private] == [
        ("user_embedding.weight", (1, 3))
    ]
    names = [each.name for each in split.federated]
    assert names[0] == ITEM_TABLE
    assert names[1:] == [
        f"{layer}.{part}"
        for layer in ("hidden.0", "hidden.1", "output")
        for part in ("weight", "bias")
    ]


@pytest.mark.parametrize("deviation", [0.0, 0.5])
def test_initial_vectors(deviation: float) -> None:
    """At 0 only users start at zero: items that start alike would never be told apart."""
    net = model(items=3000, users=3000, deviation=deviation)
    users, items = (
        table.weight.detach().numpy() for table in (net.user_embedding, net.item_embedding)
    )
    np.testing.assert_allclose(users.std(), deviation, rtol=0.05)
    np.testing.assert_allclose(items.std(), deviation or 0.1, rtol=0.05)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_losses(loss: str) -> None:
    net = model(loss=loss)
    batch = {
        "items": torch.tensor([1, 4], dtype=torch.int32),
        "ratings": torch.tensor([1.0, 0.0], dtype=torch.float64),
    }
    outputs = net(batch["items"].long())
    wanted = torch.tensor([1.0, 0.0])
    expected = ((outputs - wanted) ** 2).mean()
    if loss == "logistic":
        expected = -(functional.logsigmoid(outputs[0]) + functional.logsigmoid(-outputs[1])) / 2
    torch.testing.assert_close(ncf_loss(net, batch), expected)
    at_a_server = {**batch, "users": torch.tensor([0, 0])}
    torch.testing.assert_close(ncf_loss(net, at_a_server), expected)
    with pytest.raises(TypeError, match="NCFSplit"):
        ncf_loss(torch.nn.Linear(2, 1), batch)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("items", 0),
        ("dim", 0),
        ("hidden", ()),
        ("hidden", (4, 0)),
        ("loss", "hinge"),
        ("centre", float("nan")),
        ("deviation", -0.1),
        ("deviation", float("inf")),
    ],
)
def test_settings_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        NCFSplitConfig(**{"items": 7, field: value})  # type: ignore[arg-type]
    assert caught.value.key == f"model.{field}"


def test_log_odds_have_no_centre() -> None:
    with pytest.raises(ConfigError, match="log-odds"):
        NCFSplitConfig(items=7, loss="logistic", centre=3.0)
