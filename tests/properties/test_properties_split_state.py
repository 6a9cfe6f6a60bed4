"""Rules with state: every party keeps its own for the whole run, and the bits stay the same."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from secure_fedrec.properties import assert_split_equals_unsplit
from secure_fedrec.properties.split.aggregation import (
    AggregationInput,
    Aggregator,
    Averaging,
    keep_local,
)
from secure_fedrec.properties.split.device_messages import SERVER
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.strategies.split import SplitRun, split_runs
from tests.properties.split_zoo import STATEFUL, Factorisation, Shape, case, compare

PROFILE = settings.get_profile("properties")


class Forgetful:
    """A rule with state that loses it before every round."""

    def __init__(self, new: Callable[[], Aggregator]) -> None:
        self.new = new

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        return self.new()(given)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_rule_with_state_holds_the_same_bits_and_keeps_its_state(name: str) -> None:
    found = case(Factorisation)(Shape())
    everybody = [(0, 1, 2)] * 3
    kept = compare(found, aggregate=STATEFUL[name](), cohorts=everybody)
    forgotten = compare(found, aggregate=Forgetful(STATEFUL[name]), cohorts=everybody)
    assert kept.holds, kept.first_difference
    assert forgotten.holds, forgotten.first_difference
    # Round 2 is the first to use what round 1 taught, and round 3 the first to train on it.
    pairs = zip(kept.messages, forgotten.messages, strict=True)
    assert {one.round for one, other in pairs if one != other} == {3}


@pytest.mark.parametrize("name", STATEFUL)
def test_who_comes_back_has_kept_up(name: str) -> None:
    found = case(Factorisation)(Shape())
    outcome = compare(found, aggregate=STATEFUL[name](), cohorts=[(0, 1), (2,), (0, 2)])
    assert outcome.holds, outcome.first_difference


@given(name=st.sampled_from(sorted(STATEFUL)), run=split_runs(users=3))
@settings(PROFILE, max_examples=40)
def test_rules_with_state_hold_the_same_bits_whoever_is_absent(name: str, run: SplitRun) -> None:
    found = case(Factorisation)(Shape())
    arguments = run.arguments() | {"aggregate": STATEFUL[name]()}
    data = run.data(**found.columns)
    assert_split_equals_unsplit(
        found.model, found.loss, private=found.private, data=data, **arguments
    )


class Counted:
    """FURL's rule; a note of every copy that is called."""

    log: ClassVar[list["Counted"]] = []

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        self.log.append(self)
        return keep_local(given)


def test_every_party_has_one_copy_for_the_whole_run() -> None:
    Counted.log.clear()
    rule = Counted()
    assert compare(case(Factorisation)(Shape()), aggregate=rule, shipped=keep_local).holds
    assert rule not in Counted.log
    # The server in all three rounds; devices 0 and 2 in two; device 1 catches up with the first.
    assert sorted(Counter(map(id, Counted.log)).values()) == [2, 2, 3, 3]


def test_who_was_absent_hears_the_summaries_it_missed() -> None:
    found = case(Factorisation)(Shape())
    sent = compare(found, cohorts=[(0,), (0, 2), (1,)]).messages
    heard = [set(each.summaries) for each in sent if each.sender == SERVER and each.receiver == 1]
    assert heard == [set(), {0}, {0, 2}, {1}]  # w_f, then round for round
    assert {each.round for each in sent if each.receiver == 1} == {3}


def test_a_rule_that_writes_into_its_input_or_into_what_it_returned_disturbs_nobody() -> None:
    class InPlace:
        """Server momentum in one tensor per parameter, which is also the answer."""

        def __init__(self) -> None:
            self.model: dict[str, Tensor] = {}

        def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
            federated, private = keep_local(given)
            for name, value in federated.items():
                self.model.setdefault(name, torch.zeros_like(value)).mul_(0.5).add_(value)
            for values in (given.federated, *given.local_federated.values()):
                for value in values.values():
                    value.zero_()
            return self.model, private

    found = case(Factorisation)(Shape())
    outcome = compare(found, aggregate=InPlace())
    assert outcome.holds, outcome.first_difference


def test_a_rule_derived_from_averaging_takes_its_own_step() -> None:
    class Halved(Averaging):
        def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
            federated, private = keep_local(given)
            return {name: value / 2 for name, value in federated.items()}, private

    outcome = compare(case(Factorisation)(Shape()), aggregate=Halved())
    assert outcome.holds, outcome.first_difference
