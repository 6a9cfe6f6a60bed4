"""A failing example prints as code that fails again, in the same words, and it is a small one."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import (
    Scope,
    SplitPersonalizationError,
    assert_lossless,
    assert_split_equals_unsplit,
)
from secure_fedrec.properties.strategies import (
    CLOAKS,
    Federation,
    federation_of,
    federations,
    ratings_of,
)
from secure_fedrec.properties.strategies.split import SplitRun, split_runs
from secure_fedrec.protection import DirectSum
from secure_fedrec.protection.base import RoundSession
from secure_fedrec.protection.plain.embedded import DirectSession
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire
from tests.properties.lossless_zoo_algorithms import (
    AddsTheMean,
    PublishesNoise,
    Remembers,
    TrainsTogether,
)
from tests.properties.lossless_zoo_layers import (
    ClaimsNoise,
    CountsOneMore,
    DecodesSingle,
    EverySecond,
    LastBatch,
    NobodyOnce,
    Tenths,
    Zeros,
)
from tests.properties.split_zoo import Shape
from tests.properties.split_zoo_broken import BROKEN
from tests.properties.test_properties_mutations import (
    ForgetsItsOwnRows,
    LeavesOneRow,
    Mutant,
    PrintedDivisor,
    with_mutant,
)

CONFIG = PMFConfig.printed(rank=2, learning_rate=0.1, init_scale=0.5)
FIXED = settings(
    settings.get_profile("properties"),
    derandomize=True,
    database=None,
    max_examples=200,
    # The phase that explains traces every line of every example that fails.
    phases=(Phase.generate, Phase.shrink),
)


class Loses(DirectSum):
    """Loses the rows of whoever is the first."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _Loses(self, round_, participants, wire)


class _Loses(DirectSession):
    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        first = np.repeat(clients, block.lengths) == self.order[0]
        assert block.values is not None
        vars(self).setdefault("lost", []).append((block.rows[first], block.values[first]))
        super().submit(clients, block, virtual)

    def close(self) -> Aggregate:
        aggregate = super().close()
        ring, counts = aggregate.ring.copy(), aggregate.counts.copy()
        for items, values in vars(self)["lost"]:
            np.subtract.at(ring, items, values)
            np.subtract.at(counts, items, 1)
        return replace(aggregate, ring=self.collector.codec.reduce(ring), counts=counts)


def ring_of(kind: type[FixedPoint]) -> Callable[[Federation], dict[str, Any]]:
    """The drawn stack on another ring."""

    def changes(federation: Federation) -> dict[str, Any]:
        stack, own = federation.stack, federation.stack.codec
        codec = kind(bits=own.bits, fraction_bits=own.fraction_bits, clip=own.clip)
        items = federation.ratings.n_items
        collector = DirectSum(n_clients=stack.n_clients, n_items=items, width=2, codec=codec)
        return {"stack": replace(stack, codec=codec, cloak=None, collector=collector)}

    return changes


def mutant(kind: type[Mutant]) -> Callable[[Federation], dict[str, Any]]:
    return lambda federation: {"stack": with_mutant(federation.stack, kind.__name__)[0]}


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A property that fails.

    Args:
        words: part of what it says.
        rounds: of the smallest example.
    """

    words: str
    rounds: int = 1
    algorithm: type[PMF] = PMF
    collectors: tuple[Any, ...] = (DirectSum,)
    changes: Callable[[Federation], dict[str, Any]] = lambda _: {}

    def check(self, federation: Federation) -> None:
        run = federation.arguments(**self.changes(federation))
        assert_lossless(algorithm=lambda: self.algorithm(CONFIG), **run)


STACK, ALGORITHM = "not lossless: the stack", "not lossless: the algorithm"

FAILING = {
    # Two clients are one batch in the second round alone.
    "an algorithm that leaks the mean of the batch": Failing(
        words=ALGORITHM, algorithm=AddsTheMean, rounds=2
    ),
    "an algorithm that remembers": Failing(words=ALGORITHM, algorithm=Remembers, rounds=2),
    "an algorithm that trains together": Failing(
        words=ALGORITHM, algorithm=TrainsTogether, rounds=2
    ),
    "noise that is claimed": Failing(
        words=STACK, algorithm=PublishesNoise, collectors=(ClaimsNoise,)
    ),
    "a collector that loses a client": Failing(
        words="client 0's row of item 0 is missing", collectors=(Loses,)
    ),
    "one of two collectors loses a client": Failing(
        words="client 0's row of item 0 is missing", collectors=(DirectSum, Loses)
    ),
    "a collector that drops every second client": Failing(words=STACK, collectors=(EverySecond,)),
    "a collector that keeps the last batch": Failing(words=STACK, collectors=(LastBatch,)),
    "a collector that counts one more": Failing(words="count of", collectors=(CountsOneMore,)),
    "a collector that asks nobody once": Failing(
        words="round 2", collectors=(NobodyOnce,), rounds=2
    ),
    "a codec that rounds": Failing(words=STACK, changes=ring_of(Tenths)),
    "a codec of zeros": Failing(words="is zeros", changes=ring_of(Zeros)),
    "a codec that decodes to single precision": Failing(
        words="public table", changes=ring_of(DecodesSingle)
    ),
    **{
        f"denoisers: {kind.__name__}": Failing(words=STACK, collectors=(), changes=mutant(kind))
        for kind in (LeavesOneRow, ForgetsItsOwnRows, PrintedDivisor)
    },
}


def printed(check: Callable[..., None], error: type[Exception], **drawn: Any) -> tuple[str, str]:
    """What Hypothesis prints of a test that fails, as code, and the message of the failure."""
    with pytest.raises(error) as refused:
        FIXED(given(**drawn)(check))()
    notes = [note for note in refused.value.__notes__ if "@reproduce_failure" not in note]
    code = re.sub(r"^(Falsifying example|Failing test case): ", "", "\n".join(notes), flags=re.M)
    return code, str(refused.value)


@pytest.mark.parametrize("name", FAILING)
def test_what_is_printed_fails_again_in_the_same_words_and_is_small(name: str) -> None:
    case, found = FAILING[name], []

    def check(federation: Federation) -> None:
        case.check(federation)

    code, words = printed(
        check, LosslessnessError, federation=federations(width=2, collectors=case.collectors)
    )
    assert re.search(case.words, words)

    def again(federation: Federation) -> None:
        found.append(federation)
        case.check(federation)

    with pytest.raises(LosslessnessError) as repeated:
        exec(code, {"check": again})  # noqa: S102
    assert str(repeated.value) == words
    (federation,) = found
    assert (federation.ratings.n_clients, federation.rounds) == (2, case.rounds)
    assert federation.ratings.n_items <= 2
    assert len(federation.ratings) <= 2


def test_most_smallest_examples_are_of_one_round() -> None:
    assert sum(case.rounds == 1 for case in FAILING.values()) >= 12
    assert len(FAILING) == 16


def test_own_collectors_are_printed_by_name() -> None:
    def check(federation: Federation) -> None:
        raise ValueError(type(federation.stack.collector).__name__)

    code, words = printed(
        check, ValueError, federation=federations(width=1, collectors=(Loses, DirectSum))
    )
    assert words == "Loses"
    assert "\n        collector=Loses,\n" in code
    assert f"from {__name__} import Loses\n" in code


@given(federation=federations(width=2, cloaks=CLOAKS) | federations(width=1, collectors=(Loses,)))
@settings(settings.get_profile("properties"), max_examples=100)
def test_code_makes_the_same_federation(federation: Federation) -> None:
    names: dict[str, Any] = {}
    exec(federation.imports, names)  # noqa: S102
    again = eval(repr(federation), names)  # noqa: S307
    assert federation.code == f"{federation.imports}\n\n{federation!r}\n"
    assert repr(again) == repr(federation)
    assert again.ratings.fingerprint() == federation.ratings.fingerprint()
    assert again.stack.describe() == federation.stack.describe()
    assert (again.stack.codec, again.rounds) == (federation.stack.codec, federation.rounds)
    for round_ in range(1, federation.rounds + 1):
        assert again.taking_part(round_).tolist() == federation.taking_part(round_).tolist()
    cloaks = [repr(each.stack.cloak) for each in (again, federation)]
    assert cloaks[0] == cloaks[1]
    assert again.scope.drops_reports == federation.scope.drops_reports


def test_what_is_replaced_is_not_printed_as_it_was() -> None:
    made = federation_of(
        ratings=ratings_of({0: {0: 5.0}, 1: {}}, items=1),
        seed=3,
        codec=FixedPoint(),
        width=1,
        rounds=1,
        collector=Loses,
    )
    assert "collector=Loses," in repr(made)
    direct = DirectSum(n_clients=2, n_items=1, width=1, codec=FixedPoint())
    other = replace(made, stack=replace(made.stack, collector=direct))
    assert "collector=Loses," not in repr(other)
    assert "collector=...," in repr(other)
    assert "\n# In place of ... put <secure_fedrec." in other.imports
    assert "DirectSum object at" in other.imports
    assert "scope=" not in repr(made)
    assert "scope=Scope(drops_reports=True)" in repr(replace(made, scope=Scope(drops_reports=True)))
    assert "seed=3," in repr(made)
    assert repr(Streams.system()) == "Streams"
    assert Streams.from_seed(3).of_clients({}).seed is None


# Split personalization.


def split_failing(name: str) -> Callable[[SplitRun], None]:
    """That a broken model can be split, which does not hold."""

    def check(run: SplitRun) -> None:
        found = BROKEN[name].build(Shape())
        assert_split_equals_unsplit(
            found.model,
            found.loss,
            private=found.private,
            data=run.data(**found.columns),
            **run.arguments(),
        )

    return check


@pytest.mark.parametrize(
    "name", ["matrix decay", "batch statistics", "tied tables", "orthogonality"]
)
def test_a_split_run_prints_as_code_that_fails_again(name: str) -> None:
    fails, found = split_failing(name), []
    code, words = printed(fails, SplitPersonalizationError, run=split_runs(users=3))

    def again(run: SplitRun) -> None:
        found.append(run)
        fails(run)

    with pytest.raises(SplitPersonalizationError) as repeated:
        exec(code, {"check": again})  # noqa: S102
    assert str(repeated.value) == words
    (run,) = found
    assert sum(run.sizes) <= 2
    assert len(run.cohorts) == 1


@given(run=split_runs(users=3))
@settings(settings.get_profile("properties"), max_examples=100)
def test_code_makes_the_same_split_run(run: SplitRun) -> None:
    names: dict[str, Any] = {}
    exec(run.imports, names)  # noqa: S102
    assert eval(repr(run), names) == run  # noqa: S307
