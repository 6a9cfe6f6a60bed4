"""What a client sends: its names, and private values in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from secure_fedrec.properties.client_step.contents import Sent
from secure_fedrec.properties.client_step.copies import find_copies, find_integers
from secure_fedrec.properties.client_step.numbers import PIECES, is_too_large
from secure_fedrec.properties.client_step.report import NAME, VALUE, WRITES, ClientReport
from secure_fedrec.properties.client_step.running import Everybody, Outcome, Steps
from secure_fedrec.properties.client_step.standing import DRAWS, find_standing
from secure_fedrec.properties.client_step.states import User
from secure_fedrec.properties.split.model import Values, matches
from secure_fedrec.properties.split.random import is_exact, noise_like
from secure_fedrec.properties.split.trials import Trial, same_bits

_COUNTED: Final = 4  # integers of an array that is looked for
_SURE: Final = 10.0  # bits of evidence: chance below 2^-this

Matches: TypeAlias = dict[tuple[str, str, int], dict[User, float]]
"""Bits of integers by their name, path and place, and by client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Examines what clients send.

    Args:
        steps: runs trainings.
        private: patterns of names that must not be sent.
        uploads: patterns of names that may be sent.
        report: where findings go.
    """

    steps: Steps
    private: Sequence[str]
    uploads: Sequence[str]
    report: ClientReport

    def look(self, trial: Trial) -> None:
        """Train every client several times, each time with different private values."""
        seeds = trial.torch_seeds("client.training", range(len(self.steps.users)))
        draws = [own_values(self.steps, trial, f"draw.{number}") for number in range(DRAWS)]
        downloads = [self._downloaded(trial, number) for number in range(DRAWS)]
        integers: Matches = {}
        places = 1
        for place, user in enumerate(self.steps.users):
            outcomes: list[Outcome] = []
            again: list[Outcome] = []  # a second training may send what the first one left
            for values, downloaded in zip(draws, downloads, strict=True):
                self.steps.begin()
                for found in (outcomes, again):
                    found.append(self.steps.run(user, values, seeds[place], downloaded))
                    require_trained(found[-1])
                    judge_writes(self.report, user, found[-1], trial.seed)
                    self._judge_names(user, found[-1].sent, trial.seed)
            for found in (outcomes, again):
                if self._comparable(user, found, trial.seed):
                    self._judge_values(user, draws, found, trial.seed)
                    self._note_integers(user, draws[0], found, integers)
            places = max(places, sum(v.numel() for v in _reaching(outcomes[0]).values()))
            self._judge_use(user, draws, outcomes, seeds[place], downloads[0])
        self._judge_integers(integers, places, trial.seed)

    def _downloaded(self, trial: Trial, number: int) -> Values:
        """What the server gives, slightly changed each time, so that results of it vary."""
        generator = trial.generator(f"client.downloads.{number}")
        return {
            name: value * (1 + noise_like(value, 0.1, generator)) if _is_array(value) else value
            for name, value in self.steps.downloaded.items()
        }

    def _judge_names(self, user: User, sent: Sent, seed: int) -> None:
        for path, keys in sent.keys.items() if (*sent.keys,) != ("",) else ():  # one array, unnamed
            if any(matches(name, self.private) for name in _names(tuple(path.split(".")))):
                reaches = "it is sent, and named by 'private'"
                self.report.violate(NAME, path, (user, None), reaches, seed)
            elif not any(matches(name, self.uploads) for name in _names(keys)):
                reaches = "it is sent, and no pattern of 'uploads' names it"
                self.report.violate(NAME, path, (user, None), reaches, seed)
        for path, kind in sent.unknown.items():
            problem = f"is sent as {kind}, an unknown type: decode it (read=)"
            self.report.leave_open(path or "what is sent", problem)

    def _comparable(self, user: User, outcomes: Sequence[Outcome], seed: int) -> bool:
        """Whether everything sent has numbers that can be compared from training to training."""
        first = outcomes[0].sent
        if not any(value.numel() for value in first.numbers.values()):
            self.report.leave_open("what is sent", f"by client {user} does not hold numbers", seed)
            return False
        for outcome in outcomes:
            if outcome.sent.shapes() != first.shapes():
                problem = (
                    f"by client {user} has other names, shapes or another order when private "
                    "values change"
                )
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
        sent = [_reaching(outcome) for outcome in outcomes]
        downloaded = [outcome.downloaded for outcome in outcomes]
        for name in draws[0][user]:
            before = [values[user][name] for values in draws]
            after = [outcome.private.get(name, torch.empty(0)) for outcome in outcomes]
            if is_exact(before[0]) or not before[0].numel():
                continue
            gone = any(value.shape != before[0].shape for value in after)
            if gone or all(torch.equal(value, after[0]) for value in after):
                problem = (
                    f"is the same after client {user}'s training whatever it was before, or is "
                    "missing: a copy could not be told from chance; state what the server gives "
                    "(downloads=)"
                )
                self.report.leave_open(name, problem, seed)
                continue
            if is_too_large(before[0]):
                problem = f"has more than {PIECES:,} pieces, the most that the check searches for"
                self.report.leave_open(name, problem)
            found = find_standing(sent, before, after, downloaded, outcomes[0].sent.quantized)
            if found is None or found.factor is None:
                copies = (
                    find_copies("its value before training", sent, before, downloaded),
                    find_copies("its value after training", sent, after, downloaded),
                )
                found = next(filter(None, copies), found)
            if found is not None and found.factor is not None:
                self.report.violate(VALUE, name, (user, None), str(found), seed)
            elif found is not None:
                self.report.advise(
                    f"the direction of client {user}'s {name!r} can be read off: {found}, times a "
                    "number that varies; gradients of a product do that, so protect what is sent"
                )

    def _note_integers(
        self, user: User, private: Everybody, outcomes: Sequence[Outcome], matches: Matches
    ) -> None:
        """Integers are not random; a match is not chance if each client sends its own."""
        sent = [_reaching(outcome) for outcome in outcomes]
        for name, own in private[user].items():
            constant = own.numel() < _COUNTED or bool((own == own.reshape(-1)[0]).all())
            if not is_exact(own) or constant:
                continue
            if find_integers([outcome.downloaded for outcome in outcomes], own):
                continue  # all clients received it anyway
            others = [values.get(name) for each, values in private.items() if each != user]
            if any(o is None or not torch.equal(o, own) for o in others):
                for found in find_integers(sent, own):
                    where = matches.setdefault((name, found.path, found.place), {})
                    where[user] = max(where.get(user, 0.0), found.bits)
            self.report.advise(
                f"{name!r} holds integers: it is looked for as it is, and in no other form, for it "
                "cannot be drawn at random"
            )

    def _judge_integers(self, matches: Matches, places: int, seed: int) -> None:
        """Integers at the same place of several clients' uploads are less likely a coincidence."""
        for (name, path, place), users in matches.items():
            where = f"in {path!r}, from number {place} on"
            # Clients with the same integers count as one coincidence.
            different = {
                self.steps.origin[user][name].numpy().tobytes(): bits
                for user, bits in users.items()
            }
            if sum(different.values()) - math.log2(places) < _SURE:
                self.report.advise(
                    f"the integers of {name!r} stand in {path!r}, which may be a coincidence: "
                    "there are few of them, or of different ones"
                )
                continue
            for user in users:
                self.report.violate(VALUE, name, (user, None), f"it stands {where}", seed)

    def _judge_use(
        self,
        user: User,
        draws: Sequence[Everybody],
        outcomes: Sequence[Outcome],
        seed: int,
        downloaded: Values,
    ) -> None:
        """Note private values that no training writes or reads, since they were not tested."""
        one, other = draws[0], draws[1]
        if not all(bool(value.isfinite().all()) for value in outcomes[0].private.values()):
            return  # a gap already
        for name, value in one[user].items():
            if is_exact(value):
                continue
            moved = not all(
                torch.equal(outcome.private.get(name, torch.empty(0)), values[user][name])
                for values, outcome in zip(draws, outcomes, strict=True)
            )
            changed = {**one, user: {**one[user], name: other[user][name]}}
            self.steps.begin()
            outcome = self.steps.run(user, changed, seed, downloaded)
            self._advise_of_integers(name, outcome.sent, outcomes[0].sent)
            found = [outcome.bits(), outcomes[0].bits()]
            for bits in found:
                bits.pop(f"its own {name!r}", None)
            if not moved and same_bits(*found):
                problem = f"is neither changed nor read by client {user}'s training"
                self.report.leave_open(name, problem)

    def _advise_of_integers(self, name: str, one: Sent, other: Sent) -> None:
        for path, value in one.numbers.items():
            old = other.numbers.get(path)
            if old is None or torch.equal(value, old) or not all(map(_is_whole, (value, old))):
                continue
            self.report.advise(
                f"{path or 'what is sent'!r} is sent in whole numbers, which change with the "
                f"private {name!r}: how much they tell of it was not tested"
            )


def _reaching(outcome: Outcome) -> Values:
    """What the server can read: what was sent, and what was written into its arrays."""
    given = {f"{name} of downloads": value for name, value in outcome.given.items()}
    return {**given, **outcome.sent.numbers}


def _names(keys: tuple[str, ...]) -> list[str]:
    """The names of a leaf: all its keys joined, its last key, and that of its list."""
    ends = [len(keys)]
    while ends[-1] > 1 and keys[ends[-1] - 1].isdigit():
        ends.append(ends[-1] - 1)
    return [".".join(keys[start:end]) for end in ends for start in range(end)]


def _is_whole(value: Tensor) -> bool:
    return is_exact(value) or (not value.is_complex() and torch.equal(value, value.round()))


def _is_array(value: Tensor) -> bool:
    """Whether it is neither an integer nor a single number (a single number may be a setting)."""
    return value.dim() > 0 and not is_exact(value)


def own_values(steps: Steps, trial: Trial, purpose: str) -> Everybody:
    """Random private values of all clients; integers unchanged, and positive arrays positive."""
    generator = trial.generator(f"client.{purpose}")
    return {
        user: {name: _drawn(value, trial.scale, generator) for name, value in values.items()}
        for user, values in steps.origin.items()
    }


def _drawn(value: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    if is_exact(value):
        return value
    noise = noise_like(value, scale, generator) + 0.0
    # A variance must not become negative, nor a factor of a product that is to stay positive.
    positive = not value.is_complex() and value.numel() and bool((value > 0).all())
    return value * noise.exp() if positive else noise


def judge_writes(report: ClientReport, user: User, outcome: Outcome, seed: int) -> None:
    """Report another client's values that a training has written."""
    for owner, name in outcome.written:
        reaches = "that client's training changes it, or makes both share memory"
        report.violate(WRITES, name, (owner, user), reaches, seed)


def require_trained(outcome: Outcome) -> None:
    """Raise the error of a training that ran without other clients."""
    if outcome.failure is not None:
        raise outcome.failure
