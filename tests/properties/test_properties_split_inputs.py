"""Names, settings, losses and rules that do not fit are refused."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split import FedProx, integers, normals, random_batches
from secure_fedrec.properties.split.aggregation import AggregationInput, Averaging, keep_local
from secure_fedrec.properties.split.model import Values
from tests.properties.split_checks import FOUND, SHAPE, check
from tests.properties.split_zoo import (
    Factorisation,
    OwnHeads,
    Personal,
    Shape,
    case,
    loss,
)
from tests.properties.split_zoo_broken import BROKEN
from tests.properties.split_zoo_honest import HONEST

# --- private names ---


@pytest.mark.parametrize(
    ("private", "problem"),
    [
        ((), "no parameter is private"),
        (("user.weight",), "matches no parameter and no buffer"),
        (("users.weight", "embedding.*"), "'embedding.*': matches no parameter"),
        (("*",), "do not agree on the number of users"),
        (("users.weight", "bias"), "do not agree on the number of users"),
        (("heads.{user}.{user}",), "names {user} more than once"),
    ],
)
def test_wrong_names_are_refused(private: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match="private") as raised:
        check(private=private)
    assert problem in str(raised.value)


def test_a_name_that_matches_nothing_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"choices: .*users\.weight"):
        check(private=("users",))


class Odd(Personal):
    """Private parts that cannot be counted, one way each."""

    def __init__(self, what: str) -> None:
        super().__init__(SHAPE)
        if what == "gap":
            self.heads = nn.ModuleDict({"0": nn.Linear(1, 1), "2": nn.Linear(1, 1)})
        if what == "unequal":
            self.heads = nn.ModuleDict({"0": nn.Linear(1, 1), "1": nn.Linear(2, 1)})
        if what == "one":
            self.heads = nn.ModuleDict({"0": nn.Linear(1, 1)})
        self.scalar = nn.Parameter(torch.zeros(()))
        self.register_buffer("seen", torch.zeros(SHAPE.users))


@pytest.mark.parametrize(
    ("what", "private", "problem"),
    [
        ("gap", "heads.{user}.*", r"numbered from 0, found \[0, 2\]"),
        ("unequal", "heads.{user}.*", "differs in shape or type"),
        ("one", "heads.{user}.*", "need at least 2 users"),
        ("scalar", "scalar", "has no row per user"),
        ("buffers", "seen", "name buffers only"),
    ],
)
def test_users_that_cannot_be_counted_are_refused(what: str, private: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check(Odd(what), private=(private,))


def test_a_model_without_federated_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="names every parameter, so none is federated"):
        check(nn.Embedding(3, 2), private=("weight",))


def test_one_pattern_may_stand_without_its_tuple() -> None:
    assert check(private="users.weight").holds


def test_heads_that_are_taken_for_a_table_do_not_pass() -> None:
    # Without {user} every head is a table whose rows would be users.
    found = case(OwnHeads)(Shape(dim=2))
    with pytest.raises(ConfigError, match=r"do not agree|at least 2"):
        check(found.model, private=("heads.*",))


def test_two_users_with_one_head_are_told_so() -> None:
    model = OwnHeads(SHAPE)
    model.heads[2] = model.heads[0]
    found = case(OwnHeads, "heads.{user}.*")(SHAPE)
    report = check(model, private=found.private, batches=found.batches(), trials=1)
    same = [each for each in report.violations if "have the same tensor" in each.reaches]
    assert {(each.parameter, each.users) for each in same} == {
        ("heads.{user}.weight", (0, 2)),
        ("heads.{user}.bias", (0, 2)),
    }


def test_a_private_tensor_under_another_name_is_told() -> None:
    report = check(HONEST["one table under two names"][0](SHAPE).model)
    assert report.holds
    assert report.advice[0].startswith("'z_users.weight' is a private tensor under another name")


def table_of_two(model: nn.Module, user: int, batch: Batch) -> torch.Tensor:
    """Rows 0 to 2 are vectors, 3 to 5 their scales, and the rest are items."""
    table = model.get_parameter("users.weight")
    mine, scale, items = table[user], table[3 + user], table[6 + batch["item"]]
    return nn.functional.mse_loss(items @ (mine * scale), batch["rating"])


def test_two_slices_of_one_table_are_two_tables() -> None:
    slices = ("users.weight[:3]", "users.weight[3:6]")
    found = case(Factorisation)(Shape(users=30))
    settings = {
        "private": slices,
        "batches": random_batches(4, item=integers(24), rating=normals()),
    }
    report = check(found.model, table_of_two, **settings)
    assert report.private == slices
    assert "users.weight[6:]" in report.federated
    assert not report.refuted
    leak = check(
        found.model,
        lambda model, user, batch: table_of_two(model, user + (user < 2), batch),
        **settings,
    )
    assert {each.parameter for each in leak.violations} == set(slices)
    with pytest.raises(ConfigError, match="overlaps another slice of the table"):
        check(found.model, table_of_two, private=(slices[0], "users.weight[2:5]"))


def test_a_table_that_is_not_of_users_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"of user 3 of \d+.*fails with IndexError.* count the users"
    ):
        check(private=("items.weight",))


def with_a_number(user: int, generator: torch.Generator) -> Batch:
    return {**FOUND.batches()(user, generator), "kind": {"k": 3}, "k": 3}  # type: ignore[dict-item]


def test_columns_may_be_numbers() -> None:
    assert check(batches=with_a_number).holds
    leak = check(BROKEN["matrix norm"].build(SHAPE).model, batches=with_a_number)
    assert leak.violations[0].smallest is not None
    assert leak.violations[0].smallest.examples == 1


# --- settings ---


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"trials": 0}, "trials"),
        ({"summaries": lambda _user, _generator: None}, "summaries"),
        ({"scales": ()}, "scales"),
        ({"scales": (0.5, 0.0)}, "scales"),
    ],
)
def test_checks_of_nothing_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} = "):
        check(**settings)


def test_a_number_of_trials_is_whole() -> None:
    with pytest.raises(ConfigError, match=r"trials = 2\.5: must be an integer of at least 1"):
        check(trials=2.5)


def test_batches_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="need an example and a column"):
        random_batches(0, item=integers(3))
    with pytest.raises(ConfigError, match="need an example and a column"):
        random_batches(3)
    with pytest.raises(ConfigError, match="integers = 0"):
        integers(0)


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf")])
def test_a_proximal_term_must_pull(strength: float) -> None:
    with pytest.raises(ConfigError, match="strength"):
        FedProx(loss, strength=strength, private=())


def returns(value: Any) -> Callable[[nn.Module, int, Batch], Any]:
    return lambda model, user, batch: value(model(user, batch))


@pytest.mark.parametrize(
    "value",
    [lambda out: out, lambda out: out.sum().item(), lambda out: out.sum().detach()],
    ids=["a vector", "a number", "no gradient"],
)
def test_a_loss_must_be_a_scalar_with_a_gradient(value: Any) -> None:
    with pytest.raises(ConfigError, match="must return a real scalar tensor"):
        check(own_loss=returns(value))


WRONG_RULES: dict[str, tuple[Callable[[AggregationInput], Any], str]] = {
    "a parameter is missing": (lambda given: ({}, given.local_private), r"must return .*federated"),
    "a participant is missing": (lambda given: (given.federated, {}), "no private update for"),
    "an unknown user": (
        lambda given: (given.federated, {**given.local_private, 99: {}}),
        "99: a private update for an unknown user",
    ),
    "another shape": (
        lambda given: (
            {name: value.sum() for name, value in given.federated.items()},
            given.local_private,
        ),
        "must return",
    ),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_rules_that_return_something_else_are_refused(name: str) -> None:
    rule, problem = WRONG_RULES[name]
    with pytest.raises(ConfigError, match=problem):
        check(aggregate=rule)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_that_have_no_mean_are_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="weights must be finite and not all 0"):
        check(aggregate=Averaging(weight=lambda _: weight))


def test_summaries_reach_the_rule() -> None:
    def rule(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        assert all(summary == {"examples": 3.0, "age": 2.0} for summary in given.summaries.values())
        return keep_local(given)

    assert check(aggregate=rule, summaries=lambda _user, _: {"examples": 3.0, "age": 2.0}).holds
