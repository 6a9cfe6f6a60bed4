"""Strange models, losses, batches and rules: one clear line each, before anything is tried."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import SplitReport, check_split_personalization, compare_split
from secure_fedrec.properties.split.aggregation import keep_local
from tests.properties.split_zoo import COHORTS, SIZES, Case, Factorisation, Shape, case


def found() -> Case:
    return case(Factorisation)(Shape())


def checked(**changes: Any) -> SplitReport:
    given = found()
    arguments: dict[str, Any] = {
        "model": given.model,
        "loss": given.loss,
        "private": given.private,
        "batches": given.batches(),
        "trials": 1,
    } | changes
    return check_split_personalization(arguments.pop("model"), arguments.pop("loss"), **arguments)


def uninitialised() -> nn.Module:
    model = found().model
    model.lazy = nn.LazyLinear(1)
    return model


def scripted() -> Any:
    return torch.jit.trace(nn.Linear(2, 1), torch.ones(1, 2))  # type: ignore[no-untyped-call]


def expanded() -> nn.Module:
    model = found().model
    assert isinstance(model, Factorisation)
    model.items.weight = nn.Parameter(torch.randn(1, 2).expand(5, 2))
    return model


def sparse() -> nn.Module:
    model = found().model
    model.register_buffer("graph", torch.eye(3).to_sparse())
    return model


def narrow() -> nn.Module:
    model = found().model
    model.register_buffer("scale", torch.ones(3).to(torch.float8_e4m3fn))
    return model


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (lambda: "model", "must be an nn.Module"),
        (scripted, "must be an nn.Module"),
        (uninitialised, "is not initialised: call the model once"),
        (lambda: Factorisation(Shape()).to("meta"), "has no values"),
        (expanded, "is expanded"),
        (sparse, "is sparse or quantized"),
        (narrow, "cannot add up"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore::DeprecationWarning")
def test_a_model_whose_values_cannot_be_put_back_is_refused(
    model: Callable[[], Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        checked(model=model())
    assert refused.value.key == "model"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("private", {"private": (3,)}),
        ("loss", {"loss": "mse"}),
        ("loss", {"loss": lambda model, _user, _batch: model.bias.sum() * 1j}),
        ("batches", {"batches": {"item": torch.zeros(2)}}),
        ("batches", {"batches": lambda _user, _draw: None}),
        ("aggregate", {"aggregate": "average"}),
        ("summaries", {"summaries": 3}),
        ("summaries", {"summaries": lambda _user, _draw: {"age": 3.0}}),
        ("seed", {"seed": 1.5}),
        ("seed", {"seed": -1}),
        ("trials", {"trials": 2.5}),
        ("scales", {"scales": (float("nan"),)}),
    ],
)
def test_what_does_not_fit_is_named(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(**changes)
    assert refused.value.key == key


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, given: Any) -> Any:
        return keep_local(given)


RULES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda _given: None,
    "one half": lambda given: keep_local(given)[0],
    "numbers": lambda given: (dict.fromkeys(given.federated, 0.0), given.local_private),
    "arrays": lambda given: (np.zeros(2), given.local_private),
    "a lock": Locked(),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_returns_something_else_is_named(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(aggregate=RULES[name])
    assert refused.value.key == "aggregate"
    given = found()
    with pytest.raises(ConfigError) as refused:
        compare_split(
            given.model,
            given.loss,
            private=given.private,
            data=given.data(SIZES, 1),
            cohorts=COHORTS,
            aggregate=RULES[name],
        )
    assert refused.value.key == "aggregate"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("data", {"data": [{"item": [1], "x": [1.0], "y": [1.0]}] * 3}),
        ("cohorts", {"cohorts": [1]}),
    ],
)
def test_data_and_cohorts_are_named(key: str, changes: dict[str, Any]) -> None:
    given = found()
    arguments = {"data": given.data(SIZES, 1), "cohorts": COHORTS} | changes
    with pytest.raises(ConfigError) as refused:
        compare_split(given.model, given.loss, private=given.private, **arguments)
    assert refused.value.key == key


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_gradients_are_there_whatever_the_caller_has_turned_off(without: Callable[[], Any]) -> None:
    given = found()
    with without():
        assert checked(model=given.model, loss=given.loss).holds
        assert not torch.is_grad_enabled()
