"""Constraints (2) and (3), independent aggregation: an update uses no other user's private values.

The aggregator gets random parameters, local values and summaries of a random cohort. Then the
private values of one user change at its input, and nothing else: no bit of the federated update may
move (2), nor of another user's private update (3). Private updates must not move with federated
values either (3). In every other trial the change is a thousand times as large as the parameters,
so that it crosses the thresholds of rules that clip.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split_aggregation import AggregationInput, Aggregator, Summary
from secure_fedrec.properties.split_model import SplitModel, Values
from secure_fedrec.properties.split_random import noise_like
from secure_fedrec.properties.split_report import Findings, Gap, Violation
from secure_fedrec.properties.split_trials import Trial, first_change, largest_change, same_bits

__all__ = ["AggregationTrials", "Summaries", "apply_aggregator", "example_counts"]

Summaries: TypeAlias = Callable[[int, torch.Generator], Summary]
"""Draws the summary of a user's data: (user, generator) -> numbers by name."""

_Change: TypeAlias = tuple[str, int | None, str]  # field of the input, user or server, parameter
_Updates: TypeAlias = tuple[Values, Mapping[int, Values]]

_WHICH = {
    "private": "value before the round",
    "local_private": "local value",
    "federated": "value before the round",
    "local_federated": "local value",
}


def example_counts(_user: int, generator: torch.Generator) -> Summary:
    """Between 1 and 50 training examples."""
    return {"examples": float(torch.randint(1, 51, (), generator=generator))}


class AggregationTrials:
    """Trials of constraints (2) and (3).

    Args:
        split: the model whose parameters are aggregated.
        aggregate: under test.
        summaries: draws summaries.
        findings: where violations go.
    """

    def __init__(
        self, split: SplitModel, aggregate: Aggregator, summaries: Summaries, findings: Findings
    ) -> None:
        self._split = split
        self._aggregate = aggregate
        self._summaries = summaries
        self._findings = findings

    def run(self, trial: Trial) -> None:
        """Test the influence of every user of the trial."""
        crossing = 1000.0 if trial.seed % 2 else 1.0
        probe = _Probe(
            self._aggregate,
            given=self._draw(trial, "given", trial.scale),
            other=self._draw(trial, "other", trial.scale * crossing),
        )
        if not probe.is_reproducible():
            problem = "returns something else for an equal input: it keeps state, or draws"
            self._findings.leave_open(Gap(subject="aggregate", problem=problem, seed=trial.seed))
            return
        for user in trial.users:
            changes = probe.changes_of(user, ("private", "local_private"))
            self._judge_federated(trial, probe, user, changes)
            self._judge_private(trial, probe, user, changes)
            federated = probe.changes_of(user, ("local_federated",))
            self._judge_private(trial, probe, user, federated)
        self._judge_private(trial, probe, None, probe.changes_of(None, ("federated",)))

    def _draw(self, trial: Trial, purpose: str, scale: float) -> AggregationInput:
        """Random values everywhere; the cohort and its summaries are the trial's."""
        generator = trial.generator(purpose)
        cohort, summaries = self._draw_cohort(trial)
        federated = self._split.federated_values()
        private = self._split.private_values(0)  # all users' have the same shapes

        def noise(like: Values) -> dict[str, Tensor]:
            return {name: noise_like(value, scale, generator) for name, value in like.items()}

        return AggregationInput(
            federated=noise(federated),
            private={user: noise(private) for user in range(self._split.n_users)},
            local_federated={user: noise(federated) for user in cohort},
            local_private={user: noise(private) for user in cohort},
            summaries=summaries,
        )

    def _draw_cohort(self, trial: Trial) -> tuple[list[int], dict[int, Summary]]:
        """At least two users, in about half of the trials not all."""
        generator = trial.generator("cohort")
        order = torch.randperm(len(trial.users), generator=generator).tolist()
        size = int(torch.randint(2, 2 * len(trial.users), (), generator=generator))
        cohort = sorted(trial.users[position] for position in order[:size])
        return cohort, {
            user: self._summaries(user, trial.generator("summary", user)) for user in cohort
        }

    def _judge_federated(
        self, trial: Trial, probe: "_Probe", owner: int, changes: Sequence[_Change]
    ) -> None:
        def moved(count: int) -> bool:
            return not same_bits(probe(changes[:count])[0], probe.base[0])

        if moved(len(changes)):
            step = first_change(len(changes), moved)
            name, size = largest_change(probe(changes[: step + 1])[0], probe.base[0])
            update = f"the federated update of {name!r}"
            self._violate(2, changes[step], (owner, int(owner == 0)), update, size, trial.seed)

    def _judge_private(
        self, trial: Trial, probe: "_Probe", owner: int | None, changes: Sequence[_Change]
    ) -> None:
        federated = bool(changes) and changes[0][0].endswith("federated")
        for reader, update in probe(changes)[1].items():
            # Of its own private values a user may use what it likes, of federated ones nothing.
            if (reader == owner and not federated) or same_bits(update, probe.base[1][reader]):
                continue

            def moved(count: int, reader: int = reader) -> bool:
                return not same_bits(probe(changes[:count])[1][reader], probe.base[1][reader])

            step = first_change(len(changes), moved)
            found = probe(changes[: step + 1])[1][reader]
            name, size = largest_change(found, probe.base[1][reader])
            what = f"the update of its {name!r}"
            self._violate(3, changes[step], (owner, reader), what, size, trial.seed)

    def _violate(
        self,
        constraint: int,
        change: _Change,
        users: tuple[int | None, int],
        update: str,
        size: float,
        seed: int,
    ) -> None:
        field, _, name = change
        self._findings.add(
            Violation(
                constraint=constraint,
                parameter=name,
                owner=users[0],
                reader=users[1],
                reaches=f"{update} moves with its {_WHICH[field]}",
                size=size,
                seed=seed,
            )
        )


class _Probe:
    """An aggregator at a random input, some of which can be replaced.

    Attributes:
        base: its answer to the input as it is.
    """

    def __init__(
        self, aggregate: Aggregator, *, given: AggregationInput, other: AggregationInput
    ) -> None:
        self._aggregate = aggregate
        self._given = given
        self._other = other
        self.base = self(())

    def __call__(self, changes: Sequence[_Change]) -> _Updates:
        """The answer after some values are replaced."""
        fields = {name: _copied(getattr(self._given, name)) for name in _WHICH}
        for field, user, name in changes:
            source = getattr(self._other, field)
            if user is None:
                fields[field][name] = source[name].clone()
            else:
                fields[field][user][name] = source[user][name].clone()
        summaries = {user: dict(summary) for user, summary in self._given.summaries.items()}
        return apply_aggregator(self._aggregate, AggregationInput(**fields, summaries=summaries))

    def changes_of(self, user: int | None, fields: Sequence[str]) -> list[_Change]:
        """All that can be replaced of a user, or of the server, in some fields of the input."""
        changes: list[_Change] = []
        for field in fields:
            values = getattr(self._given, field)
            if user is not None:
                values = values.get(user, {})  # who is absent has no local values
            changes += [(field, user, name) for name in values]
        return changes

    def is_reproducible(self) -> bool:
        """Whether the same input has the same answer twice."""
        federated, private = self(())
        return same_bits(federated, self.base[0]) and all(
            same_bits(private[user], self.base[1][user]) for user in private
        )


def apply_aggregator(aggregate: Aggregator, given: AggregationInput) -> _Updates:
    """Call an aggregator, and check what it returns.

    A copy of it is called: one with state, such as a server optimiser, answers as if for the first
    time.

    Raises:
        ConfigError: it does not return the federated parameters and the private ones of every
            participant, in their shapes.
    """
    federated, private = copy.deepcopy(aggregate)(given)
    _require("federated", federated, given.federated)
    missing = sorted(given.summaries.keys() - private.keys())
    if missing:
        raise ConfigError("aggregate", missing, "no private update for these participants")
    for user, update in private.items():
        if user not in given.private:
            raise ConfigError("aggregate", user, "a private update for an unknown user")
        _require(f"user {user}", update, given.private[user])
    return federated, private


def _require(whose: str, update: Values, old: Values) -> None:
    shapes = {name: tuple(value.shape) for name, value in old.items()}
    returned = {name: tuple(value.shape) for name, value in update.items()}
    if returned != shapes:
        raise ConfigError("aggregate", returned, f"must return {shapes} ({whose})")


def _copied(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        key: value.clone() if isinstance(value, Tensor) else _copied(value)
        for key, value in values.items()
    }
