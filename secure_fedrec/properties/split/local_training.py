"""One user's local training in a trial, with all observations.

It takes real steps: ``begin``, then twice a batch, a backward pass with its hooks and a step of SGD
with momentum. It draws the same batches and the same dropout whenever it is repeated.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import Batch, one_thread, seeded_torch
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.graph import graph_nodes
from secure_fedrec.properties.split.evaluation import (
    LOSS,
    Loss,
    begin_training,
    require_columns,
    require_scalar,
)
from secure_fedrec.properties.split.model import PrivateSlot, SplitModel, Values
from secure_fedrec.properties.split.random import Batches
from secure_fedrec.properties.split.trials import Trial

STEPS: Final = 2
"""Steps of every training. The second step may find state that the first one left."""

_RATE: Final = 0.01

Note: TypeAlias = Callable[[str, Mapping[str, Tensor]], None]
"""Called with each observation of a training: a description, and values by name."""


def unnoted(_what: str, _values: Values) -> None:
    """Ignores the observations of a training that serves only as history."""


@dataclass(slots=True, kw_only=True, eq=False)
class Inspection:
    """Further observations of a training.

    Args:
        gradients: largest absolute gradients on all users' private values, by slot:
            float64[n_users].
        reached: names of the tensors on which its losses have a gradient other than 0.
        finite: whether losses, gradients and written values are finite and so can be compared.
        leaf: a leaf tensor of its loss's graph that is not a parameter.
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


class LocalTraining:
    """Local training of every user.

    Args:
        split: the model; used in place.
        loss: loss of one user.
        batches: draws a batch.
        trial: seeds of batches and dropout.
    """

    def __init__(self, split: SplitModel, loss: Loss, batches: Batches, trial: Trial) -> None:
        self._split = split
        self._loss = loss
        self._batches = batches
        everybody = range(split.n_users)
        self._batch_seeds = trial.torch_seeds("batch", everybody)
        self._layer_seeds = trial.torch_seeds("dropout", everybody)
        self._weights = split.trainable_places()
        trained = list({id(weight): weight for weight, *_ in self._weights}.values())
        # Not Adam: what it divides by is 0 in float16.
        self._optimizer = torch.optim.SGD(trained or [torch.zeros(1)], lr=_RATE, momentum=0.9)
        self._steps = STEPS
        self._examples: Sequence[int] | None = None
        self._still = False

    def shortened(self, *, steps: int, examples: Sequence[int] | None = None) -> "LocalTraining":
        """The same with fewer steps to a training, and some of the examples of a batch."""
        shorter = copy.copy(self)
        shorter._steps, shorter._examples = steps, examples
        return shorter

    def still(self) -> "LocalTraining":
        """The same without optimiser steps: a value only affects what is computed from it."""
        found = copy.copy(self)
        found._still = True
        return found

    def batch_size(self, user: int) -> int:
        """Examples of a user's first batch."""
        draw = torch.Generator().manual_seed(self._batch_seeds[user])
        columns = self._batches(user, draw).values()
        return max((len(column) for column in columns if _has_rows(column)), default=1)

    def attempt(
        self,
        user: int,
        note: Note = unnoted,
        inspection: Inspection | None = None,
        *,
        closely: bool = False,
    ) -> Exception | None:
        """Train (see ``train``); an error that the model raises counts as a result."""
        try:
            self.train(user, note, inspection, closely=closely)
        except ConfigError:
            raise
        except Exception as failure:
            if inspection is not None:
                inspection.failed = True
            return failure
        return None

    def train(self, user: int, note: Note, inspection: Inspection | None, *, closely: bool) -> None:
        """Train, and let the model's own errors pass.

        Args:
            user: the user that trains.
            note: called with the observations, stage by stage.
            inspection: where more is noted.
            closely: whether the values after every loss are shown, too.
        """
        model = self._split.model
        begin_training(self._loss, model)
        begun = self.own(user)
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
                    batch = _picked(batch, self._examples)
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
                    note("value of {} after the loss" + later, self.own(user))
                if inspection is not None:
                    self._inspect_step(user, value, gradients, begun, inspection)
                if not self._still:
                    self._optimizer.step()
        note("value of {} after local training", self.own(user))

    def own(self, user: int) -> dict[str, Tensor]:
        """A user's result of local training: w_f, and all private values of its own."""
        tensors = self._split.tensors
        own = {name: tensors[name].detach() for name in self._split.federated}
        for slot in self._split.own:
            own[slot.name] = slot.part(tensors, user).detach()
        return own

    def _own_gradients(self, user: int, inspection: Inspection | None) -> dict[str, Tensor]:
        """Gradients on what a user trains. Other users' parts do not have gradients."""
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
        # A NaN stays NaN whatever its inputs, so values that are not finite could not be compared.
        written = self.own(user)
        inspection.finite &= (
            bool(value.isfinite().all())
            and all(bool(each.isfinite().all()) for each in gradients.values())
            and all(bool((written[n].isfinite() | ~begun[n]).all()) for n in written)
        )


def _has_rows(column: object) -> bool:
    """Whether a column has an entry per example; a number, a dict or a list is handed on whole."""
    return isinstance(column, Tensor | np.ndarray) and column.ndim > 0


def _picked(batch: Batch, places: Sequence[int]) -> Batch:
    """Some examples of a batch, if it has them."""
    return {
        name: column[[place for place in places if place < len(column)]]
        if _has_rows(column)
        else column
        for name, column in batch.items()
    }


def numbers(what: str, value: Tensor) -> Tensor:
    """Values bit for bit; losses and gradients as numbers, of which -0.0 is 0.0."""
    return value.detach() if what.startswith("value") else value.detach() + 0.0
