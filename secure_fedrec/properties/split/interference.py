"""Finds users that disturb the local training of others, in two steps.

First all users of a trial train, and then all of them again, with different values of the other
users: a reader whose bits agree is not disturbed by any user. Others' values and federated values
also change between the two trainings, since a model may compare remembered values with current
ones; the users that train before, and their order, vary as well. A reader whose bits differ may
have been affected only by itself, since a device may remember its own values. So readers are tested
again after trainings of others only: one by one or, if there are many, together, after sets of
others such that for every two users some set contains one but not the other. A bisection then finds
the other user.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count, islice
from math import comb
from typing import Final

import torch

from secure_fedrec.properties.split.evaluation import LOSS
from secure_fedrec.properties.split.locating import Crossing, first_difference, located, mixed
from secure_fedrec.properties.split.model import SplitModel, Values
from secure_fedrec.properties.split.report import Findings
from secure_fedrec.properties.split.traces import Digests, LocalTraces, Observed, Setting, differing
from secure_fedrec.properties.split.trials import Trial, first_change

TRAINING: Final = "local training"

_ALONE: Final = 16  # up to this many suspects are tried one by one
_NAMED: Final = 16  # readers per trial for which the cause is searched
_NAMED_OF_MANY: Final = 2  # the same if the search has to train many users
_MANY: Final = 64
_RESTLESS: Final = (
    "of user {} differs between two calls with equal parameters, batch and random stream: it keeps "
    "state, or draws outside torch's generator"
)

_ORDER: Final = (
    "of user {} differs with the order in which users train, and no other user by itself moves it"
)


@dataclass(eq=False)
class Interference:
    """The search in one trial.

    Args:
        split: the model.
        traces: runs sequences of trainings.
        findings: where violations go.
        trial: whose users are searched.
        base: state with other users' values of one draw.
        earlier: the same with the federated values of an earlier round.

    Attributes:
        broken: readers that a user disturbs.
    """

    split: SplitModel
    traces: LocalTraces
    findings: Findings
    trial: Trial
    base: Values
    earlier: Values
    broken: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        trial = self.trial
        self._draw = trial.generator("order")
        # In reverse order, beginning with another user in every trial, so that each user also
        # trains before each other one, and with few users before all others.
        backwards, first = trial.users[::-1], trial.seed % len(trial.users)
        self._turned = (*backwards[first:], *backwards[:first])

    def search(self, fresh: Digests, changed: Sequence[Values]) -> None:
        """Look for values and trainings that reach some readers.

        Args:
            fresh: results of their training when no other user had trained before.
            changed: two states with other values of all users.
        """
        users, readers = self.trial.users, list(fresh)
        one, other = changed
        # With many users, one arm only: a trial of all of them costs as much as all other trials.
        arms = [(self._turned, one, self._now(other)), (self._some(users), other, self._now(one))]
        arms = arms[: 1 if len(users) > _ALONE else 2]
        after = self._after(readers)
        moved = {
            user
            for history, before, then in arms
            for user in differing(
                after, self.traces.digests(before, history=history, then=then, readers=readers)
            )
        }
        at_once = self.traces.digests(self.earlier, then=self.base, readers=readers, rehearsed=True)
        turned = self.traces.digests(self.base, readers=self._turned)
        ordered = {*differing(fresh, turned)}
        present = {*differing(after, fresh), *differing(after, at_once), *ordered}
        if not moved and not present:
            return
        restless = self._restless(fresh, after)
        for user in sorted(restless):
            self._leave_open(_RESTLESS.format(user))
        suspects = sorted(moved - restless)
        for others in changed:
            self._search_values(suspects, others)
        for history, before, then in arms:
            self._search_changes(suspects, history, before, then)
        self._search_presence(sorted({*present, *moved} - restless))
        unnamed = sorted(ordered - restless)
        if unnamed and not self.broken:
            self._leave_open(_ORDER.format(unnamed[0]))

    def search_related(self, fresh: Digests, related: Values) -> None:
        """Look for values that reach readers because they are related to theirs.

        Args:
            fresh: see ``search``.
            related: a state with all users' values made from those that all readers have.
        """
        readers, users = list(fresh), self.trial.users
        now = self._now(related)
        # With many users, their memory is left out: trials of some users test it.
        before = users if len(users) <= _ALONE else ()
        after = self.traces.digests(
            related if before else now, history=before, then=now, readers=readers, again=False
        )
        moved = differing(fresh, after)
        if not moved:
            return
        restless = differing(fresh, self.traces.digests(self.base, readers=readers))
        self._search_values([user for user in moved if user not in restless], now)

    def _after(self, readers: Sequence[int]) -> Digests:
        """The readers' results after all users have trained on the base, in an earlier round."""
        users = self.trial.users
        return self.traces.digests(self.earlier, history=users, then=self.base, readers=readers)

    def _now(self, state: Values) -> Values:
        """A state with the federated values that readers train on."""
        return {**state, **{name: self.base[name] for name in self.split.federated}}

    def _some(self, users: Sequence[int]) -> tuple[int, ...]:
        """Some of the users, one at least, in any order."""
        number = int(torch.randint(len(users), (), generator=self._draw)) + 1
        order = torch.randperm(len(users), generator=self._draw).tolist()
        return tuple(users[place] for place in order[:number])

    def _restless(self, fresh: Digests, after: Digests) -> set[int]:
        """The readers whose training has other results when the same sequence is run again."""
        after_again = self._after(list(fresh))
        fresh_again = self.traces.digests(self.base, readers=list(fresh))
        return {*differing(after, after_again), *differing(fresh, fresh_again)}

    def _search_values(self, suspects: Sequence[int], others: Values) -> None:
        """Test whether readers depend on other users' values, or on what these left."""
        for user in self._suspects_between(suspects, (), self.base, others):
            self._blame_values(user, others, range(self.split.n_users), ())
        for left, writers in self._apart(suspects):
            parts = [(slot, user) for slot in self.split.own for user in writers]
            there = mixed(self.base, others, parts)
            for user in self._suspects_between(left, writers, self.base, there):
                self._blame_values(user, others, writers, writers)

    def _search_changes(
        self, suspects: Sequence[int], history: Sequence[int], before: Values, then: Values
    ) -> None:
        """Test whether readers depend on changes of others' values since all trained."""
        left = [each for each in suspects if each not in self.broken]
        if not left:
            return
        found = [
            self.traces.digests(before, history=history, then=each, readers=left)
            for each in (self._now(before), then)
        ]
        for user in differing(*found):
            self._blame_values(user, then, range(self.split.n_users), history, before=before)

    def _search_presence(self, suspects: Sequence[int]) -> None:
        """Test whether readers depend on others' trainings: at all, or since their own."""
        for left, writers in self._apart(suspects):
            for first in ((), tuple(left)):
                alone, after = (
                    self.traces.digests(
                        self.earlier, history=history, then=self.base, readers=[*left, *left]
                    )
                    for history in (first, (*first, *writers))
                )
                for user in sorted({*differing(alone, after)} - self.broken):
                    one, two = self.traces.digests(self.base, readers=[user, user])[user]
                    if one != two:
                        self.broken.add(user)
                        self._leave_open(_RESTLESS.format(user))
                    else:
                        self._blame_presence(user, first, writers)

    def _apart(self, suspects: Sequence[int]) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """Readers that are not known to be disturbed, and other users to train before them."""
        users = self.trial.users
        if len(suspects) > _ALONE:
            for writers in separations(users):
                left = [each for each in suspects if each not in {*self.broken, *writers}]
                if left:
                    yield left, writers
            if len(users) > _MANY:
                return
        for each in [user for user in suspects if user not in self.broken][:_ALONE]:
            others = tuple(user for user in users if user != each)
            before = self._turned[: self._turned.index(each)]
            for writers in (others, self._some(others)[:1], self._some(others), before):
                if writers and each not in self.broken:
                    yield [each], writers

    def _suspects_between(
        self, readers: Sequence[int], history: Sequence[int], one: Values, other: Values
    ) -> list[int]:
        """Users whose training, or the one after, differs between two draws of others' values."""
        if not readers:
            return []
        twice = [*readers, *readers]
        return differing(
            *(self.traces.digests(state, history=history, readers=twice) for state in (one, other))
        )

    def _blame_values(
        self,
        reader: int,
        others: Values,
        owners: Sequence[int],
        history: Sequence[int],
        *,
        before: Values | None = None,
    ) -> None:
        """Find the one value that moves a training, by halves.

        Args:
            reader: whose training.
            others: where values come from.
            owners: whose values.
            history: who trains before.
            before: on which values, if those only change afterwards.
        """
        parts = [(slot, owner) for slot in self.split.own for owner in owners if owner != reader]
        base = self.base if before is None else self._now(before)

        def at(number: int) -> Setting:
            then = mixed(base, others, parts[:number])
            return Setting(then if before is None else before, tuple(history), then, reader)

        verb = "moves with it"
        if history:
            verb += ", after that user has trained" if before is None else ", after all trained"
        self._blame(reader, history, [(slot.name, owner) for slot, owner in parts], at, verb)

    def _blame_presence(self, reader: int, first: Sequence[int], history: Sequence[int]) -> None:
        """Find the one user whose training moves another's, by halves.

        Args:
            reader: whose training.
            first: users that have trained before all, the reader among them; may be empty.
            history: users that have trained since.
        """

        def at(number: int) -> Setting:
            return Setting(self.earlier, (*first, *history[:number]), self.base, reader)

        verb = "moves when that has been " + ("in between" if first else "before")
        self._blame(reader, history, [(TRAINING, user) for user in history], at, verb)

    def _blame(
        self,
        reader: int,
        history: Sequence[int],
        steps: Sequence[tuple[str, int]],
        at: Callable[[int], Setting],
        verb: str,
    ) -> None:
        """Report the first step that changes what is observed, if all of them together do.

        Args:
            reader: whose training.
            history: who trains before.
            steps: what is moved, and whose it is.
            at: the training after so many of them.
            verb: what the training does, in words.
        """
        if len(self.broken) >= (_NAMED_OF_MANY if len(history) > _MANY else _NAMED):
            self.broken.add(reader)
            return
        # First without the optimiser's steps: after a step, values depend on everything trained.
        for traces in (self.traces.still(), self.traces):
            expected = traces.observed(at(0))

            def changed(
                number: int, traces: LocalTraces = traces, expected: Observed = expected
            ) -> bool:
                return first_difference(traces.observed(at(number)), expected) is not None

            if changed(len(steps)):
                break
        else:
            return
        step = first_change(len(steps), changed)
        self.broken.add(reader)
        found = first_difference(traces.observed(at(step + 1)), expected)
        what, size = found or (TRAINING, float("nan"))
        name, owner = steps[step]
        crossing = Crossing(at(step), at(step + 1), owner)
        self.findings.violate(
            1,
            name,
            (owner, reader),
            f"that user's {what} {verb}",
            size,
            self.trial.seed,
            locate=lambda: located(self.traces, crossing),
        )

    def _leave_open(self, problem: str) -> None:
        self.findings.leave_open(LOSS, problem, self.trial.seed)


def separations(users: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sets of users such that any of them is in a set without any other one.

    Every user is in its own half of the sets, and no half contains another. So about log2 of the
    number of users are enough.
    """
    sets = next(size for size in count(2) if comb(size, size // 2) >= len(users))
    halves = list(islice(combinations(range(sets), sets // 2), len(users)))
    for number in range(sets):
        yield tuple(user for user, half in zip(users, halves, strict=True) if number in half)
