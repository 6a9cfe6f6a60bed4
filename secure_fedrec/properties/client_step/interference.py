"""Whether other clients' private values or trainings change a client's step.

Every client trains twice alone. Then all clients train in turn, and again, with different values of
the other clients: what each client sends and keeps must have the same bits as when it trained
alone. If it differs, a binary search finds the client whose value or training made the difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch
from torch import Tensor

from secure_fedrec.properties.client_step.leaving import (
    judge_writes,
    own_values,
    require_trained,
)
from secure_fedrec.properties.client_step.report import READS, ClientReport
from secure_fedrec.properties.client_step.running import Everybody, Outcome, Steps
from secure_fedrec.properties.client_step.states import User
from secure_fedrec.properties.split.interference import TRAINING
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.random import is_exact
from secure_fedrec.properties.split.relations import RELATIONS, Related, related
from secure_fedrec.properties.split.scales import KINDS, drawn
from secure_fedrec.properties.split.trials import Trial, equal_bits, first_change

ALL_KINDS: Final = (*KINDS, *RELATIONS)


class _Turn(NamedTuple):
    """A training: its client, and the kind of other clients' values."""

    user: User
    kind: str


@dataclass(eq=False)
class Interference:
    """The search in one trial.

    Args:
        steps: runs trainings.
        trial: seeds and kinds.
        report: where findings go.
        broken: clients that are known to be disturbed; they are not searched again.
    """

    steps: Steps
    trial: Trial
    report: ClientReport
    broken: set[User]
    _drawn: dict[str, Everybody] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        users = self.steps.users
        self._own = own_values(self.steps, self.trial, "own")
        seeds = self.trial.torch_seeds("client.training", range(len(users)))
        self._seeds = {user: seeds[place] for place, user in enumerate(users)}
        self._generator = self.trial.generator("client.order")

    def search(self) -> None:
        """Compare trainings of clients alone with trainings among others."""
        users = self.steps.users
        alone = {user: self._alone(user) for user in users}
        for user in users if self.trial.seed == self.report.seed else ():
            self._repeats(user, alone[user])
        places = torch.randperm(len(users), generator=self._generator).tolist()
        order = [users[place] for place in places]
        one, other = self.trial.kinds
        for first, then, turned in ((one, other, order), (other, one, order[::-1])):
            turns = [
                *(_Turn(user, first) for user in turned),
                *(_Turn(user, then) for user in turned),
            ]
            self._play(turns, alone)

    def _alone(self, user: User) -> list[dict[str, Tensor]]:
        outcomes = self._sequence([_Turn(user, "")] * 2)
        for outcome in outcomes:
            require_trained(outcome)
        return [outcome.bits() for outcome in outcomes]

    def _repeats(self, user: User, alone: Sequence[Values]) -> bool:
        again = self._alone(user)
        found = next(filter(None, map(_difference, again, alone)), None)
        if found is None:
            return True
        self.broken.add(user)
        problem = (
            f"of client {user} differs between two equal runs ({found}): it keeps state out of "
            "reach, or draws outside the generators of torch, NumPy and random"
        )
        self.report.leave_open("train", problem, self.trial.seed)
        return False

    def _play(self, turns: Sequence[_Turn], alone: Mapping[User, Sequence[Values]]) -> None:
        outcomes = self._sequence(turns)
        for place, (turn, outcome) in enumerate(zip(turns, outcomes, strict=True)):
            judge_writes(self.report, turn.user, outcome, self.trial.seed)
            before = turns[:place]
            due = alone[turn.user][sum(each.user == turn.user for each in before)]
            if turn.user not in self.broken and _difference(outcome.bits(), due) is not None:
                self._blame(turn, before, due, alone[turn.user])

    def _blame(
        self, turn: _Turn, before: Sequence[_Turn], due: Values, alone: Sequence[Values]
    ) -> None:
        """Name the client whose value or training changes what another client sends or keeps."""
        reader = turn.user
        if not self._repeats(reader, alone):
            return
        own = [each for each in before if each.user == reader]
        parts = [
            (name, owner)
            for owner, values in self._own.items()
            for name in values
            if owner != reader
        ]

        def with_values(number: int) -> str | None:
            """Its trainings alone, with this many values of other clients as in the sequence."""
            self.steps.begin()
            for each in (*own, turn):
                mixed: dict[User, dict[str, Tensor]] = {u: dict(v) for u, v in self._own.items()}
                for name, owner in parts[:number]:
                    mixed[owner][name] = self._others(each)[owner][name]
                last = self.steps.run(reader, mixed, self._seeds[reader])
            return _difference(last.bits(), due)

        found = with_values(len(parts))
        if found is not None:
            step = first_change(len(parts), lambda number: with_values(number) is not None)
            name, owner = parts[step]
            self._violate(name, owner, reader, f"{with_values(step + 1)} moves with it")
            return
        strangers = [place for place, each in enumerate(before) if each.user != reader]

        def after(number: int) -> str | None:
            kept = {*strangers[:number]}
            history = [t for place, t in enumerate(before) if t.user == reader or place in kept]
            return _difference(self._sequence([*history, turn])[-1].bits(), due)

        found = after(len(strangers)) if strangers else None
        if found is None:
            problem = f"of client {reader} differs, and no run reproduces this"
            self.report.leave_open("train", problem, self.trial.seed)
            self.broken.add(reader)
            return
        step = first_change(len(strangers), lambda number: after(number) is not None)
        owner = before[strangers[step]].user
        name = self._remembered(owner, [*before[: strangers[step] + 1], turn])
        self._violate(name, owner, reader, f"{found} moves when that client has trained before")

    def _remembered(self, owner: User, turns: Sequence[_Turn]) -> str:
        """The private value of an earlier client that changes the last training, if any."""
        due = self._sequence(turns)[-1].bits()
        fresh = own_values(self.steps, self.trial, "remembered")[owner]
        for name in self._own[owner]:
            changed = {**self._own, owner: {**self._own[owner], name: fresh[name]}}
            if _difference(self._sequence(turns, changed)[-1].bits(), due) is not None:
                return name
        return TRAINING

    def _violate(self, name: str, owner: User, reader: User, reaches: str) -> None:
        self.broken.add(reader)
        self.report.violate(READS, name, (owner, reader), reaches, self.trial.seed)

    def _sequence(self, turns: Sequence[_Turn], own: Everybody | None = None) -> list[Outcome]:
        """Trainings in turn, each with other clients' values of the turn's kind."""
        own = self._own if own is None else own
        self.steps.begin()
        return [
            self.steps.run(
                turn.user,
                {**self._others(turn), turn.user: own[turn.user]},
                self._seeds[turn.user],
            )
            for turn in turns
        ]

    def _others(self, turn: _Turn) -> Everybody:
        """The values of all clients, of the kind of a turn; without a turn, those they train on."""
        if not turn.kind:
            return self._own
        if turn.kind not in RELATIONS:
            return self._drawn.setdefault(turn.kind, self._draw(turn.kind))
        reader, generator = self._own[turn.user], self.trial.generator("client.related")
        (shared,) = self.trial.torch_seeds("client.alike", [0]).values()

        def like(make: Related, name: str, old: Tensor) -> Tensor:
            mine = reader.get(name, old)
            fits = (mine.shape, mine.dtype) == (old.shape, old.dtype) and not is_exact(old)
            return make(mine, old) if fits else old

        found = {}
        for user, values in self._own.items():
            make = related(turn.kind, self.trial.scale, generator, shared)
            found[user] = {name: like(make, name, old) for name, old in values.items()}
        return found

    def _draw(self, kind: str) -> Everybody:
        generator = self.trial.generator(f"client.{kind}")
        users = self.steps.users
        how = drawn(kind, len(users), generator, variant=self.trial.seed // 3 % 2 == 1)
        values = {
            user: {
                name: how.values(old, self.trial.scale, generator, place)
                for name, old in self.steps.origin[user].items()
            }
            for place, user in enumerate(users)
        }
        return {
            user: {name: v if is_exact(v) else v + 0.0 for name, v in each.items()}
            for user, each in values.items()
        }


def _difference(found: Values, due: Values) -> str | None:
    """The first thing that differs, in words; None if all bits agree."""
    for what in {**due, **found}:
        if what not in due or what not in found or not equal_bits(found[what], due[what]):
            return what
    return None
