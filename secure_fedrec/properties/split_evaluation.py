"""The loss of one user in the midst of its local training, with its gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch, one_thread, seeded_torch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split_model import PrivateSlot, SplitModel, Values
from secure_fedrec.properties.split_random import Batches
from secure_fedrec.properties.split_trials import Trial

__all__ = ["LOSS", "Anchored", "LocalEvaluation", "Loss", "Outcome", "Part", "begin_training"]

LOSS: Final = "loss"

Loss: TypeAlias = Callable[[nn.Module, int, Batch], Tensor]
"""(model, user, batch) -> the scalar that this user's local training minimises."""

Part: TypeAlias = tuple[PrivateSlot, int]
"""A private slot of one user."""


@runtime_checkable
class Anchored(Protocol):
    """A loss that must know where local training starts, as FedProx does."""

    def begin(self, model: nn.Module) -> None:
        """Called when a user's local training begins, its start values loaded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What the loss of one user says.

    Args:
        training: the loss (``LOSS``), and the gradients of all that this user trains, by name.
        private: largest absolute gradient on every user's private parameters, by slot:
            float64[n_users].
        begun: the federated values and the user's own private ones, by name, when the loss was
            told that training begins.
        left: the same values when loss and gradients were computed. A layer may write them, and
            what it writes is trained on, kept and averaged like any value.
    """

    training: Values
    private: Values
    begun: Values
    left: Values

    @property
    def is_finite(self) -> bool:
        """Whether it could be compared: a NaN stays a NaN, whatever it was made of."""
        written = (
            each.isfinite() | ~begun.isfinite()
            for each, begun in zip(self.left.values(), self.begun.values(), strict=True)
        )
        return all(bool(each.isfinite().all()) for each in self.training.values()) and all(
            bool(each.all()) for each in written
        )

    @property
    def observed(self) -> dict[str, Tensor]:
        """All that no other user's private value may move, by what it is in words."""
        return {
            **{
                name if name == LOSS else f"gradient of {name!r}": value
                for name, value in self.training.items()
            },
            **{f"value of {name!r} before training": each for name, each in self.begun.items()},
            **{f"value of {name!r} after the loss": each for name, each in self.left.items()},
        }

    @property
    def loss(self) -> Tensor:
        """The scalar."""
        return self.training[LOSS]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalEvaluation:
    """Evaluates the loss of any user at the same random parameters.

    Args:
        split: the model.
        loss: of one user.
        batches: draws a batch.
        trial: seeds of batches and dropout.
        start: state of the model when local training began.
        later: where it has moved what the user trains.
        elsewhere: other private values.
    """

    split: SplitModel
    loss: Loss
    batches: Batches
    trial: Trial
    start: Values
    later: Values
    elsewhere: Values

    def __call__(self, user: int, *, replaced: Sequence[Part] = ()) -> Outcome:
        """Loss and gradients of one user.

        Args:
            user: whose.
            replaced: parts of other users that have their values from ``elsewhere``.

        Raises:
            ConfigError: the loss is no scalar that depends on a trainable parameter.
        """
        begun = self._own(user, self._load(user, replaced))
        batch = self.batches(user, self.trial.generator("batch", user))
        weights = self.split.trainable().values()
        with one_thread(), seeded_torch(self.trial.torch_seed("dropout", user)):
            value = self.loss(self.split.model, user, batch)
            _require_scalar(value)
            found = torch.autograd.grad(value, list(weights), allow_unused=True)
        gradients = {
            id(weight): gradient.to_dense()
            for weight, gradient in zip(weights, found, strict=True)
            if gradient is not None
        }
        training, private = self._trained(user, value, gradients)
        left = self._own(user, self.split.state())
        return Outcome(training=training, private=private, begun=begun, left=left)

    def loaded(self, user: int) -> tuple[Values, Values]:
        """States of the model: when training has begun, and when a user's loss is computed."""
        begun = self._load(user, ())
        return begun, self.split.state()

    def _load(self, user: int, replaced: Sequence[Part]) -> Values:
        """Load what a user computes its loss at; the state when its training began."""
        split = self.split
        split.load(self.start)
        tensors = split.tensors()
        with torch.no_grad():
            for slot, owner in replaced:
                slot.part(tensors, owner).copy_(slot.part(self.elsewhere, owner))
        begin_training(self.loss, split.model)
        begun = split.state()
        split.load({name: self.later[name] for name in split.federated})
        split.load_private(user, {slot.name: slot.part(self.later, user) for slot in split.slots})
        return begun

    def _own(self, user: int, state: Values) -> dict[str, Tensor]:
        """What a user takes out of local training: w_f, and all that is its own."""
        own = {name: state[name] for name in self.split.federated}
        for slot in (*self.split.slots, *self.split.counters):
            own[slot.name] = slot.part(state, user)
        return own

    def _trained(
        self, user: int, value: Tensor, gradients: Mapping[int, Tensor]
    ) -> tuple[Values, Values]:
        """``training`` and ``private`` of an outcome."""
        tensors = self.split.tensors()
        training = {LOSS: value.detach()}
        for name in self.split.federated:
            if id(tensors[name]) in gradients:
                training[name] = gradients[id(tensors[name])]
        private: dict[str, Tensor] = {}
        for slot in self.split.slots:
            found = {
                source: gradients[id(tensors[source])]
                for source in slot.sources
                if id(tensors[source]) in gradients
            }
            if found:
                private[slot.name] = _sizes(slot, found, self.split.n_users)
            if slot.is_table and found:
                training[slot.name] = found[slot.name][user]
            elif not slot.is_table and slot.sources[user] in found:
                training[slot.name] = found[slot.sources[user]]
        return training, private


def begin_training(loss: object, model: nn.Module) -> None:
    """Tell a loss that wants to know it that local training starts here."""
    if isinstance(loss, Anchored):
        loss.begin(model)


def _sizes(slot: PrivateSlot, gradients: Values, n_users: int) -> Tensor:
    """Largest absolute gradient on every user's part of a slot; 0 where there is none."""
    if slot.is_table:
        rows = gradients[slot.name].to(torch.float64).abs().reshape(n_users, -1)
        return rows.amax(1) if rows.numel() else torch.zeros(n_users)
    sizes = [
        float(gradients[source].abs().max()) if source in gradients else 0.0
        for source in slot.sources
    ]
    return torch.tensor(sizes, dtype=torch.float64)


def _require_scalar(value: object) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ConfigError(
            "loss", value, "must return a scalar tensor that depends on a trainable parameter"
        )
