"""A violation says in which line, in how small a run, and behind which parameter."""

import linecache
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import SplitReport
from secure_fedrec.properties.split import (
    AggregationInput,
    Violation,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.aggregation import Aggregator
from secure_fedrec.properties.split.reading import Recorder
from tests.properties.split_checks import check as check_model
from tests.properties.split_zoo import Factorisation, Shape, case, own
from tests.properties.split_zoo_broken import BROKEN
from tests.properties.split_zoo_state import STATE
from tests.properties.test_properties_split_zoo import check


def first(report: SplitReport) -> Violation:
    return report.violations[0]


class WholeTable(Factorisation):
    """Scores of all users are computed, and one is taken; elsewhere all rows are averaged."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        table = torch.cat([self.users.weight, self.items.weight])
        every = table @ self.items(batch["item"]).T
        mine = every[user]
        mean = table.detach()[: len(self.users.weight)].mean()
        out: Tensor = mine + mean * own(self, user).sum()
        return out


def test_a_line_that_computes_all_rows_and_takes_one_is_not_blamed() -> None:
    line = first(check(case(WholeTable)(Shape()))).line
    assert line is not None
    assert line.text.startswith("mean = table.detach()")


class Branches(Factorisation):
    """Another user's training turns a branch."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.seen: set[int] = set()

    def penalty(self, user: int) -> Tensor:
        self.seen.add(user)
        if len(self.seen) > 1:
            return own(self, user).sum()
        return torch.zeros(())


def test_a_branch_is_named_as_one() -> None:
    line = first(check(case(Branches)(Shape()))).line
    assert line is not None
    assert (line.text, line.operation) == ("if len(self.seen) > 1:", "branch")


class Fifth(Factorisation):
    """The mean of all rows is added in batches of five and more."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        mean = self.users.weight.detach().mean()
        return super().forward(user, batch) + mean * (len(batch["item"]) > 4)


def test_the_smallest_run_is_found() -> None:
    simple = first(check(BROKEN["matrix norm"].build(Shape()))).smallest
    assert simple is not None
    assert (simple.trained_before, simple.steps, simple.examples) == ((), 1, 1)
    wide = first(check(case(Fifth)(Shape()))).smallest
    assert wide is not None
    assert (wide.steps, wide.examples) == (1, 5)
    late = first(check(STATE["leak in the second step"][0](Shape()), trials=1)).smallest
    assert late is not None
    assert (late.steps, late.examples) == (2, 1)
    report = check(STATE["dict bank"][0](Shape()), trials=1)
    for violation in report.violations:
        assert violation.smallest is not None
        assert violation.smallest.trained_before == (violation.owner,)
    assert f"one step with one example, after user {first(report).owner}" in str(report)


class Queue(Factorisation):
    """Every user's vector is put in a queue that all losses read (MoCo)."""

    queue: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("queue", torch.zeros(4, shape.dim))

    def penalty(self, user: int) -> Tensor:
        mine = own(self, user)
        out: Tensor = (self.queue.clone() @ mine).sum()
        self.queue.copy_(torch.cat([mine.detach()[None], self.queue[:-1]]))
        return out


class Tastes(Factorisation):
    """Tastes are trained with vectors; they, their sign, items and the last bias are remembered."""

    mean: Tensor
    liked: Tensor
    seen: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.tastes = nn.Embedding(shape.users, shape.dim)
        self.own_bias = nn.Parameter(torch.zeros(shape.users))
        self.register_buffer("mean", torch.zeros(shape.dim))
        self.register_buffer("liked", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(shape.dim))

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.remember(user, batch)
        tastes: Tensor = self.tastes.weight[user] + self.own_bias[user]
        out: Tensor = super().forward(user, batch) * (self.items(batch["item"]) @ tastes)
        return out

    def remember(self, user: int, batch: Batch) -> None:
        self.mean.copy_(self.tastes.weight[user].detach())
        self.liked.fill_(int(self.own_bias[user] > 0))
        self.seen.copy_(self.items.weight[batch["item"]].detach().mean(0))


class LastBias(Tastes):
    """The last user's bias scales the next loss."""

    last = torch.zeros(())

    def remember(self, user: int, batch: Batch) -> None:
        self.before, self.last = self.last, self.own_bias[user].detach().clone()

    def penalty(self, user: int) -> Tensor:
        return self.before.tanh() * own(self, user).sum()


TASTES = ("users.weight", "tastes.weight", "own_bias")


@pytest.mark.parametrize("private", [TASTES, TASTES[::-1]])
def test_a_buffer_is_blamed_on_what_is_in_it(private: tuple[str, ...]) -> None:
    report = check(case(Tastes, *private)(Shape()), trials=1)
    assert {each.parameter for each in report.violations} == {"tastes.weight", "own_bias", "seen"}


@pytest.mark.parametrize("private", [TASTES, TASTES[::-1]])
def test_a_memory_is_blamed_on_what_is_in_it(private: tuple[str, ...]) -> None:
    report = check(case(LastBias, *private)(Shape()), trials=1)
    assert {each.parameter for each in report.violations} == {"own_bias"}


class Counts(Factorisation):
    """How often anybody has trained, whatever with."""

    calls: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("calls", torch.zeros(()))

    def penalty(self, user: int) -> Tensor:
        self.calls += 1
        return torch.zeros(())


def test_a_buffer_is_blamed_on_what_is_written_into_it() -> None:
    named = [each for each in check(case(Queue)(Shape())).violations if "'queue'" in each.reaches]
    assert {each.parameter for each in named} == {"users.weight"}
    assert named[0].line is not None
    assert named[0].line.text.startswith("self.queue.copy_(")
    assert "\n  written at " in str(named[0])
    assert first(check(case(Counts)(Shape()))).parameter == "calls"


class Hyper(Factorisation):
    """Everybody's weights are made by layers of fourth powers: too large at large scales."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.make = nn.Linear(shape.dim, shape.dim)

    def forward(self, user: int, batch: Batch) -> Tensor:
        made = own(self, user)
        for _ in range(3):
            made = self.make(made) ** 4
        out: Tensor = self.items(batch["item"]) @ made + self.bias[batch["item"]]
        return out


class LeakyHyper(Hyper):
    def penalty(self, user: int) -> Tensor:
        return own(self, user) @ self.users.weight.detach().mean(0)


def test_values_that_explode_are_tried_smaller_and_told_so() -> None:
    report = check(case(Hyper)(Shape()), trials=3)
    assert report.holds, report
    told = [each for each in report.advice if "not finite" in each]
    assert any("at a scale of 2: tried at 0.125 in its place (seed 2)" in each for each in told)
    leaks = check_model(LeakyHyper(Shape()), seed=2, trials=1)
    assert leaks.refuted


class TwoLeaks(Tastes):
    """One has a gradient; the other one is a rank."""

    def remember(self, user: int, batch: Batch) -> None:
        """Nothing."""

    def penalty(self, user: int) -> Tensor:
        rank = (self.own_bias.detach() > self.own_bias.detach()[user]).sum()
        return self.users.weight.square().sum() * (1 + rank)


def test_a_report_says_that_one_leak_may_hide_another() -> None:
    report = check(case(TwoLeaks, *TASTES)(Shape()), trials=1)
    assert {each.parameter for each in report.violations} == {"users.weight"}
    assert any("mend it, and run again" in each for each in report.advice)
    assert not check(case(Hyper)(Shape()), trials=1).advice


def named(kind: type[Factorisation], **changes: Any) -> set[str]:
    """The lines of a report, all of which have one."""
    return {_text(each) for each in check(case(kind, **changes)(Shape(users=4))).violations[:3]}


def _text(violation: Violation) -> str:
    return "" if violation.line is None else violation.line.text


class Stream(Factorisation):
    """What others hold decides how much is drawn, and so what is drawn next."""

    def penalty(self, user: int) -> Tensor:
        count = int((self.users.weight > 0).sum())
        torch.rand(count)
        return (torch.rand(2) * own(self, user)).sum()


class Seed(Factorisation):
    """What others hold is the seed."""

    def penalty(self, user: int) -> Tensor:
        torch.manual_seed(int(self.users.weight.detach().abs().sum() * 1000) % 100_000)
        return (torch.rand(2) * own(self, user)).sum()


def test_the_way_back_goes_through_the_random_stream() -> None:
    assert named(Stream) == {"count = int((self.users.weight > 0).sum())"}
    assert all(text.startswith("torch.manual_seed(int(") for text in named(Seed))


class Heads(Factorisation):
    """A head of one's own begins as a neighbour's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.heads = nn.ModuleList(nn.Linear(shape.dim, 1) for _ in range(shape.users))

    def warm(self, mine: Any, there: Any) -> None:
        raise NotImplementedError

    def penalty(self, user: int) -> Tensor:
        self.warm(self.heads[user], self.heads[(user + 1) % len(self.heads)])
        head: Any = self.heads[user]
        out: Tensor = head(own(self, user)).sum()
        return out


class Loaded(Heads):
    def warm(self, mine: Any, there: Any) -> None:
        mine.load_state_dict(there.state_dict())  # warms


class Replaced(Heads):
    def warm(self, mine: Any, there: Any) -> None:
        mine.weight.data = there.weight.data.clone()  # warms


@pytest.mark.parametrize("kind", [Loaded, Replaced])
def test_a_copy_into_a_users_own_module_is_named(kind: type[Heads]) -> None:
    report = check(case(kind, "users.weight", "heads.{user}.*")(Shape()))
    assert all(_text(each).endswith("# warms") for each in report.violations[:3]), report


def divided(given: AggregationInput) -> Any:
    federated, private = federated_averaging(given)
    size = sum(float(each["users.weight"].norm()) for each in private.values())  # guilty
    return {name: value / (1 + size) for name, value in federated.items()}, private


def handed_round(given: AggregationInput) -> Any:
    federated, private = keep_local(given)
    users = sorted(private)
    return federated, {user: private[users[p - 1]] for p, user in enumerate(users)}  # guilty


def moved_far(given: AggregationInput) -> Any:
    federated, private = keep_local(given)
    moved = float((federated["items.weight"] - given.federated["items.weight"]).norm())  # guilty
    return federated, {u: {n: v * (moved < 5) for n, v in p.items()} for u, p in private.items()}


def smallest_reset(given: AggregationInput) -> Any:
    federated, private = keep_local(given)
    sizes = {user: float(each["users.weight"].norm()) for user, each in private.items()}  # guilty
    smallest = min(sizes, key=lambda user: sizes[user])
    return federated, {**private, smallest: {"users.weight": private[smallest]["users.weight"] * 0}}


@pytest.mark.parametrize("rule", [divided, handed_round, moved_far, smallest_reset])
def test_what_every_rule_does_is_not_blamed(rule: Aggregator) -> None:
    report = check(case(Factorisation)(Shape(users=4)), rule)
    assert report.refuted
    assert all(_text(each).endswith("# guilty") for each in report.violations[:3]), report


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("<made>", "read in <made>, which has no file"),
        ("/x/site-packages/part.py", "read in part.py of an installed package"),
    ],
)
def test_why_there_is_no_line_is_said(file: str, why: str) -> None:
    space: dict[str, Any] = {}
    source = "def hide(m, u, b): return m.users.weight.norm() * (m.items.weight + m.bias[0]).sum()"
    exec(compile(source, file, "exec"), space)  # noqa: S102
    report = check_model(Factorisation(Shape()), space["hide"], trials=1)
    assert why in str(first(report))


class Never(Factorisation):
    def penalty(self, user: int) -> Tensor:
        return own(self, user).sum() * float("nan")


def test_a_loss_that_is_never_finite_is_a_gap() -> None:
    report = check(case(Never)(Shape()), trials=1)
    assert not report.refuted
    assert any("pass smaller scales=" in gap.problem for gap in report.gaps)
    assert not report.advice


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_layers_are_named() -> None:
    quantized = nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"'0': is quantized \(Linear\)"):
        check_model(quantized)


def test_lines_that_cannot_be_read_are_numbered_all_the_same(tmp_path: Path) -> None:
    """Code from a string, as a notebook whose cells are gone."""
    source = "def penalty(self, user):\n    return self.users.weight.norm()\n"
    file = tmp_path / "gone.py"
    space: dict[str, object] = {}
    exec(compile(source, str(file), "exec"), space)  # noqa: S102
    kind = type("Gone", (Factorisation,), {"penalty": space["penalty"]})
    line = first(check(case(kind)(Shape()))).line
    linecache.clearcache()
    assert line is not None
    assert (line.number, line.text) == (2, "")
    assert "gone.py:2 in penalty" in str(line)


class Columns(Factorisation):
    """The score is a column of what all users have a share in; one example makes it one number."""

    pick: Callable[[Tensor], Tensor]

    def forward(self, user: int, batch: Batch) -> Tensor:
        mixed = own(self, user) + 0.1 * self.users.weight.detach().mean(0)
        scores = self.items(batch["item"]) * mixed
        out: Tensor = type(self).pick(scores) * 2
        return out


@pytest.mark.parametrize(
    "pick",
    [
        lambda scores: scores[:, 1],
        lambda scores: scores.unbind(1)[1].contiguous(),
        lambda scores: scores.T[0].clone(),
        lambda scores: scores[:, :1].squeeze(-1),
    ],
)
def test_the_way_back_goes_through_columns(pick: Callable[[Tensor], Tensor]) -> None:
    kind = type("Picked", (Columns,), {"pick": staticmethod(pick)})
    violations = check(case(kind)(Shape()), trials=1).violations
    lines = [each.line for each in violations]
    assert all(line is not None and line.text.startswith("mixed =") for line in lines), lines


class BothLeak(TwoLeaks):
    def penalty(self, user: int) -> Tensor:
        return self.users.weight.square().sum() + self.own_bias.square().sum()


def test_every_parameter_has_lines() -> None:
    """However many users one of them reaches."""
    report = check(case(BothLeak, *TASTES)(Shape(users=6)), trials=1)
    assert len(report.violations) == 2 * 6 * 5
    found = [each.parameter for each in report.violations if each.line is not None]
    assert Counter(found) == {"users.weight": 3, "own_bias": 3}


def test_a_recorder_notes_what_the_code_does_and_not_what_it_looks_at() -> None:
    recorder, weight = Recorder(), torch.ones(3)
    with recorder.recording():
        largest(weight)
    done = [each.what for each in recorder.events]
    assert done == ["", "mul", "", "max", "_local_scalar_dense", "item"]


def largest(weight: Tensor) -> float:
    doubled = weight * 2
    return doubled.max().item()
