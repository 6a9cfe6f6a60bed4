"""Sequences of local trainings on one model, and the results of each.

Every training begins from the same federated values and buffers. When it is done, all tensors are
put back. Other state of a model or a loss is restored only when a new sequence begins, so that a
training can read what earlier ones have left.
"""

import contextlib
import copy
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from torch import Tensor

from secure_fedrec.properties.split.evaluation import Loss
from secure_fedrec.properties.split.local_training import (
    Inspection,
    LocalTraining,
    numbers,
    unnoted,
)
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import PrivateSlot, SplitModel, Values
from secure_fedrec.properties.split.random import Batches
from secure_fedrec.properties.split.reading import Recorder
from secure_fedrec.properties.split.trials import (
    Trial,
    equal_bits,
    largest_change,
    raw_bytes,
    same_numbers,
)

# Up to this many tensors are compared after every training; more only after the last.
_CLOSELY: Final = 64
_WRITERS: Final = 64  # at most this many writers are named

Digests: TypeAlias = dict[int, tuple[bytes, ...]]
"""Digests of the results of every reader's training; two if it trains twice."""

Observed: TypeAlias = list[tuple[str, Values]]
"""Observations of a training, stage by stage: a description, and values by name."""

Overwritten: TypeAlias = tuple[int, str, int | None, float]
"""(who trained, name, whose values were overwritten or None for a shared buffer, change)."""


class Setting(NamedTuple):
    """An observed training, and the trainings before it.

    Args:
        others: state with the other users' values, and the federated values of that time.
        history: who has trained before, on these values.
        then: state with the other users' values afterwards.
        reader: the user that trains.
    """

    others: Values
    history: tuple[int, ...]
    then: Values
    reader: int


class Run(NamedTuple):
    """Trainings in order, of which the last one is examined.

    Args:
        others: state with the values of all.
        history: who trains first, on these values.
        then: state with the values of all afterwards.
        since: who trains then, each on its own values.
        reader: whose training comes last, on the values that readers begin with.
    """

    others: Values
    history: tuple[int, ...]
    then: Values
    since: tuple[int, ...]
    reader: int


class _Sequence(NamedTuple):
    """The trainings before the observed ones; see ``LocalTraces.digests``."""

    others: Values
    history: tuple[int, ...]
    then: Values
    rehearsed: bool = False
    again: bool = True


class LocalTraces:
    """Sequences of local trainings of one trial.

    Args:
        split: the model; used in place.
        loss: loss of one user.
        batches: draws a batch.
        memory: what model and loss remember, as it is before any training.
        trial: seeds of batches and dropout.
        start: state with what every reader trains on: federated values, its own, buffers.

    Attributes:
        begun: the state that readers begin with.
        training: training of one user.
        overwritten: values of others that were written, in the order found.
    """

    def __init__(
        self,
        split: SplitModel,
        loss: Loss,
        batches: Batches,
        memory: Memory,
        trial: Trial,
        start: Values,
    ) -> None:
        self._split = split
        self._memory = memory
        self.begun = start
        self.training = LocalTraining(split, loss, batches, trial)
        self._common = (*split.federated, *split.shared_buffers)
        self.overwritten: list[Overwritten] = []

    def shortened(self, *, steps: int, examples: Sequence[int] | None = None) -> "LocalTraces":
        """The same with fewer steps to a training, and some of the examples of a batch."""
        shorter = copy.copy(self)
        shorter.training = self.training.shortened(steps=steps, examples=examples)
        shorter.overwritten = []
        return shorter

    def still(self) -> "LocalTraces":
        """The same without the optimiser's steps."""
        found = copy.copy(self)
        found.training, found.overwritten = self.training.still(), []
        return found

    def beginning(self, start: Values) -> "LocalTraces":
        """The same where readers begin with other values of their own."""
        other = copy.copy(self)
        other.begun, other.overwritten = start, []
        return other

    def digests(
        self,
        others: Values,
        *,
        history: Sequence[int] = (),
        then: Values | None = None,
        readers: Sequence[int],
        rehearsed: bool = False,
        again: bool = True,
        inspections: dict[int, Inspection] | None = None,
    ) -> Digests:
        """Digests of every reader's result.

        Args:
            others: state with the private values of all users that are not training, and with the
                federated ones of that time.
            history: who has trained before, on these values.
            then: state with what others hold since; ``others`` if not given.
            readers: who trains then, one after another, on the values of ``start``.
            rehearsed: whether each of them trains right before as in the history.
            again: whether somebody of the history trains again after each of them.
            inspections: where more is noted, by reader.
        """
        found: Digests = {}

        def train(user: int) -> None:
            digest = hashlib.blake2b(digest_size=16)

            def note(what: str, values: Values) -> None:
                for value in values.values():
                    digest.update(raw_bytes(numbers(what, value)).numpy().data)

            inspection = None if inspections is None else inspections.setdefault(user, Inspection())
            failure = self.training.attempt(user, note, inspection)
            end = digest.digest() if failure is None else repr(failure).encode()
            found[user] = (*found.get(user, ()), end)

        now = others if then is None else then
        sequence = _Sequence(others, tuple(history), now, rehearsed, again)
        self._run(sequence, readers, train)
        return found

    def require_alone(self, others: Values, user: int) -> None:
        """Train without other users before, and raise the model's own error."""
        loudly = partial(self.training.train, note=unnoted, inspection=None, closely=False)
        self._run(_Sequence(others, (), others), [user], loudly)

    def observed(self, setting: Setting) -> Observed:
        """All observations of one reader's training, and of another one after it.

        Args:
            setting: whose training, and what comes before it.
        """
        found: Observed = []

        def train(user: int) -> None:
            found.extend(self._shown(user, " (in a second training)" if found else ""))

        sequence = _Sequence(setting.others, setting.history, setting.then)
        self._run(sequence, [setting.reader, setting.reader], train)
        return found

    def last(self, run: Run, *, recorder: Recorder | None = None) -> Observed:
        """All observations of the last training of a run.

        Args:
            run: who trains.
            recorder: of what its reader computes since the values are ``run.then``.
        """
        self._memory.restore()
        self._split.load(run.others)
        for user in run.history:
            self.training.attempt(user)
            self._put_back(user, run.others, closely=True)
        self._split.load(run.then)
        found: Observed = []
        for user in (*run.since, run.reader):
            mine = user == run.reader
            if mine:
                self._split.load_private(user, self._split.parts(self.begun, user))
            with recorder.recording() if mine and recorder else contextlib.nullcontext():
                found = self._shown(user)
            self._put_back(user, run.then, closely=True)
        return found

    def plain(self, setting: Setting, *, federated: bool, own: bool) -> Setting:
        """The same, with shared values and the reader's equal in all trainings."""
        others, then, reader = setting.others, setting.then, setting.reader
        if own:
            others, then = self._with_own(others, reader), self._with_own(then, reader)
        if federated:
            others = {**others, **{name: then[name] for name in self._common}}
        return setting._replace(others=others, then=then)

    def _with_own(self, state: Values, user: int) -> Values:
        """A state in which a user has the values that readers begin with."""
        found = dict(state)
        for slot in self._split.own:
            found |= {source: state[source].clone() for source in slot.sources}
            slot.part(found, user).copy_(slot.part(self.begun, user))
        return found

    def _shown(self, user: int, again: str = "") -> Observed:
        found: Observed = []

        def note(what: str, values: Values) -> None:
            copies = {name: numbers(what, value).clone() for name, value in values.items()}
            found.append((what + again, copies))

        failure = self.training.attempt(user, note, None, closely=True)
        if failure is not None:
            found.append((f"{type(failure).__name__}: {failure}", {}))
        return found

    def writes(self, run: Run, user: int, name: str, owner: int | None) -> bool:
        """Whether a user's training writes values of an owner; for None, shared ones."""
        probe = copy.copy(self)
        probe.overwritten = []
        probe.last(run)
        return (user, name, owner) in {found[:3] for found in probe.overwritten}

    def tensor(self, name: str, owner: int | None) -> Tensor:
        """A tensor of the model as it is now, or a user's part of a slot."""
        tensors, slots = self._split.tensors, {slot.name: slot for slot in self._split.own}
        return (tensors[name] if owner is None else slots[name].part(tensors, owner)).detach()

    def kept(self) -> list[Tensor]:
        """Tensors in which training may leave values: parameters, and all private ones."""
        names = {source for slot in self._split.own for source in slot.sources}
        return [self._split.tensors[name] for name in (*self._split.federated, *names)]

    def left(self, others: Values, user: int, name: str) -> Tensor:
        """The value of a tensor of the model after a user's training."""
        found: list[Tensor] = []

        def train(user: int) -> None:
            self.training.attempt(user)
            found.append(self._split.tensors[name].detach().clone())

        self._run(_Sequence(others, (), others), [user], train)
        return found[0]

    def _run(
        self, sequence: _Sequence, readers: Sequence[int], train: Callable[[int], object]
    ) -> None:
        closely = sum(len(slot.sources) for slot in self._split.own) <= _CLOSELY
        written = self._replay(sequence, readers, train, closely=closely)
        if written and not closely:  # repeat, and compare after each training
            before = len(self.overwritten)
            self._replay(
                sequence, readers, self.training.attempt, closely=True, until=before + _WRITERS
            )

    def _replay(
        self,
        sequence: _Sequence,
        readers: Sequence[int],
        train: Callable[[int], object],
        *,
        closely: bool,
        until: int | None = None,
    ) -> bool:
        """Run a sequence; whether any user's values differ from those that were restored."""
        others, history, then, rehearsed, interleaved = sequence
        self._memory.restore()
        self._split.load(others)
        previous = set(history)
        for user in history:
            self.training.attempt(user)
            self._put_back(user, others, closely=closely)
        written = not closely and self._is_written(others)
        if then is not others:
            self._split.load(then)
        for place, user in enumerate(readers):
            if rehearsed:
                self._split.load({name: others[name] for name in self._common})
                self.training.attempt(user)
                self._put_back(user, then, closely=closely)
            self._split.load_private(user, self._split.parts(self.begun, user))
            train(user)
            self._put_back(user, then, closely=closely)
            # A reader's leftovers must not hide those of earlier readers.
            if history and interleaved:
                again = user if user in previous else history[place % len(history)]
                self.training.attempt(again)
                self._put_back(again, then, closely=closely)
            if until is not None and len(self.overwritten) >= until:
                break
        return written or (not closely and self._is_written(then))

    def _is_written(self, others: Values) -> bool:
        tensors = self._split.tensors
        sources = [name for slot in self._split.own for name in slot.sources]
        return not all(equal_bits(tensors[name], others[name]) for name in sources)

    def _put_back(self, user: int, others: Values, *, closely: bool) -> None:
        """Undo a training, and record the values it wrote that were not its own."""
        split = self._split
        tensors = split.tensors
        for name in split.shared_buffers:
            if not same_numbers(tensors[name], others[name]):
                self._note_overwritten(user, name, None, others[name], tensors[name])
        split.load({name: others[name] for name in self._common})
        split.load_private(user, self._split.parts(others, user))
        for slot in self._split.own:
            if closely or slot.is_table:
                self._compare_slot(slot, others, user)

    def _compare_slot(self, slot: PrivateSlot, others: Values, user: int) -> None:
        tensors = self._split.tensors
        if slot.is_table and equal_bits(tensors[slot.name], others[slot.name]):
            return
        for owner in range(self._split.n_users):
            old, new = slot.part(others, owner), slot.part(tensors, owner).detach()
            if not equal_bits(old, new):
                self._note_overwritten(user, slot.name, owner, old, new)
                self._split.load_private(owner, {slot.name: old})

    def _note_overwritten(
        self, user: int, name: str, owner: int | None, old: Tensor, new: Tensor
    ) -> None:
        self.overwritten.append((user, name, owner, largest_change({name: old}, {name: new})[1]))


def differing(one: Digests, other: Digests) -> list[int]:
    """Readers of the first digests whose trainings have other results in the second, ascending."""
    return sorted(user for user, ends in one.items() if ends != other[user])
