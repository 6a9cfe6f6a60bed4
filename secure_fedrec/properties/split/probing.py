"""An aggregation rule with replaced inputs, and which of its results change."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from secure_fedrec.properties.split.aggregation import AggregationInput
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.reading import Allowed, Line, Recorder, reading_line
from secure_fedrec.properties.split.running import RunningRule, Updates
from secure_fedrec.properties.split.trials import equal_bits, same_bits

_FIELDS: Final = ("private", "local_private", "local_federated")


class Change(NamedTuple):
    """A value at the rule's input that is replaced.

    Args:
        round: counted from 0.
        field: field of the input.
        user: the user; None for the server.
        name: name of the parameter.
    """

    round: int
    field: str
    user: int | None
    name: str


@dataclass(eq=False)
class Probe:
    """A rule at random inputs of a few rounds, some of which can be replaced.

    Args:
        begin: makes a fresh copy of the rule.
        given: inputs by round.
        other: replacements for some of their values.

    Attributes:
        base: its results for the original inputs, by round.
    """

    begin: Callable[[], RunningRule]
    given: Sequence[AggregationInput]
    other: Sequence[AggregationInput]

    def __post_init__(self) -> None:
        self.base = self(())

    def __call__(
        self, changes: Sequence[Change], *, recorder: Recorder | None = None
    ) -> list[Updates]:
        """The results of a fresh copy after some values are replaced, for all users in every round.

        Users that the rule does not return keep their values.
        """
        rule = self.begin()
        answers = []
        for round_, (given, other) in enumerate(zip(self.given, self.other, strict=True)):
            replaced = [change for change in changes if change.round == round_]
            changed = _replaced(given, other, replaced)
            with contextlib.nullcontext() if recorder is None else recorder.recording():
                federated, private = rule(changed)
            kept = {user: dict(values) for user, values in changed.private.items()}
            answers.append((federated, kept | private))
        return answers

    def changes_of(self, owners: Sequence[int | None], fields: Sequence[str]) -> list[Change]:
        """All replaceable inputs of some users, or of the server, in some fields."""
        return [
            Change(round_, field, user, name)
            for user in owners
            for round_, given in enumerate(self.given)
            for field in fields
            for name in _values_of(given, field, user)
        ]

    def moved(self, answers: Sequence[Updates], whose: int | None) -> list[int]:
        """The rounds whose update has other bits than in ``base``.

        Args:
            answers: to changed inputs.
            whose: the user whose private update it is; None for the federated one.
        """
        pairs = enumerate(zip(answers, self.base, strict=True))
        return [
            round_
            for round_, (answer, base) in pairs
            if not same_bits(update_of(answer, whose), update_of(base, whose))
        ]

    def line(
        self, one: Sequence[Change], other: Sequence[Change], whose: int | None, name: str
    ) -> Line | str | None:
        """The line of the rule that reads what two inputs differ in.

        Args:
            one: the replaced input.
            other: the same, and one value more.
            whose: see ``moved``.
            name: name of the parameter whose update moves.
        """
        recorders = Recorder(), Recorder()
        answers = [
            self(changes, recorder=recorder)
            for changes, recorder in zip((one, other), recorders, strict=True)
        ]
        pairs = zip(*answers, strict=True)
        updates = [tuple(update_of(each, whose)[name] for each in pair) for pair in pairs]
        ends = [recorders[0].last_writer(old) for old, new in updates if not equal_bits(old, new)]
        return reading_line(*recorders, ends, self._allowed(recorders[0], answers[0], other[-1]))

    def _allowed(self, recorder: Recorder, answers: Sequence[Updates], moved: Change) -> Allowed:
        """The allowed uses of a value: private ones affect their owner only, others all users."""

        def ends(whose: int | None) -> list[int | None]:
            updates = [update_of(each, whose) for each in answers]
            return [recorder.last_writer(value) for each in updates for value in each.values()]

        if not moved.field.endswith("private"):
            return Allowed(shared=ends(None))
        owner = moved.user
        inputs = [getattr(each, field) for each in (*self.given, *self.other) for field in _FIELDS]
        return Allowed(
            own=[] if owner is None else ends(owner),
            foreign=[
                value
                for given in inputs
                for user, values in given.items()
                if user != owner
                for value in values.values()
            ],
        )

    def is_reproducible(self) -> bool:
        """Whether the same inputs give the same results twice."""
        again = self(())
        return not any(self.moved(again, whose) for whose in (None, *again[0][1]))


def _values_of(given: AggregationInput, field: str, user: int | None) -> Values:
    """A user's values in a field, or the server's; absent users do not have local ones."""
    values = getattr(given, field)
    found: Values = values if user is None else values.get(user, {})
    return found


def update_of(updates: Updates, whose: int | None) -> Values:
    """The federated update, or a user's private one."""
    return updates[0] if whose is None else updates[1][whose]


def _replaced(
    given: AggregationInput, other: AggregationInput, changes: Sequence[Change]
) -> AggregationInput:
    """An input with some of its values from another."""
    changed: Any = given.mapped(dict)
    for _, field, user, name in changes:
        old, new = getattr(changed, field), getattr(other, field)
        if user is None:
            old[name] = new[name]
        else:
            old[user][name] = new[user][name]
    return changed  # type: ignore[no-any-return]
