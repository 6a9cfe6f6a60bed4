"""``compare_split`` blames what is split, not what the model does anyway."""

import inspect
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import (
    SplitPersonalizationError,
    assert_split_equals_unsplit,
    assert_split_personalization,
    check_split_personalization,
    compare_split,
)
from secure_fedrec.properties.split.aggregation import federated_averaging, keep_local
from tests.properties.split_zoo import (
    COHORTS,
    SIZES,
    Case,
    Factorisation,
    Shape,
    case,
    compare,
    loss,
)
from tests.properties.split_zoo_gradients import COMPLEX, Complex
from tests.properties.split_zoo_honest import HONEST
from tests.properties.split_zoo_rules import absentees_too
from tests.properties.split_zoo_state import STATE

PLAIN = LocalTrainingConfig(epochs=2, batch_size=2)


class WarmUp(Factorisation):
    """Losses grow with the number of calls."""

    calls = 0

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.calls += 1
        return super().forward(user, batch) * min(1.0, self.calls / 100)


class OwnGenerator(Factorisation):
    """Draws from a generator that nobody seeds again."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.generator = torch.Generator().manual_seed(1)

    def penalty(self, user: int) -> Tensor:
        return self.users.weight[user].sum() * torch.rand((), generator=self.generator)


class GlobalGenerator(Factorisation):
    """Draws from NumPy's."""

    def penalty(self, user: int) -> Tensor:
        return self.users.weight[user].sum() * float(np.random.rand())  # noqa: NPY002


class Once(Factorisation):
    """Its schedule is used up."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.rates: Iterator[int] = iter(range(30))

    def penalty(self, user: int) -> Tensor:
        return self.users.weight[user].sum() / (1 + next(self.rates))


NO_REFERENCE: dict[str, tuple[type[Factorisation], str]] = {
    "warm-up counter": (WarmUp, "counts its calls"),
    "generator of its own": (OwnGenerator, "draws outside torch's generator"),
    "generator of NumPy": (GlobalGenerator, "draws outside torch's generator"),
    "runs once": (Once, "cannot be run twice"),
}


@pytest.mark.parametrize("name", NO_REFERENCE)
def test_a_plain_run_that_is_another_one_each_time_is_no_violation(name: str) -> None:
    kind, said = NO_REFERENCE[name]
    found = case(kind)(Shape())
    outcome = compare(found)
    assert outcome.first_difference is None
    assert not outcome.refuted
    assert not outcome.holds
    assert outcome.gap is not None
    assert said in outcome.gap
    assert outcome.gap.endswith("the runs cannot be compared")
    with pytest.raises(SplitPersonalizationError, match=r"^the runs could not be compared: "):
        assert_split_equals_unsplit(
            case(kind)(Shape()).model,
            found.loss,
            private=found.private,
            data=found.data(SIZES, seed=3),
            cohorts=COHORTS,
            training=PLAIN,
        )


def test_what_is_used_up_by_the_third_run_is_no_violation() -> None:
    calls = count()

    class Quota(Factorisation):
        """Has so many calls, and no more."""

        limit = 10**9

        def penalty(self, user: int) -> Tensor:
            if next(calls) >= self.limit:
                raise RuntimeError("the quota is used up")
            return torch.zeros(())

    found = case(Quota)(Shape())
    assert compare(found).holds
    each = next(calls) // 3  # two plain runs and one at home
    Quota.limit = next(calls) + 2 * each + each // 2
    outcome = compare(found)
    assert not outcome.refuted
    assert outcome.gap is not None
    assert "cannot be run twice" in outcome.gap
    assert str(outcome).startswith("split equals unsplit: open (3 rounds")


def test_absent_users_values_that_a_rule_returns_are_no_violation() -> None:
    found = case(Factorisation)(Shape())
    for training in (PLAIN, None):
        outcome = compare(found, aggregate=absentees_too, training=training)
        assert outcome.holds, outcome.first_difference


def test_an_index_error_of_the_models_own_is_said_to_be_its_own() -> None:
    found = case(Factorisation)(Shape())
    data = found.data(SIZES, seed=3)
    data[2]["item"][0] = 99
    with pytest.raises(
        ConfigError, match=r"fails in round 1 of the plain run.*IndexError"
    ) as raised:
        compare(found, data=data)
    assert isinstance(raised.value.__cause__, IndexError)


def test_a_model_that_fails_at_home_only_needs_what_is_not_there() -> None:
    class Clusters(Factorisation):
        """Looks up everybody's cluster."""

        clusters: Tensor

        def __init__(self, shape: Shape) -> None:
            super().__init__(shape)
            self.register_buffer("clusters", torch.zeros(shape.users, dtype=torch.int64))

        def penalty(self, user: int) -> Tensor:
            return 0.1 * self.items.weight[self.clusters][user].sum()

    found = case(Clusters, "users.weight", "clusters")(Shape())
    outcome = compare(found)
    assert outcome.refuted
    assert "training at home fails: IndexError" in (outcome.first_difference or "")
    report = check_split_personalization(
        found.model, found.loss, private=found.private, batches=found.batches(), trials=3
    )
    assert {each.parameter for each in report.violations} == {"clusters"}
    assert "fails (IndexError" in report.violations[0].reaches


def test_both_checks_have_one_default_rule() -> None:
    functions: tuple[Callable[..., object], ...] = (
        compare_split,
        assert_split_equals_unsplit,
        check_split_personalization,
        assert_split_personalization,
    )
    for function in functions:
        assert inspect.signature(function).parameters["aggregate"].default is keep_local


@pytest.mark.parametrize("name", ["first-seen cache in a closure", "own memory"])
def test_a_checked_model_is_compared_as_an_unchecked_one(name: str) -> None:
    build, _ = (STATE | HONEST)[name]
    found = build(Shape())
    first = compare(found)
    check_split_personalization(
        found.model, found.loss, private=found.private, batches=found.batches(), trials=1
    )
    assert compare(found) == first
    assert first.holds == (name in HONEST)


def test_federated_complex_numbers_are_averaged() -> None:
    found = case(Complex, *COMPLEX)(Shape())
    spectrum = found.model.get_parameter("spectrum")
    seen: list[Tensor] = []
    # The walk that puts everything back does not reach a bound method of a list.
    note = seen.append

    def watched(model: nn.Module, user: int, batch: Batch) -> Tensor:
        note(model.get_parameter("spectrum").detach().clone())
        return loss(model, user, batch)

    watched_case = Case(**{**vars(found), "loss": watched})
    outcome = compare(watched_case, training=PLAIN, aggregate=federated_averaging)
    assert outcome.holds, outcome.first_difference or outcome.gap
    assert seen
    moved = seen[-1] - spectrum.detach()
    assert bool((moved.real != 0).all())
    assert bool((moved.imag != 0).all())
    with pytest.raises(ConfigError, match="complex moments cannot be kept"):
        compare(found)


@pytest.mark.parametrize("name", ["frozen normalisation", "handed over in eval()", "own memory"])
def test_honest_models_are_compared(name: str) -> None:
    build, _ = HONEST[name]
    outcome = compare(build(Shape()))
    assert outcome.holds, outcome.first_difference or outcome.gap


def test_a_reentrant_checkpoint_is_compared() -> None:
    outcome = compare(HONEST["reentrant checkpoint"][0](Shape()))
    assert outcome.holds, outcome.first_difference or outcome.gap
