"""The smallest run of a violation says exactly what was run, and nothing in it can be left out."""

from collections import Counter

import pytest
from torch import Tensor

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties import check_split_personalization
from secure_fedrec.properties.split import Violation
from secure_fedrec.properties.split.locating import fewest
from secure_fedrec.properties.split.report import Smallest
from tests.properties.split_by_hand import shows_by_hand
from tests.properties.split_zoo import Factorisation, Personal, Shape, case, loss, own
from tests.properties.split_zoo_broken import BROKEN
from tests.properties.test_properties_split_zoo import check

SHAPE = Shape(users=4, items=8)


class Remembers(Factorisation):
    """Notes who trains, in which order, with what size."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.calls: list[tuple[int, float]] = []

    def factor(self, user: int) -> float:
        raise NotImplementedError

    def penalty(self, user: int) -> Tensor:
        out = own(self, user).sum() * self.factor(user)
        self.calls.append((user, float(own(self, user).detach().norm())))
        return out


class TwoOthers(Remembers):
    def factor(self, user: int) -> float:
        others = {each: size for each, size in self.calls if each != user}
        return sum(others.values()) if len(others) > 1 else 0.0


class OwnThenOther(Remembers):
    def factor(self, user: int) -> float:
        before = [each for each, _ in self.calls]
        return self.calls[-1][1] if user in before and before[-1] != user else 0.0


class OtherTwice(Remembers):
    def factor(self, user: int) -> float:
        counts = Counter(each for each, _ in self.calls if each != user)
        return float(any(count >= 4 for count in counts.values()))


class SecondCall(Remembers):
    def factor(self, user: int) -> float:
        first = len(self.calls) % 2 == 0
        return 0.0 if first else float(self.users.weight.detach().norm())


class ThirdCall(Remembers):
    def factor(self, user: int) -> float:
        calls = [each for each, _ in self.calls].count(user)
        return float(self.users.weight.detach().norm()) if calls == 2 else 0.0


def smallest_of(kind: type[Personal]) -> tuple[Smallest, Violation]:
    """Of the first violation, which shows itself by hand."""
    violation = check(case(kind)(SHAPE)).violations[0]
    assert violation.smallest is not None
    assert shows_by_hand(case(kind), SHAPE, violation)
    return violation.smallest, violation


def test_as_many_others_train_before_as_must() -> None:
    smallest, found = smallest_of(TwoOthers)
    assert len(smallest.trained_before) == 2
    assert found.owner in smallest.trained_before
    assert found.reader not in smallest.trained_before


def test_a_reader_that_must_have_trained_is_named() -> None:
    smallest, found = smallest_of(OwnThenOther)
    assert smallest.trained_before == (found.reader, found.owner)
    assert f"after users {found.reader}, {found.owner}" in str(found)
    again, found = smallest_of(ThirdCall)
    assert (again.trained_before, again.steps) == ((found.reader,), 2)


def test_a_user_that_must_train_twice_is_named_twice() -> None:
    smallest, found = smallest_of(OtherTwice)
    assert smallest.trained_before == (found.owner, found.owner)
    assert smallest.left_out
    assert (smallest.steps, smallest.trains) == (2, found.reader)
    assert f"after users {found.owner}, {found.owner} or after" in str(smallest)


def test_what_a_second_call_shows_takes_two_steps() -> None:
    smallest, _ = smallest_of(SecondCall)
    assert (smallest.trained_before, smallest.steps) == ((), 2)


class OneItem(Factorisation):
    """The table is read where one item is in the batch."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        read = self.users.weight.detach().norm() * (batch["item"] == 5).any()
        out: Tensor = super().forward(user, batch) + read
        return out


class Even(Factorisation):
    """Needs an even number of examples."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        pairs = super().forward(user, batch).view(2, -1) * self.users.weight.detach().norm()
        out: Tensor = pairs.view(-1)
        return out


def test_the_example_that_matters_is_left() -> None:
    smallest, found = smallest_of(OneItem)
    assert smallest.examples == 1
    assert smallest.places != (0,)
    assert f"one example (number {smallest.places[0]} of the batch, from 0)" in str(found)
    assert smallest_of(Even)[0].examples == 2


def test_nothing_is_left_that_could_be_left_out() -> None:
    assert fewest(range(16), lambda some: {3, 9, 10} <= set(some)) == [3, 9, 10]
    assert len(fewest(range(6), lambda some: len(some) >= 4)) == 4
    assert fewest(range(7), lambda _some: True) == []
    assert fewest(range(7), lambda _some: True, least=1) == [0]
    for size in (2, 4, 6, 8, 12, 16):
        assert fewest(range(size), lambda some: len(some) % 2 == 0, least=1) == [0, 1]


@pytest.mark.parametrize("name", ["running statistics", "prototype written"])
def test_a_write_has_a_smallest_run(name: str) -> None:
    report = check(BROKEN[name].build(Shape()))
    for found in report.violations:
        assert found.smallest is not None
        writer = found.owner if "writes into" in found.reaches else found.reader
        assert (found.smallest.trains, found.smallest.trained_before) == (writer, ())


def test_a_batch_may_hold_a_plain_number() -> None:
    draw = case(OneItem)(SHAPE).batches()
    report = check_split_personalization(
        case(SecondCall)(SHAPE).model,
        loss,
        private=("users.weight",),
        batches=lambda user, generator: {**draw(user, generator), "k": 3},  # type: ignore[dict-item]
        trials=1,
    )
    assert report.refuted
    assert report.violations[0].smallest is not None


def test_values_that_change_meanwhile_are_told() -> None:
    told = Smallest(
        trains=0,
        trained_before=(1, 2, 0),
        changes=("owner's", "federated"),
        changed_after=2,
        steps=1,
        places=(0, 1),
    )
    assert str(told) == (
        "one step with 2 examples, after users 1, 2, 0, where owner's and federated values change "
        "after users 1, 2"
    )
