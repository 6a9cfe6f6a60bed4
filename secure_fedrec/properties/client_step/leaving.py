"""What leaves a client: the names of it, and private values in it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from secure_fedrec.properties.client_step.contents import Sent
from secure_fedrec.properties.client_step.report import NAME, VALUE, WRITES, ClientReport
from secure_fedrec.properties.client_step.running import Everybody, Outcome, Steps
from secure_fedrec.properties.client_step.standing import DRAWS, find_standing
from secure_fedrec.properties.client_step.states import User
from secure_fedrec.properties.split.model import matches
from secure_fedrec.properties.split.random import is_exact, noise_like
from secure_fedrec.properties.split.trials import Trial, same_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Looks at what clients send.

    Args:
        steps: runs trainings.
        private: patterns of what must not leave.
        uploads: patterns of what may.
        report: where findings go.
    """

    steps: Steps
    private: Sequence[str]
    uploads: Sequence[str]
    report: ClientReport

    def look(self, trial: Trial) -> None:
        """Train every client several times, with other private values each time."""
        seeds = trial.torch_seeds("client.training", range(len(self.steps.users)))
        draws = [own_values(self.steps, trial, f"draw.{number}") for number in range(DRAWS)]
        for place, user in enumerate(self.steps.users):
            outcomes: list[Outcome] = []
            for values in draws:
                self.steps.begin()
                outcomes.append(self.steps.run(user, values, seeds[place]))
                require_trained(outcomes[-1])
                judge_writes(self.report, user, outcomes[-1], trial.seed)
            for outcome in outcomes:
                self._judge_names(user, outcome.sent, trial.seed)
            if self._comparable(user, outcomes, trial.seed):
                self._judge_values(user, draws, outcomes, trial.seed)
            self._judge_use(user, draws, outcomes, seeds[place])

    def _judge_names(self, user: User, sent: Sent, seed: int) -> None:
        for path, keys in sent.keys.items():
            inner = [".".join(keys[start:]) for start in range(len(keys))]
            parts = path.split(".")
            if any(matches(".".join(parts[start:]), self.private) for start in range(len(parts))):
                reaches = "it is sent, and named by 'private'"
                self.report.violate(NAME, path, (user, None), reaches, seed)
            elif not any(matches(name, self.uploads) for name in inner):
                reaches = "it is sent, and named by no pattern of 'uploads'"
                self.report.violate(NAME, path, (user, None), reaches, seed)
        for path, kind in sent.unknown.items():
            problem = f"is sent as {kind}, of which nothing is known: decode it (read=)"
            self.report.leave_open(path or "what is sent", problem)

    def _comparable(self, user: User, outcomes: Sequence[Outcome], seed: int) -> bool:
        """Whether everything sent has numbers that can be compared from training to training."""
        first = outcomes[0].sent
        if not any(value.numel() for value in first.numbers.values()):
            self.report.leave_open("what is sent", f"by client {user} has no numbers", seed)
            return False
        for outcome in outcomes:
            shapes = [
                {path: (value.shape, value.dtype) for path, value in sent.numbers.items()}
                for sent in (first, outcome.sent)
            ]
            if shapes[0] != shapes[1]:
                problem = f"by client {user} has other names or shapes when private values change"
                self.report.leave_open("what is sent", problem, seed)
                return False
            if outcome.sent.texts != first.texts:
                problem = f"by client {user} has a text that changes with private values"
                self.report.leave_open("what is sent", problem, seed)
            numbers = [*outcome.sent.numbers.items(), *outcome.private.items()]
            for name in [name for name, value in numbers if not bool(value.isfinite().all())]:
                self.report.leave_open(name, f"of client {user} is not finite after training", seed)
                return False
        return True

    def _judge_values(
        self, user: User, draws: Sequence[Everybody], outcomes: Sequence[Outcome], seed: int
    ) -> None:
        sent = [outcome.sent.numbers for outcome in outcomes]
        for name in draws[0][user]:
            before = [values[user][name] for values in draws]
            if is_exact(before[0]) or not before[0].numel():
                continue
            found = find_standing(sent, before, [outcome.private[name] for outcome in outcomes])
            if found is not None and found.factor is not None:
                self.report.violate(VALUE, name, (user, None), str(found), seed)
            elif found is not None:
                self.report.advise(
                    f"the direction of client {user}'s {name!r} can be read off: {found}, times a "
                    "number that varies; gradients of a product do that, so protect what is sent"
                )

    def _judge_use(
        self, user: User, draws: Sequence[Everybody], outcomes: Sequence[Outcome], seed: int
    ) -> None:
        """A private value that no training writes or reads was never tested."""
        one, other = draws[0], draws[1]
        for name, value in one[user].items():
            if is_exact(value):
                continue
            moved = any(
                not torch.equal(outcome.private[name], values[user][name])
                for values, outcome in zip(draws, outcomes, strict=True)
            )
            if moved:
                continue
            self.steps.begin()
            changed = {**one, user: {**one[user], name: other[user][name]}}
            found = [self.steps.run(user, changed, seed).bits(), outcomes[0].bits()]
            for bits in found:
                bits.pop(f"its own {name!r}", None)
            if same_bits(*found):
                self.report.leave_open(name, f"is neither moved nor read by client {user}'s training")


def own_values(steps: Steps, trial: Trial, purpose: str) -> Everybody:
    """Random private values of everybody; integers as they are."""
    generator = trial.generator(f"client.{purpose}")
    return {
        user: {
            name: value if is_exact(value) else noise_like(value, trial.scale, generator) + 0.0
            for name, value in values.items()
        }
        for user, values in steps.origin.items()
    }


def judge_writes(report: ClientReport, user: User, outcome: Outcome, seed: int) -> None:
    """Note what a training has written that is another client's."""
    for owner, name in outcome.written:
        reaches = "that client's training moves it, or leaves both in the same memory"
        report.violate(WRITES, name, (owner, user), reaches, seed)


def require_trained(outcome: Outcome) -> None:
    """Raise what a training has raised that nobody disturbed."""
    if outcome.failure is not None:
        raise outcome.failure
