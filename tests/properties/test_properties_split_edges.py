"""What cannot be tested is reported, odd models are judged rightly, none is changed."""

import itertools
import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties.split.aggregation import AggregationInput, keep_local
from secure_fedrec.properties.split.model import SplitModel, Values
from tests.properties.split_checks import FOUND, SHAPE, check
from tests.properties.split_zoo import (
    Addition,
    Case,
    Factorisation,
    OwnHeads,
    OwnNorms,
    Shape,
    case,
    loss,
)
from tests.properties.split_zoo_honest import TiedAgain

# --- what cannot be tested does not pass ---


class Dead(Factorisation):
    """A private and a federated parameter that no loss reaches."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.tastes = nn.Parameter(torch.zeros(shape.users, 2))
        self.unused = nn.Parameter(torch.zeros(2))


def test_dead_parameters_are_reported() -> None:
    report = check(Dead(SHAPE), private=("users.weight", "tastes"))
    assert not report.holds
    assert not report.refuted
    assert [str(gap) for gap in report.gaps] == [
        "not tested: 'unused' is reached by no loss",
        "not tested: 'tastes' is not reached by the losses of its own users [0, 1, 2]",
    ]
    assert str(report).startswith("split personalization: open")


def test_a_user_whose_head_is_dead_is_named() -> None:
    class Forgets(OwnHeads):
        def forward(self, user: int, batch: Batch) -> Tensor:
            return super().forward(user if user else 1, batch)

    found = case(Forgets, "heads.{user}.*")(SHAPE)
    report = check(found.model, private=found.private)
    assert {violation.users for violation in report.violations} == {(1, 0)}
    assert {gap.subject for gap in report.gaps} == {"heads.{user}.weight", "heads.{user}.bias"}
    assert all("[0]" in gap.problem for gap in report.gaps)


def test_frozen_parameters_are_no_gap() -> None:
    model = Dead(SHAPE)
    model.tastes.requires_grad_(False)
    model.unused.requires_grad_(False)
    assert check(model, private=("users.weight", "tastes")).holds


def test_a_frozen_private_parameter_of_another_user_is_not_to_be_read() -> None:
    class Reads(Dead):
        def penalty(self, user: int) -> Tensor:
            return self.users.weight[user].sum() * self.tastes.sum()

    model = Reads(SHAPE)
    model.tastes.requires_grad_(False)
    model.unused.requires_grad_(False)
    report = check(model, private=("users.weight", "tastes"))
    assert {(found.constraint, found.parameter) for found in report.violations} == {(1, "tastes")}


def test_a_loss_that_is_not_finite_is_reported() -> None:
    def logarithm(model: nn.Module, user: int, batch: Batch) -> Tensor:
        return torch.log(model(user, batch)).mean()  # of negative numbers, too

    report = check(own_loss=logarithm)
    assert not report.holds
    assert not report.refuted
    assert any("is not finite" in gap.problem and gap.seed is not None for gap in report.gaps)


def test_a_gradient_of_nan_on_other_users_is_a_violation() -> None:
    class Masked(Factorisation):
        """The loss is a number, but a masked root still has the gradient 0 * NaN."""

        def penalty(self, user: int) -> Tensor:
            weight = self.users.weight
            mine = torch.arange(len(weight))[:, None] == user
            return torch.where(mine, weight, torch.sqrt(-(weight**2) - 1))[user].sum()

    report = check(Masked(SHAPE))
    assert {violation.constraint for violation in report.violations} == {1}
    assert all(np.isnan(violation.size) for violation in report.violations)


@pytest.mark.parametrize("source", ["numpy", "memory", "batches"])
def test_a_loss_that_differs_from_call_to_call_is_reported(source: str) -> None:
    calls: list[int] = []
    generator = np.random.default_rng(1)

    def restless(model: nn.Module, user: int, batch: Batch) -> Tensor:
        calls.append(user)
        factor = {"numpy": generator.random(), "memory": len(calls), "batches": 1.0}[source]
        return float(factor) * loss(model, user, batch)

    def batches(user: int, drawn: torch.Generator) -> Batch:
        batch = FOUND.batches()(user, drawn)
        return {**batch, "y": batch["y"] + generator.random()} if source == "batches" else batch

    report = check(own_loss=restless, batches=batches)
    assert not report.refuted
    assert {gap.subject for gap in report.gaps} == {"loss"}
    assert all("differs between two calls" in gap.problem for gap in report.gaps)


def test_a_vector_cached_from_the_last_user_is_a_violation() -> None:
    class Caches(Factorisation):
        last: Tensor | None = None

        def forward(self, user: int, batch: Batch) -> Tensor:
            before, self.last = self.last, self.users.weight[user].detach().clone()
            return super().forward(user, batch) + (0 if before is None else before.sum())

    report = check(Caches(SHAPE))
    assert not report.gaps
    assert {violation.parameter for violation in report.violations} == {"users.weight"}
    assert all("after that user has trained" in each.reaches for each in report.violations)


def test_a_rule_that_draws_is_reported() -> None:
    seeded = random.Random(1)

    def noisy(
        given: AggregationInput, draw: Callable[[], float] = random.random
    ) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        return {name: value + draw() for name, value in federated.items()}, private

    assert check(aggregate=lambda given: noisy(given, seeded.random)).holds  # put back every time
    report = check(aggregate=noisy)
    assert not report.refuted
    assert [gap.subject for gap in report.gaps] == ["aggregate"] * len(report.gaps) != []


def test_the_state_that_a_rule_keeps_elsewhere_is_put_back() -> None:
    speed: dict[str, Tensor] = {}

    def momentum(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        for name, value in federated.items():
            speed[name] = value + 0.5 * speed.get(name, torch.zeros_like(value))
        return dict(speed), private

    assert check(aggregate=momentum).holds
    assert not speed


def test_a_rule_whose_state_can_neither_be_copied_nor_put_back_is_reported() -> None:
    calls = itertools.count()  # C keeps the number

    def waning(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        late = next(calls)
        return {name: value / (1 + late) for name, value in federated.items()}, private

    report = check(aggregate=waning)
    assert not report.holds
    assert not report.refuted
    assert all("can neither be copied with it nor put back" in gap.problem for gap in report.gaps)


def test_a_user_whom_a_rule_does_not_return_keeps_its_values() -> None:
    def whim(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        """Returns user 0, present or not, if user 1 has a positive first value."""
        federated, private = keep_local(given)
        moved = {name: value + 1 for name, value in given.private[0].items()}
        lucky = float(given.private[1]["users.weight"][0]) > 0
        return federated, {**private, 0: moved} if lucky else {**private}

    report = check(aggregate=whim, trials=9)
    found = {(each.constraint, *each.users) for each in report.violations}
    assert found == {(3, 1, 0)}


# --- what is written past loss and gradients ---


class Beginning:
    """A loss that writes when training begins.

    Args:
        write: into the user table.
    """

    def __init__(self, write: Callable[[Tensor], object]) -> None:
        self._write = write

    def begin(self, model: nn.Module) -> None:
        with torch.no_grad():
            self._write(model.get_parameter("users.weight"))

    def __call__(self, model: nn.Module, user: int, batch: Batch) -> Tensor:
        return loss(model, user, batch)


def test_values_of_others_written_when_training_begins_are_found() -> None:
    report = check(own_loss=Beginning(lambda table: table[0].copy_(table.mean(0))))
    found = {(each.users, each.reaches) for each in report.violations}
    assert found == {
        ((1, 0), "that user's value of 'users.weight' before training moves with it"),
        ((0, 1), "that user's local training overwrites it"),
        ((0, 2), "that user's local training overwrites it"),
    }


class Writes(Factorisation):
    """Writes into a frozen federated parameter."""

    def __init__(self, value: Callable[["Writes", int], Tensor], start: float = 0.0) -> None:
        super().__init__(SHAPE)
        self.frozen = nn.Parameter(torch.full((SHAPE.dim,), start), requires_grad=False)
        self._value = value

    def forward(self, user: int, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.frozen.copy_(self._value(self, user))
        return super().forward(user, batch)


def test_what_a_user_writes_of_its_own_is_no_violation() -> None:
    assert check(Writes(lambda model, user: model.users.weight[user])).holds


def test_written_values_that_are_not_finite_are_reported() -> None:
    infinite = float("inf")
    report = check(Writes(lambda model, _: model.users.weight.mean(0) * infinite))
    assert not report.holds
    assert not report.refuted
    assert "what it writes, is not finite" in report.gaps[0].problem
    # A mask of infinities that was there before is none.
    assert check(Writes(lambda model, _: model.frozen, start=-infinite)).holds


# --- memory that is shared, buffers, sparse gradients ---


def test_two_parameters_in_one_memory_are_a_tie() -> None:
    model = Factorisation(Shape(items=3))
    model.items.weight = nn.Parameter(model.users.weight.data)
    assert model.items.weight is not model.users.weight
    found = case(Factorisation)(Shape(items=3))
    report = check(model, batches=found.batches())
    ties = [each for each in report.violations if "is the same memory" in each.reaches]
    assert {tie.users for tie in ties} == {(0, 1), (1, 0), (2, 0)}
    assert all(tie.parameter == "users.weight" for tie in ties)
    assert all("'items.weight'" in tie.reaches for tie in ties)


def test_a_buffer_that_is_only_read_is_no_violation() -> None:
    class Scaled(Factorisation):
        def __init__(self, shape: Shape) -> None:
            super().__init__(shape)
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, user: int, batch: Batch) -> Tensor:
            return self.get_buffer("scale") * super().forward(user, batch)

    assert check(Scaled(SHAPE)).holds


def test_a_buffer_that_is_replaced_is_seen_and_put_back() -> None:
    class Counts(Factorisation):
        seen: Tensor

        def __init__(self, shape: Shape) -> None:
            super().__init__(shape)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, user: int, batch: Batch) -> Tensor:
            self.seen = self.seen + 1
            return super().forward(user, batch)

    model = Counts(SHAPE)
    before = model.seen
    report = check(model)
    assert {violation.parameter for violation in report.violations} == {"seen"}
    assert model.seen is before
    assert float(before) == 0


def test_statistics_of_one_batch_are_nobodys_state() -> None:
    class Normalised(Addition):
        def personalise(self, user: int, hidden: Tensor) -> Tensor:
            normal = nn.functional.batch_norm(hidden, None, None, training=True)
            return normal + self.users.weight[user]

    assert check(Normalised(SHAPE)).holds


def test_sparse_gradients_are_read() -> None:
    class Sparse(Factorisation):
        def __init__(self, shape: Shape) -> None:
            super().__init__(shape)
            self.users = nn.Embedding(shape.users, shape.dim, sparse=True)

        def forward(self, user: int, batch: Batch) -> Tensor:
            own = self.users(torch.tensor([user, (user + 1) % 3]))
            out: Tensor = self.items(batch["item"]) @ (own[0] if self.sound else own.sum(0))
            return out

        sound = True

    class Leaks(Sparse):
        sound = False

    assert not check(Sparse(SHAPE)).refuted
    assert {found.users for found in check(Leaks(SHAPE)).violations} == {(1, 0), (2, 1), (0, 2)}


# --- nothing is left behind ---


def everything(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_generator_of_torch_are_left_as_they_were(training: bool) -> None:
    found: Case = case(OwnNorms, "users.*", "norms.{user}.*")(SHAPE)
    found.model.train(training)
    value = found.loss(found.model, 0, found.batches()(0, torch.Generator()))
    value.backward()  # type: ignore[no-untyped-call]
    gradients = {name: weight.grad for name, weight in found.model.named_parameters()}
    before, state = everything(found.model), torch.get_rng_state()
    check(found.model, private=found.private)
    after = everything(found.model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(state, torch.get_rng_state())
    assert found.model.training is training
    assert {name: weight.grad for name, weight in found.model.named_parameters()} == gradients


def test_a_failing_loss_leaves_the_model_as_it_was() -> None:
    def fails(model: nn.Module, user: int, batch: Batch) -> Tensor:
        raise RuntimeError("no loss today")

    model = Factorisation(SHAPE)
    before = everything(model)
    with pytest.raises(RuntimeError, match="no loss today"):
        check(model, fails)
    after = everything(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_state_has_every_tensor_once_and_private_ones_by_their_private_names() -> None:
    found = case(TiedAgain)(SHAPE)
    own = found.model._modules.pop("users")
    found.model.add_module("users", own)  # their other name comes first
    assert {*SplitModel(found.model, found.private).state()} == {
        "users.weight",
        "items.weight",
        "bias",
    }


def test_a_split_model_names_its_parts() -> None:
    found = case(OwnNorms, "users.*", "norms.{user}.*")(SHAPE)
    split = SplitModel(found.model, found.private)
    assert split.n_users == 3
    assert [slot.name for slot in split.slots] == [
        "users.weight",
        "norms.{user}.weight",
        "norms.{user}.bias",
        "norms.{user}.running_mean",
        "norms.{user}.running_var",
    ]
    assert [slot.name for slot in split.counters] == ["norms.{user}.num_batches_tracked"]
    assert split.shared_buffers == ()
    assert "users.weight" not in split.federated
    with torch.no_grad():
        found.model.get_parameter("norms.2.weight").fill_(7.0)
    assert split.private_values(2)["norms.{user}.weight"].tolist() == [7.0, 7.0]
