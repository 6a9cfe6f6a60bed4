"""Hypothesis strategies for federated runs of a personalised model; import it by name.

The shortest test that keeping private parameters of a model at home changes no result::

    @given(run=split_runs(users=4))
    def test_my_model_can_be_split(run: SplitRun) -> None:
        assert_split_equals_unsplit(
            MyModel(users=4),
            my_loss,
            private=("users.weight",),
            data=run.data(item=integers(50), rating=normals()),
            **run.arguments(),
        )
"""

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from secure_fedrec.algorithms.local_settings import OPTIMIZERS, LocalTrainingConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.aggregation import (
    Aggregator,
    Averaging,
    Summary,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.random import Column, generator_of
from secure_fedrec.properties.split.training import Examples
from secure_fedrec.properties.strategies.code import Repeatable
from secure_fedrec.properties.strategies.imports import telling, told
from secure_fedrec.streams import Streams

_CORNERS = 16
"""One run in this many trains one user at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SplitRun(Repeatable):
    """A federated run without its model; prints as the call that makes it.

    Args:
        sizes: numbers of examples of every user, 0 included.
        cohorts: users invited in every round.
        training: settings of local training.
        aggregate: the rule of aggregation.
        seed: seed of the examples, of shuffling and of dropout.
    """

    sizes: tuple[int, ...]
    cohorts: tuple[tuple[int, ...], ...]
    training: LocalTrainingConfig
    aggregate: Aggregator
    seed: int

    def call(self) -> tuple[type["SplitRun"], dict[str, Any]]:
        """See ``Repeatable``."""
        names = ("sizes", "cohorts", "training", "aggregate", "seed")
        return SplitRun, {name: getattr(self, name) for name in names}

    def data(self, **columns: Column) -> list[Examples]:
        """Random examples of every user, of the drawn sizes."""
        streams = Streams.from_seed(self.seed)
        return [
            {
                name: column(size, generator_of(streams, f"split.data.{name}", user=user)).numpy()
                for name, column in columns.items()
            }
            for user, size in enumerate(self.sizes)
        ]

    def trained(self) -> tuple[int, ...]:
        """Users with examples in every round, whose models the server averages."""
        return tuple(sum(self.sizes[user] > 0 for user in cohort) for cohort in self.cohorts)

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``compare_split`` and ``assert_split_equals_unsplit`` beside the model."""
        return {
            "cohorts": self.cohorts,
            "training": self.training,
            "aggregate": self.aggregate,
            "seed": self.seed,
        }


@st.composite
@telling
def split_runs(
    draw: st.DrawFn,
    *,
    users: int,
    max_examples: int = 4,
    max_rounds: int = 3,
    rules: st.SearchStrategy[Aggregator] | None = None,
    alone: bool | None = None,
) -> SplitRun:
    """Runs of any partition and any cohorts, with at least one training in the first round.

    As a rule two users or more train in some round, so that something is averaged; in one run of
    sixteen, one at a time. Users may have no examples; rounds may invite no user, one user or all.

    Args:
        draw: given by Hypothesis.
        users: users of the model.
        max_examples: most examples of a user.
        max_rounds: most rounds.
        rules: rules of aggregation; ``averaging_rules()`` by default.
        alone: whether users train one at a time; None draws it, one time in sixteen.

    Raises:
        ConfigError: users or examples are missing.
    """
    if users < 1 or max_examples < 1 or max_rounds < 1:
        raise ConfigError("split_runs", (users, max_examples, max_rounds), "must be at least 1")
    sizes = draw(st.lists(st.integers(0, max_examples), min_size=users, max_size=users))
    if alone is None:
        alone = draw(st.sampled_from(range(_CORNERS))) == 1
    alone = alone or users == 1
    fewest = 1 if alone else 2
    order = draw(st.permutations(range(users)))
    for user in order[:fewest]:
        sizes[user] = max(sizes[user], 1)
    cohort = st.sets(st.integers(0, users - 1), max_size=1 if alone else None).map(sorted)
    cohorts = draw(st.lists(cohort, min_size=1, max_size=max_rounds))
    cohorts[0] = [order[0]] if alone else sorted({*cohorts[0], order[0]})
    together = draw(st.integers(0, len(cohorts) - 1))
    if not alone:
        cohorts[together] = sorted({*cohorts[together], *order[:fewest]})
    return SplitRun(
        sizes=tuple(sizes),
        cohorts=tuple(tuple(each) for each in cohorts),
        training=draw(local_trainings()),
        aggregate=draw(averaging_rules() if rules is None else rules),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
@telling
def local_trainings(draw: st.DrawFn) -> LocalTrainingConfig:
    """Any optimiser, with fresh moments or moments kept on the device, in any batches."""
    optimizer = draw(st.sampled_from(OPTIMIZERS))
    return LocalTrainingConfig(
        optimizer=optimizer,
        learning_rate=draw(st.sampled_from((0.02, 0.1))),
        private_learning_rate=draw(st.sampled_from((None, 0.05))),
        epochs=draw(st.integers(1, 2)),
        batch_size=draw(st.sampled_from((None, 1, 2, 3))),
        proximal=draw(st.sampled_from((0.0, 0.5))),
        gradient_clip=draw(st.sampled_from((None, 0.5))),
        keep_state=optimizer != "sgd" and draw(st.booleans()),
    )


@told()
def averaging_rules() -> st.SearchStrategy[Aggregator]:
    """Both rules of FURL, weighted by examples, by their square root, or not at all."""
    weighted = st.builds(
        Averaging, weight=st.sampled_from((by_root, equally)), keep_private=st.booleans()
    )
    return st.one_of(st.sampled_from((federated_averaging, keep_local)), weighted)


def by_root(summary: Summary) -> float:
    """The square root of a user's examples, as a weight."""
    return math.sqrt(summary["examples"])


def equally(_summary: Summary) -> float:
    """The same weight for all users."""
    return 1.0
