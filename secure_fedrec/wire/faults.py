"""Faults a test can put on the wire: drop, repeat, delay or alter chosen messages.

A protocol on a faulty wire must refuse the round; it may never sum silently without a client, or
with one too many. The hooks are part of the wire so that every protocol is tested on the same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.uploads import DenseBlock
from secure_fedrec.wire.messages import Messages, Step

__all__ = ["Alter", "Delay", "Drop", "Fault", "Repeat"]

Chooser = Callable[[Messages], BoolArray]
"""Says, per message of a batch, whether the fault strikes it: bool[B]."""


class Fault(Protocol):
    """Anything that turns the messages sent into the messages delivered."""

    def apply(self, messages: Messages) -> Messages:
        """What arrives when ``messages`` are sent."""
        ...


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Loses the chosen messages of a step."""

    step: Step
    chooser: Chooser

    def apply(self, messages: Messages) -> Messages:
        """Deliver all but the chosen messages."""
        if messages.step is not self.step:
            return messages
        return messages.select(np.flatnonzero(~self.chooser(messages)))


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Delivers the chosen messages of a step twice."""

    step: Step
    chooser: Chooser

    def apply(self, messages: Messages) -> Messages:
        """Deliver all messages and then the chosen ones again."""
        if messages.step is not self.step:
            return messages
        twice = np.flatnonzero(self.chooser(messages))
        return messages.select(np.concatenate([np.arange(len(messages)), twice]))


@dataclass(kw_only=True)
class Delay:
    """Holds the chosen messages back and delivers them, once, with the next round's."""

    step: Step
    chooser: Chooser
    _held: list[Messages] = field(default_factory=list)

    def apply(self, messages: Messages) -> Messages:
        """Deliver the messages held from an earlier round in place of this batch, then the rest."""
        if messages.step is not self.step:
            return messages
        due = [held for held in self._held if held.round < messages.round]
        if due:
            self._held.remove(due[0])
            return due[0]
        struck = self.chooser(messages)
        if struck.any():
            self._held.append(messages.select(np.flatnonzero(struck)))
        return messages.select(np.flatnonzero(~struck))


@dataclass(frozen=True, kw_only=True)
class Alter:
    """Flips the lowest bit of the first value in each chosen message of a step."""

    step: Step
    chooser: Chooser

    def apply(self, messages: Messages) -> Messages:
        """Deliver all messages, the chosen ones changed by one bit."""
        payload = messages.payload
        if messages.step is not self.step or isinstance(payload, DenseBlock):
            return messages
        if payload.values is None:
            return messages
        values = payload.values.copy()
        struck = self.chooser(messages) & (payload.lengths > 0)
        values[payload.indptr[:-1][struck], 0] ^= values.dtype.type(1)
        return replace(messages, payload=replace(payload, values=values))
