"""Private parameters at home or on the server: every round ends in the same bits.

Both runs are driven through random models, partitions, cohorts and optimisers. Then the ways in
which the theorem fails must fail here: another rule on either side, and every broken model.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import (
    SplitPersonalizationError,
    assert_split_equals_unsplit,
    compare_split,
)
from secure_fedrec.properties.split.aggregation import Aggregator, federated_averaging, keep_local
from secure_fedrec.properties.strategies.split import SplitRun, split_runs
from tests.properties.split_zoo import (
    ADAM,
    COHORTS,
    FAMILIES,
    SIZES,
    Case,
    Factorisation,
    Shape,
    case,
    compare,
    loss,
)
from tests.properties.split_zoo_broken import BROKEN

PROFILE = settings.get_profile("properties")


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Sizes and initial values of a small model."""
    return Shape(
        users=draw(st.integers(2, 4)),
        items=draw(st.integers(1, 4)),
        dim=draw(st.integers(1, 3)),
        hidden=draw(st.integers(1, 3)),
        dropout=draw(st.sampled_from((0.0, 0.3, 0.6))),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def experiments(
    draw: st.DrawFn, rule: Aggregator | None = None, *, alone: bool | None = None
) -> tuple[str, Shape, SplitRun]:
    """A family, its sizes, and a run."""
    shape = draw(shapes())
    rules = None if rule is None else st.just(rule)
    return (
        draw(st.sampled_from(sorted(FAMILIES))),
        shape,
        draw(split_runs(users=shape.users, rules=rules, alone=alone)),
    )


def assert_same_bits(experiment: tuple[str, Shape, SplitRun]) -> None:
    name, shape, run = experiment
    found = FAMILIES[name](shape)
    assert_split_equals_unsplit(
        found.model,
        found.loss,
        private=found.private,
        data=run.data(**found.columns),
        **run.arguments(),
    )


def shares_of(experiments: st.SearchStrategy[Any], examples: int) -> Counter[str]:
    """Compare so many runs, and count in how many the server averages anything."""
    found: Counter[str] = Counter()

    @given(experiment=experiments)
    @settings(PROFILE, max_examples=examples)
    def check(experiment: tuple[str, Shape, SplitRun]) -> None:
        assert_same_bits(experiment)
        most = max(experiment[-1].trained())
        found.update({"runs": 1, "two or more averaged": most > 1, "one at a time": most == 1})

    check()
    return found


def require_shares(rule: Aggregator | None, examples: int) -> None:
    """Nine of ten runs average somebody; those of one user at a time are a share of their own."""
    found = shares_of(experiments(rule, alone=False), examples)
    assert found["two or more averaged"] >= 0.9 * found["runs"], found
    corners = shares_of(experiments(rule, alone=True), examples // 12)
    assert corners["one at a time"] == corners["runs"] >= examples // 12, corners


def test_federated_averaging_at_home_equals_federated_averaging_of_everything() -> None:
    require_shares(federated_averaging, 80)


def test_keeping_local_values_at_home_equals_shipping_them() -> None:
    require_shares(keep_local, 60)


def test_any_weights_hold_the_same_bits() -> None:
    require_shares(None, 36)


RUNS: dict[str, Callable[[SplitRun], bool]] = {
    "a user without examples": lambda run: 0 in run.sizes,
    "a user with one": lambda run: 1 in run.sizes,
    "a round of nobody": lambda run: () in run.cohorts,
    "a round of one": lambda run: any(len(cohort) == 1 for cohort in run.cohorts),
    "a round of all": lambda run: (0, 1, 2) in run.cohorts,
    "somebody absent, then back": lambda run: (
        len(run.cohorts) == 3
        and bool(set(run.cohorts[0]).intersection(run.cohorts[2]).difference(run.cohorts[1]))
    ),
    "Adam, kept on the device": lambda run: (
        run.training.optimizer == "adam" and run.training.keep_state
    ),
    "momentum, fresh every round": lambda run: (
        run.training.optimizer == "momentum" and not run.training.keep_state
    ),
    "plain SGD": lambda run: run.training.optimizer == "sgd",
    "a proximal term": lambda run: run.training.proximal > 0,
    "two epochs in batches of one": lambda run: (
        run.training.epochs == 2 and run.training.batch_size == 1
    ),
    "FURL's rule": lambda run: run.aggregate is keep_local,
    "Federated Averaging": lambda run: run.aggregate is federated_averaging,
    "other weights": lambda run: run.aggregate not in (keep_local, federated_averaging),
}
REACH = settings(
    PROFILE,
    max_examples=3000,
    database=None,
    phases=[Phase.generate],  # reaching a corner is enough; nobody reads the smallest one
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("corner", RUNS)
def test_runs_reach(corner: str) -> None:
    find(split_runs(users=3), RUNS[corner], settings=REACH)


def test_runs_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="split_runs"):
        find(split_runs(users=3, max_rounds=0), lambda _: True, settings=REACH)


@pytest.mark.parametrize("rule", [federated_averaging, keep_local], ids=["z_i", "1"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_holds_the_same_bits_and_learns_something(name: str, rule: Aggregator) -> None:
    found = FAMILIES[name](Shape())
    outcome = compare(found, aggregate=rule)
    assert outcome.holds, outcome.first_difference
    assert (outcome.rounds, outcome.trainings) == (3, 6)
    assert outcome.largest_difference == 0.0


@pytest.mark.parametrize("name", FAMILIES)
def test_local_values_at_home_are_not_federated_averaging(name: str) -> None:
    """z_i = 1 against plain Federated Averaging: by far more than rounding."""
    found = FAMILIES[name](Shape())
    outcome = compare(found, aggregate=keep_local, shipped=federated_averaging)
    assert not outcome.holds
    assert outcome.rounds == 1
    assert (outcome.first_difference or "").startswith("round 1, user 0's private ")
    assert outcome.largest_difference > 1e-2


def test_with_one_participant_the_two_rules_still_differ_by_rounding() -> None:
    """z_i = 1 here, so only the bits of w + (u - w) part the rules."""
    found = case(Factorisation)(Shape(dim=8))
    with torch.no_grad():
        found.model.get_parameter("users.weight").mul_(0.01)  # short beside its changes
    outcome = compare(
        found, aggregate=keep_local, shipped=federated_averaging, cohorts=[(2,), (2,)]
    )
    assert not outcome.holds
    assert 0 < outcome.largest_difference < 1e-6


@pytest.mark.claim("split-equals-shipped")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_does_not_hold(name: str) -> None:
    found = BROKEN[name].build(Shape())
    outcome = compare(found)
    assert not outcome.holds
    round_ = BROKEN[name].round
    with pytest.raises(SplitPersonalizationError, match=f"cannot stay home: round {round_}, "):
        assert_split_equals_unsplit(
            found.model,
            found.loss,
            private=found.private,
            data=found.data(SIZES, seed=3),
            cohorts=COHORTS,
            training=ADAM,
            aggregate=found.aggregate,
        )


@pytest.mark.parametrize("name", BROKEN)
def test_random_runs_find_that_a_model_is_broken(name: str) -> None:
    """The search of the property, turned to broken models, finds a run that betrays them."""

    def differs(run: SplitRun) -> bool:
        found = BROKEN[name].build(Shape())
        arguments = run.arguments() | {"aggregate": found.aggregate}
        data = run.data(**found.columns)
        return compare_split(
            found.model, found.loss, private=found.private, data=data, **arguments
        ).refuted

    runs = split_runs(users=3, rules=st.just(federated_averaging))
    find(runs, differs, settings=settings(REACH, max_examples=50))


# --- what the theorem needs beside the constraints ---


def test_momentum_belongs_to_devices() -> None:
    """Kept moments matter (so the equality above is one of states, too), and stay apart."""
    found = case(Factorisation)(Shape())
    fresh = LocalTrainingConfig(optimizer="adam", learning_rate=0.05, epochs=2, batch_size=2)
    kept, forgotten = compare(found), compare(found, training=fresh)
    assert kept.holds
    assert forgotten.holds
    assert kept.messages != forgotten.messages


def test_dropout_draws_the_same_in_both_runs_and_not_the_same_in_every_round() -> None:
    found = FAMILIES["dropout"](Shape())
    one, two, other = (compare(found, seed=seed) for seed in (1, 1, 2))
    assert one.holds
    assert one.messages == two.messages
    assert one.messages != other.messages


def test_absent_users_stay_fixed() -> None:
    found = case(Factorisation)(Shape())
    never = found.model.get_parameter("users.weight")[1].detach().clone()
    seen: list[Tensor] = []
    note = seen.append  # what a loss remembers is put back, but what a bound method holds is not

    def watched(model: nn.Module, user: int, batch: Batch) -> Tensor:
        note(model.get_parameter("users.weight")[1].detach().clone())
        return loss(model, user, batch)

    outcome = compare(Case(**{**vars(found), "loss": watched}), cohorts=[(0, 2)] * 3)
    assert outcome.holds
    # A third of them are noise, on devices that do not have it; on the server, whose rounds are run
    # twice, it never moves.
    on_server = [value for value in seen if torch.equal(value, never)]
    assert len(on_server) == len(seen) // 3 * 2


def test_the_sign_of_a_zero_is_no_difference() -> None:
    """An absent user's -0.0 would become 0.0 where tables are averaged."""
    found = case(Factorisation)(Shape())
    with torch.no_grad():
        found.model.get_parameter("users.weight").fill_(-0.0)
    assert compare(found, cohorts=[(0, 2), (1,)]).holds


# --- input ---


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cohorts": []}, "no user takes part"),
        ({"cohorts": [(), ()]}, "no user takes part"),
        ({"cohorts": [(3,)]}, "must name users below 3 once each"),
        ({"cohorts": [(-1,)]}, "must name users below 3 once each"),
        ({"cohorts": [(0, 0)]}, "must name users below 3 once each"),
        ({"data": []}, "the model has 3 users"),
        ({"data": [{}, {}, {}]}, "user 0's columns need one length"),
        ({"data": [{"x": np.zeros(2), "y": np.zeros(3)}] * 3}, "user 0's columns"),
        ({"private": ("nobody",)}, "matches no parameter"),
    ],
)
def test_runs_that_do_not_fit_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compare(case(Factorisation)(Shape()), **changes)


def test_a_user_without_examples_never_takes_part() -> None:
    found = case(Factorisation)(Shape())
    outcome = compare(found, data=found.data((3, 0, 2), seed=3), cohorts=[(0, 1), (1,), (1, 2)])
    assert outcome.holds
    assert outcome.trainings == 2
    with pytest.raises(ConfigError, match="no user takes part"):
        compare(found, data=found.data((3, 0, 2), seed=3), cohorts=[(1,)])


def test_training_that_diverges_compares_nothing() -> None:
    found = case(Factorisation)(Shape())
    wild = LocalTrainingConfig(learning_rate=1e20, epochs=4)
    outcome = compare(found, training=wild)
    assert not outcome.holds
    assert not outcome.refuted
    assert "is not finite: the runs cannot be compared" in (outcome.gap or "")


def test_the_model_is_left_as_it_was() -> None:
    found = FAMILIES["own norms"](Shape())
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    compare(found)
    after = found.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
