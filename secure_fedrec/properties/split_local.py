"""Constraint (1), independent local training: a user's loss knows no other user's private values.

FURL states it of the loss, and as a corollary of gradients: those on every other user's private
parameters are zero (eq. 1). Both are tested, since either may fail without the other: a loss can
read a value without a gradient (``detach``), and a gradient on a value that the loss does not know
the size of still moves it. What local training leaves behind counts as well. A layer may write
other users' values into a federated parameter or into the user's own, past loss and gradients. And
state that passes from user to user past the parameters, such as the running statistics of a batch
normalisation, goes through no aggregation that constraint (2) could speak of.
"""

import torch
from torch import Tensor

from secure_fedrec.properties.split_evaluation import LOSS, LocalEvaluation, Loss, Outcome, Part
from secure_fedrec.properties.split_model import SplitModel, Values
from secure_fedrec.properties.split_random import Batches, noise_like
from secure_fedrec.properties.split_report import Findings, Gap, Violation
from secure_fedrec.properties.split_trials import (
    Trial,
    first_change,
    largest_change,
    same_bits,
    same_numbers,
)

__all__ = ["LocalTrials"]


class LocalTrials:
    """Trials of constraint (1).

    Args:
        split: the model.
        loss: of one user.
        batches: draws a batch.
        findings: where violations go.
    """

    def __init__(self, split: SplitModel, loss: Loss, batches: Batches, findings: Findings) -> None:
        self._split = split
        self._loss = loss
        self._batches = batches
        self._findings = findings
        self._origin = split.state()
        tensors = split.tensors()
        self._trained = {name for name in split.federated if tensors[name].requires_grad}
        self._trained_slots = tuple(
            slot.name
            for slot in split.slots
            if any(tensors[source].requires_grad for source in slot.sources)
        )
        self._reached: set[str] = set()
        # Of every trained slot: which users were tested, and whether their own loss reached it.
        self._reached_own: dict[str, dict[int, bool]] = {name: {} for name in self._trained_slots}

    def run(self, trial: Trial) -> None:
        """Test the users of a trial on random parameters and random batches."""
        evaluate = LocalEvaluation(
            split=self._split,
            loss=self._loss,
            batches=self._batches,
            trial=trial,
            start=self._draw(trial, "start"),
            later=self._draw(trial, "later"),
            elsewhere=self._draw(trial, "elsewhere", buffers=True),
        )
        for user in trial.users:
            begun, before = evaluate.loaded(user)
            self._judge_writes(trial, user, evaluate.start, begun)
            base = evaluate(user)
            self._judge_writes(trial, user, before, self._split.state())
            broken = bool(base.loss.isfinite()) and self._judge_gradients(trial, user, base)
            if not base.is_finite:
                problem = f"of user {user}, a gradient of it, or what it writes, is not finite"
                self._findings.leave_open(Gap(subject=LOSS, problem=problem, seed=trial.seed))
                continue
            self._note_reach(user, base)
            if not broken:
                self._judge_values(trial, user, base, evaluate)

    def find_ties(self, seed: int) -> None:
        """Find federated parameters that lie in the memory of private ones."""
        split = self._split
        for name in split.federated_names:
            before = split.state()
            split.load({name: before[name] + 1})
            after = split.state()
            split.load(before)
            for slot, owner in self._parts():
                old, new = slot.part(before, owner), slot.part(after, owner)
                if not torch.equal(old, new):
                    reaches = f"the federated {name!r}, which everybody trains, is the same memory"
                    size = largest_change({name: old}, {name: new})[1]
                    self._violate(slot.name, (owner, int(owner == 0)), reaches, size, seed)

    def finish(self) -> None:
        """Leave open what no loss has reached: a gradient that never was proves nothing."""
        for name in sorted(self._trained - self._reached):
            self._findings.leave_open(Gap(subject=name, problem="is reached by no loss"))
        for name, users in self._reached_own.items():
            unreached = sorted(user for user, reached in users.items() if not reached)
            if unreached:
                problem = f"is not reached by the losses of its own users {unreached}"
                self._findings.leave_open(Gap(subject=name, problem=problem))

    def _draw(self, trial: Trial, purpose: str, *, buffers: bool = False) -> dict[str, Tensor]:
        """The model's state, with random values in all that is trained or private."""
        generator = trial.generator(purpose)
        private = (*self._split.slots, *self._split.counters)
        names = [name for name in self._split.federated if name in self._trained]
        names += [name for slot in private if buffers or not slot.buffer for name in slot.sources]
        # Through the model, so that tensors that share memory agree.
        self._split.load(self._origin)
        self._split.load(
            {name: noise_like(self._origin[name], trial.scale, generator) for name in names}
        )
        return self._split.state()

    def _parts(self, *, but: int | None = None) -> list[Part]:
        """Every private slot of every user but one."""
        users = [user for user in range(self._split.n_users) if user != but]
        return [
            (slot, user) for slot in (*self._split.slots, *self._split.counters) for user in users
        ]

    def _note_reach(self, user: int, base: Outcome) -> None:
        reached = {name for name, found in base.training.items() if bool(found.any())}
        self._reached |= reached
        for name in self._trained_slots:
            before = self._reached_own[name].get(user, False)
            self._reached_own[name][user] = before or name in reached

    def _judge_writes(self, trial: Trial, user: int, before: Values, after: Values) -> None:
        """Of what is no parameter of all, a user's training may write its own only."""
        next_user = int(user == 0)
        for name in self._split.shared_buffers:
            old, new = {name: before[name]}, {name: after[name]}
            if not same_numbers(old, new):
                reaches = "local training writes into this buffer, which every user's model holds"
                size = largest_change(old, new)[1]
                self._violate(name, (user, next_user), reaches, size, trial.seed)
        for slot, owner in self._parts(but=user):
            old, new = {slot.name: slot.part(before, owner)}, {slot.name: slot.part(after, owner)}
            if not same_bits(old, new):
                reaches = "that user's local training overwrites it"
                size = largest_change(old, new)[1]
                self._violate(slot.name, (owner, user), reaches, size, trial.seed)

    def _judge_gradients(self, trial: Trial, user: int, base: Outcome) -> bool:
        """Eq. 1: whether another user's private parameters have a gradient, NaN included."""
        broken = False
        for name, sizes in base.private.items():
            for owner in torch.nonzero(sizes != 0).reshape(-1).tolist():
                if owner != user:
                    broken = True
                    reaches = "that user's loss has a gradient on it"
                    self._violate(name, (owner, user), reaches, float(sizes[owner]), trial.seed)
        return broken

    def _judge_values(
        self, trial: Trial, user: int, base: Outcome, evaluate: LocalEvaluation
    ) -> None:
        """Loss, gradients and what is written must not know the values either."""
        parts = self._parts(but=user)
        expected = base.observed

        def changed(count: int) -> bool:
            return not same_numbers(evaluate(user, replaced=parts[:count]).observed, expected)

        if not changed(len(parts)):
            return
        if changed(0):
            problem = (
                f"of user {user} differs between two calls with equal parameters, batch and random "
                "stream: it keeps state, or draws outside torch's generator"
            )
            self._findings.leave_open(Gap(subject=LOSS, problem=problem, seed=trial.seed))
            return
        step = first_change(len(parts), changed)
        slot, owner = parts[step]
        found = evaluate(user, replaced=parts[: step + 1])
        what, size = largest_change(found.observed, expected)
        self._violate(
            slot.name, (owner, user), f"that user's {what} moves with it", size, trial.seed
        )

    def _violate(
        self, name: str, users: tuple[int, int], reaches: str, size: float, seed: int
    ) -> None:
        self._findings.add(
            Violation(
                constraint=1,
                parameter=name,
                owner=users[0],
                reader=users[1],
                reaches=reaches,
                size=size,
                seed=seed,
            )
        )
