"""Local trainings one after another on one model, and all that each of them ends with.

Every training begins from the same federated values and buffers, and takes real steps: ``begin``,
then a batch, a backward pass with its hooks and a step of SGD with momentum, and once more. Then
all tensors are put back. What a model or a loss remembers beside them is put back only when a new
sequence begins, so that a training can find what others before it have left.
"""

import contextlib
import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import one_thread, seeded_torch
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.graph import graph_nodes
from secure_fedrec.properties.split.evaluation import (
    LOSS,
    Loss,
    begin_training,
    require_columns,
    require_scalar,
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

STEPS: Final = 2
"""Steps of every training. What the first one leaves, the second may find."""

_RATE: Final = 0.01
# So many tensors are compared with what they were after every training; of more, when all are done.
_CLOSELY: Final = 64
_WRITERS: Final = 64  # are named at most

Digests: TypeAlias = dict[int, tuple[bytes, ...]]
"""What every reader's trainings end with, in brief; two where it trains twice."""

Observed: TypeAlias = list[tuple[str, Values]]
"""What a training shows, stage by stage: what it is in words, and values by name."""

Overwritten: TypeAlias = tuple[int, str, int | None, float]
"""(who trained, name, whose values were overwritten or None for a shared buffer, change)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Inspection:
    """What else is seen of a training.

    Args:
        gradients: largest absolute gradients on all users' private values, by slot:
            float64[n_users].
        reached: names of what its losses have a gradient on that is not 0.
        finite: whether losses, gradients and what was written can be compared.
        leaf: a leaf tensor of its loss's graph that is no parameter.
        failed: whether it raised an error.
    """

    gradients: dict[str, Tensor] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    finite: bool = True
    leaf: Tensor | None = None
    failed: bool = False

    def note_sizes(
        self, slot: PrivateSlot, owner: int | None, gradient: Tensor, users: int
    ) -> None:
        """Note the largest absolute gradient on every user's part of a slot; 0 without any."""
        if not gradient.numel():
            return
        if owner is None:
            sizes = gradient.abs().reshape(users, -1).amax(1).to(torch.float64)
        else:
            sizes = torch.zeros(users, dtype=torch.float64)
            sizes[owner] = gradient.abs().max()
        self.gradients[slot.name] = torch.maximum(sizes, self.gradients.get(slot.name, sizes))


class Setting(NamedTuple):
    """A training that is looked at, and what comes before it.

    Args:
        others: state with what others hold, and the federated values of that time.
        history: who has trained before, on these values.
        then: state with what others hold since.
        reader: whose training it is.
    """

    others: Values
    history: tuple[int, ...]
    then: Values
    reader: int


class _Sequence(NamedTuple):
    """Whose trainings come before those that are looked at; see ``LocalTraces.digests``."""

    others: Values
    history: tuple[int, ...]
    then: Values
    rehearsed: bool = False
    again: bool = True


_Note: TypeAlias = Callable[[str, Mapping[str, Tensor]], None]


def _unnoted(_what: str, _values: Values) -> None:
    """Nobody looks at a training that is only there to be remembered."""


class LocalTraces:
    """Sequences of local trainings of one trial.

    Args:
        split: the model; used in place.
        loss: of one user.
        batches: draws a batch.
        memory: what model and loss remember, as it is before anybody trains.
        trial: seeds of batches and dropout.
        start: state with what every reader trains on: federated values, its own, buffers.

    Attributes:
        begun: the state that readers begin with.
        overwritten: values that were others' and were written into, as they are found.
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
        self._loss = loss
        self._batches = batches
        self._memory = memory
        self.begun = start
        everybody = range(split.n_users)
        self._batch_seeds = trial.torch_seeds("batch", everybody)
        self._layer_seeds = trial.torch_seeds("dropout", everybody)
        self._weights = split.trainable_places()
        trained = list({id(weight): weight for weight, *_ in self._weights}.values())
        # Not Adam: what it divides by is 0 in float16.
        self._optimizer = torch.optim.SGD(trained or [torch.zeros(1)], lr=_RATE, momentum=0.9)
        self._common = (*split.federated, *split.shared_buffers)
        self.overwritten: list[Overwritten] = []
        self._steps = STEPS
        self._examples: int | None = None

    def shortened(self, *, steps: int, examples: int | None = None) -> "LocalTraces":
        """The same with fewer steps to a training, and fewer examples to a batch."""
        shorter = copy.copy(self)
        shorter._steps, shorter._examples = steps, examples
        shorter.overwritten = []
        return shorter

    def beginning(self, start: Values) -> "LocalTraces":
        """The same where readers begin with other values of their own."""
        other = copy.copy(self)
        other.begun, other.overwritten = start, []
        return other

    def batch_size(self, user: int) -> int:
        """Examples of a user's first batch."""
        draw = torch.Generator().manual_seed(self._batch_seeds[user])
        columns = self._batches(user, draw).values()
        return max((len(column) for column in columns if column.dim()), default=1)

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
        """What every reader's training ends with, in brief.

        Args:
            others: state with the private values of everybody who is not training, and with the
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
                    digest.update(raw_bytes(_numbers(what, value)).numpy().data)

            inspection = None if inspections is None else inspections.setdefault(user, Inspection())
            failure = self._attempt(user, note, inspection)
            end = digest.digest() if failure is None else repr(failure).encode()
            found[user] = (*found.get(user, ()), end)

        now = others if then is None else then
        sequence = _Sequence(others, tuple(history), now, rehearsed, again)
        self._run(sequence, readers, train)
        return found

    def require_alone(self, others: Values, user: int) -> None:
        """Train with nobody before, and raise what that raises: the model's own error."""
        loudly = partial(self._train, note=_unnoted, inspection=None, closely=False)
        self._run(_Sequence(others, (), others), [user], loudly)

    def observed(self, setting: Setting, *, recorder: Recorder | None = None) -> Observed:
        """All that one reader's training shows, and another one after it.

        Args:
            setting: whose training, and what comes before it.
            recorder: of what the reader computes.
        """
        found: Observed = []

        def train(user: int) -> None:
            again = " (in a second training)" if found else ""

            def note(what: str, values: Values) -> None:
                copies = {name: _numbers(what, value).clone() for name, value in values.items()}
                found.append((what + again, copies))

            with contextlib.nullcontext() if recorder is None else recorder.recording():
                failure = self._attempt(user, note, None, closely=True)
            if failure is not None:
                found.append((f"{type(failure).__name__}: {failure}", {}))

        sequence = _Sequence(setting.others, setting.history, setting.then)
        self._run(sequence, [setting.reader, setting.reader], train)
        return found

    def left(self, others: Values, user: int, name: str) -> Tensor:
        """What a tensor of the model holds when a user has trained."""
        found: list[Tensor] = []

        def train(user: int) -> None:
            self._attempt(user)
            found.append(self._split.tensors[name].detach().clone())

        self._run(_Sequence(others, (), others), [user], train)
        return found[0]

    def _run(
        self, sequence: _Sequence, readers: Sequence[int], train: Callable[[int], object]
    ) -> None:
        closely = sum(len(slot.sources) for slot in self._split.own) <= _CLOSELY
        written = self._replay(sequence, readers, train, closely=closely)
        if written and not closely:  # the same again, with everything compared after each training
            before = len(self.overwritten)
            self._replay(sequence, readers, self._attempt, closely=True, until=before + _WRITERS)

    def _replay(
        self,
        sequence: _Sequence,
        readers: Sequence[int],
        train: Callable[[int], object],
        *,
        closely: bool,
        until: int | None = None,
    ) -> bool:
        """Run a sequence; whether anybody's values are not what they were put back to."""
        others, history, then, rehearsed, interleaved = sequence
        self._memory.restore()
        self._split.load(others)
        previous = set(history)
        for user in history:
            self._attempt(user)
            self._put_back(user, others, closely=closely)
        written = not closely and self._is_written(others)
        if then is not others:
            self._split.load(then)
        for place, user in enumerate(readers):
            if rehearsed:
                self._split.load({name: others[name] for name in self._common})
                self._attempt(user)
                self._put_back(user, then, closely=closely)
            self._split.load_private(user, self._split.parts(self.begun, user))
            train(user)
            self._put_back(user, then, closely=closely)
            # What a reader has left must not hide what those before it had.
            if history and interleaved:
                again = user if user in previous else history[place % len(history)]
                self._attempt(again)
                self._put_back(again, then, closely=closely)
            if until is not None and len(self.overwritten) >= until:
                break
        return written or (not closely and self._is_written(then))

    def _is_written(self, others: Values) -> bool:
        tensors = self._split.tensors
        sources = [name for slot in self._split.own for name in slot.sources]
        return not all(equal_bits(tensors[name], others[name]) for name in sources)

    def _attempt(
        self,
        user: int,
        note: _Note = _unnoted,
        inspection: Inspection | None = None,
        *,
        closely: bool = False,
    ) -> Exception | None:
        """Train; what the model raises is one of its answers."""
        try:
            self._train(user, note, inspection, closely=closely)
        except ConfigError:
            raise
        except Exception as failure:
            if inspection is not None:
                inspection.failed = True
            return failure
        return None

    def _train(
        self, user: int, note: _Note, inspection: Inspection | None, *, closely: bool
    ) -> None:
        model = self._split.model
        begin_training(self._loss, model)
        begun = self._own(user)
        note("value of {} before training", begun)
        if inspection is not None:
            begun = {name: value.isfinite() for name, value in begun.items()}
        self._optimizer.state.clear()
        draw = torch.Generator().manual_seed(self._batch_seeds[user])
        with one_thread(), seeded_torch(self._layer_seeds[user]):
            for step in range(self._steps):
                self._optimizer.zero_grad()
                batch = require_columns(self._batches(user, draw))
                if self._examples is not None:
                    batch = {n: c[: self._examples] if c.dim() else c for n, c in batch.items()}
                value = self._loss(model, user, batch)
                require_scalar(value)
                if inspection is not None and not step:
                    self._inspect_graph(value, inspection)
                value.backward()  # type: ignore[no-untyped-call]
                later = f" in step {step + 1}" if step else ""
                note("loss" + later, {LOSS: value.detach()})
                gradients = self._own_gradients(user, inspection)
                note("gradient of {}" + later, gradients)
                if closely:
                    note("value of {} after the loss" + later, self._own(user))
                if inspection is not None:
                    self._inspect_step(user, value, gradients, begun, inspection)
                self._optimizer.step()
        note("value of {} after local training", self._own(user))

    def _own(self, user: int) -> dict[str, Tensor]:
        """What a user takes out of local training: w_f, and all that is its own."""
        tensors = self._split.tensors
        own = {name: tensors[name].detach() for name in self._split.federated}
        for slot in self._split.own:
            own[slot.name] = slot.part(tensors, user).detach()
        return own

    def _own_gradients(self, user: int, inspection: Inspection | None) -> dict[str, Tensor]:
        """Gradients on what a user trains. Of others' parts none is left: they are not there."""
        own: dict[str, Tensor] = {}
        for weight, rows, name, slot, owner in self._weights:
            if weight.grad is None:
                continue
            if weight.grad.is_sparse:
                weight.grad = weight.grad.to_dense()
            gradient = weight.grad if rows is None else weight.grad[rows]
            if slot is None:
                own[name] = gradient
                continue
            if inspection is not None:
                inspection.note_sizes(slot, owner, gradient, self._split.n_users)
            if owner is None:
                row = gradient[user].clone()
                gradient.zero_()
                gradient[user] = row
                own[slot.name] = row
            elif owner == user:
                own[slot.name] = gradient
            else:
                weight.grad = None
        return own

    def _inspect_graph(self, value: Tensor, inspection: Inspection) -> None:
        parameters = {id(weight) for weight, *_ in self._weights}
        for node in graph_nodes(value):
            if hasattr(node, "variable") and id(node.variable) not in parameters:
                inspection.leaf = node.variable

    def _inspect_step(
        self, user: int, value: Tensor, gradients: Values, begun: Values, inspection: Inspection
    ) -> None:
        inspection.reached |= {n for n, found in gradients.items() if bool(found.any())}
        # A NaN stays a NaN, whatever it was made of: what is not finite could not be compared.
        written = self._own(user)
        inspection.finite &= (
            bool(value.isfinite().all())
            and all(bool(each.isfinite().all()) for each in gradients.values())
            and all(bool((written[n].isfinite() | ~begun[n]).all()) for n in written)
        )

    # --- putting back ---

    def _put_back(self, user: int, others: Values, *, closely: bool) -> None:
        """Undo a training, and note what it wrote that was not its own."""
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
    """Readers of the first whose trainings end differently in the other, in ascending order."""
    return sorted(user for user, ends in one.items() if ends != other[user])


def _numbers(what: str, value: Tensor) -> Tensor:
    """Values bit for bit; losses and gradients as numbers, of which -0.0 is 0.0."""
    return value.detach() if what.startswith("value") else value.detach() + 0.0
