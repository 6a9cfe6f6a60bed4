"""Trainings of clients, each from the state and the random seed that a test sets."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import one_thread, seeded_torch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.client_step.contents import Sent
from secure_fedrec.properties.client_step.states import Clients, State, User
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.trials import equal_bits

Train: TypeAlias = Callable[[Any], object]
"""One client's real local training: what it sends."""

Everybody: TypeAlias = Mapping[User, Values]
"""Private values, by client and name."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a training shows.

    Attributes:
        sent: what the client sends.
        private: its private values afterwards.
        kept: all that it keeps.
        written: (client, name) of other clients' private values that have changed.
        downloaded: what the server gave before it.
        given: the part of it that the training has written into.
        failure: the error that it raised; then nothing was sent.
    """

    sent: Sent = field(default_factory=Sent)
    private: Values = field(default_factory=dict)
    kept: Values = field(default_factory=dict)
    written: list[tuple[User, str]] = field(default_factory=list)
    downloaded: Values = field(default_factory=dict)
    given: Values = field(default_factory=dict)
    failure: Exception | None = None

    def bits(self) -> dict[str, Tensor]:
        """All of its state that another client must not change, as names and tensors."""
        texts = {**self.sent.texts, **self.sent.unknown}
        return {
            **{f"what it sends as {path!r}": value for path, value in self.sent.numbers.items()},
            **{f"what it sends as {path!r}": _letters(text) for path, text in texts.items()},
            **{f"its own {name!r}": value for name, value in self.kept.items()},
        }


class Steps:
    """Runs trainings.

    Args:
        train: the step.
        read: converts what it returns to what was sent.
        users: all clients.
        clients: their states.
        downloads: what the server gives to all of them.
        memory: all that the step can reach.
    """

    def __init__(
        self,
        train: Train,
        read: Callable[[Any], object],
        users: tuple[User, ...],
        clients: Clients,
        downloads: State,
        memory: Memory,
    ) -> None:
        self._train = train
        self._read = read
        self._downloads = downloads
        self._memory = memory
        self.users = users
        self.clients = clients
        self.origin = {user: clients.private(user) for user in users}
        self.downloaded = downloads.values()

    def begin(self) -> None:
        """Restore everything that earlier trainings have changed."""
        self._memory.restore()

    def load(self, values: Everybody) -> None:
        """Write the private values of all clients."""
        for user in self.users:
            self.clients.load(user, values[user])

    def shared(self, values: Everybody) -> list[tuple[User, str, User]]:
        """(owner, name, other) of values that share memory, after values of all clients are loaded.

        Raises:
            ConfigError: values that were written cannot be read back.
        """
        self.load(values)
        found: list[tuple[User, str, User]] = []
        for user, name in self._changed(values, ()):
            now = self.clients.private(user)[name]
            others = [
                other
                for other in self.users
                if other != user and name in values[other] and equal_bits(values[other][name], now)
            ]
            if not others:
                problem = (
                    f"of client {user!r} is not what was written: give its live state, not a copy"
                )
                raise ConfigError("clients", name, problem)
            found += [(user, name, other) for other in others]
        return found

    def run(
        self, user: User, values: Everybody, seed: int, downloaded: Values | None = None
    ) -> Outcome:
        """One training from given private values, and the first or other downloaded values.

        Values that are neither the server's nor private stay as the previous training has left
        them.
        """
        self.load(values)
        outcome = Outcome(downloaded=self.downloaded if downloaded is None else downloaded)
        self._downloads.load(outcome.downloaded)
        self._memory.rewind()
        try:
            with _seeded(seed):
                outcome.sent = Sent.of(self._read(self._train(user)))
        except Exception as failure:
            outcome.failure = failure
        outcome.private = self.clients.private(user)
        outcome.kept = self.clients.kept(user)
        outcome.written = self._changed(values, (user,))
        outcome.given = {
            name: value
            for name, value in self._downloads.values().items()
            if name in outcome.downloaded and not equal_bits(value, outcome.downloaded[name])
        }
        return outcome

    def put_back(self) -> None:
        """Restore everything to its state before the check."""
        self._memory.restore()
        self.load(self.origin)
        self._downloads.load(self.downloaded)

    def _changed(self, values: Everybody, but: tuple[User, ...]) -> list[tuple[User, str]]:
        return [
            (user, name)
            for user in self.users
            if user not in but
            for name, value in self.clients.private(user).items()
            if name in values[user] and not equal_bits(value, values[user][name])
        ]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch, NumPy and random for a step, and restore their states afterwards."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002  the code under test draws there
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        with one_thread(), seeded_torch(seed):
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _letters(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)
