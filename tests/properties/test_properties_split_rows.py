"""Users' rows of a table that holds other rows, and users whose names are no numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import check_split_personalization
from secure_fedrec.properties.split.aggregation import federated_averaging, keep_local
from secure_fedrec.properties.split.model import SplitModel
from tests.properties.split_zoo import ADAM, Case, Factorisation, Shape, case, compare

USERS, ITEMS = 3, 5


class Joint(nn.Module):
    """One table of users and items."""

    def __init__(self, *, users_first: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(USERS + ITEMS, 2)
        self.bias = nn.Parameter(torch.zeros(ITEMS))
        self.first_user, self.first_item = (0, USERS) if users_first else (ITEMS, 0)

    def forward(self, user: int, item: Tensor) -> Tensor:
        own = self.table.weight[self.first_user + user]
        out: Tensor = self.table(self.first_item + item) @ own + self.bias[item]
        return out


def joint_loss(model: nn.Module, user: int, batch: Batch) -> Tensor:
    return nn.functional.mse_loss(model(user, batch["item"]), batch["y"])


def joint(rows: str, *, users_first: bool = True) -> Case:
    columns = case(Factorisation)(Shape()).columns
    model = Joint(users_first=users_first)
    return Case(model=model, loss=joint_loss, private=(f"table.weight{rows}",), columns=columns)


def check(found: Case) -> Any:
    return check_split_personalization(
        found.model, found.loss, private=found.private, batches=found.batches(), trials=3
    )


@pytest.mark.parametrize(("rows", "first"), [("[:3]", True), ("[0:3]", True), ("[5:]", False)])
def test_rows_of_a_table_are_split_from_the_others(rows: str, first: bool) -> None:
    found = joint(rows, users_first=first)
    before = found.model.get_parameter("table.weight").detach().clone()
    report = check(found)
    assert report.holds, report
    assert report.n_users == USERS
    assert len(report.federated) == 2
    for rule in (keep_local, federated_averaging):
        for training in (None, ADAM):
            outcome = compare(found, aggregate=rule, training=training)
            assert outcome.holds, outcome.first_difference or outcome.gap
    assert torch.equal(found.model.get_parameter("table.weight"), before)


def test_a_whole_table_of_users_and_items_is_refuted() -> None:
    report = check(joint(""))
    assert report.n_users == USERS + ITEMS
    assert report.refuted


def test_a_users_row_that_is_read_by_another_is_found_behind_an_offset() -> None:
    def reads(model: nn.Module, user: int, batch: Batch) -> Tensor:
        table = model.get_parameter("table.weight")
        return joint_loss(model, user, batch) + 0.1 * table.detach()[5] @ table[5 + user]

    found = joint("[5:]", users_first=False)
    report = check(Case(**{**vars(found), "loss": reads}))
    assert {violation.users for violation in report.violations} == {(0, 1), (0, 2)}
    assert {violation.parameter for violation in report.violations} == {"table.weight[5:]"}


def test_the_parts_of_a_table_are_named() -> None:
    split = SplitModel(Joint(users_first=True), ("table.weight[2:4]",))
    assert split.federated == ("bias", "table.weight[:2]", "table.weight[4:]")
    assert [slot.name for slot in split.slots] == ["table.weight[2:4]"]
    assert split.n_users == 2


@pytest.mark.parametrize("rows", ["[:9]", "[3:3]", "[4:2]"])
def test_rows_that_are_not_there_are_refused(rows: str) -> None:
    with pytest.raises(ConfigError, match="has rows 0 to 7"):
        check(joint(rows))


def test_a_table_that_is_not_there_has_no_rows() -> None:
    with pytest.raises(ConfigError, match=r"matches no parameter.*choices: .*table\.weight"):
        SplitModel(Joint(users_first=True), ("tables[:3]",))


def test_rows_have_no_learning_rate_of_their_own() -> None:
    training = LocalTrainingConfig(private_learning_rate=0.5)
    with pytest.raises(ConfigError, match="some rows of a table only"):
        compare(joint("[:3]"), training=training)


@pytest.mark.parametrize("names", [("alice", "bob"), ("7", "42")])
def test_ids_of_users_are_answered_with_a_way_out(names: tuple[str, ...]) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.Embedding(ITEMS, 2)
            self.heads = nn.ModuleDict({name: nn.Linear(2, 1) for name in names})

    with pytest.raises(ConfigError, match=r"numbered from 0.*ModuleList.*in the loss"):
        SplitModel(Named(), ("heads.{user}.*",))
