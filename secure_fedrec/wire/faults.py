"""Faults a test can put on the wire: drop, repeat, delay or alter chosen messages.

A protocol on a faulty wire must refuse the round, or continue by its rules with the clients that
answered; it may never silently leave a client out of a sum or count one twice. The hooks are part
of the wire so that every protocol is tested on the same ones. They apply to rows and words sent as
arrays (``Messages``), chosen by step, and the bytes of a protocol's halves (``Parcels``), chosen by
step, by stage, or both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.uploads import DenseBlock
from secure_fedrec.wire.message_batches import Step
from secure_fedrec.wire.parcels import Parcels

Batch: TypeAlias = Any
"""``Messages`` or ``Parcels``; a fault gives back the kind that it takes."""

Chooser = Callable[[Batch], BoolArray]
"""Whether the fault applies to each message of a batch: bool[B]."""


class Fault(Protocol):
    """A function from sent messages to delivered ones."""

    def apply(self, messages: Batch) -> Batch:
        """The messages that arrive when ``messages`` are sent."""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Messages of a step, of a stage, or of both.

    Args:
        chooser: which messages of a batch.
        step: what they are for; None for any.
        stage: kind of a protocol's message, as ``Parcels`` names it; None for any.
    """

    chooser: Chooser
    step: Step | None = None
    stage: str | None = None

    def apply(self, messages: Batch) -> Batch:
        """Apply the fault to the chosen messages, and deliver all others."""
        return self._strike(messages) if self._concerns(messages) else messages

    def _strike(self, messages: Batch) -> Batch:
        raise NotImplementedError

    def _concerns(self, messages: Batch) -> bool:
        stage = messages.stage if isinstance(messages, Parcels) else None
        of_step = self.step is None or messages.step is self.step
        return of_step and (self.stage is None or stage == self.stage)


@dataclass(frozen=True, kw_only=True)
class Drop(_Chosen):
    """Loses the chosen messages."""

    def _strike(self, messages: Batch) -> Batch:
        """Deliver all but the chosen messages."""
        return messages.select(np.flatnonzero(~self.chooser(messages)))


@dataclass(frozen=True, kw_only=True)
class Repeat(_Chosen):
    """Delivers the chosen messages twice."""

    def _strike(self, messages: Batch) -> Batch:
        """Deliver all messages and then the chosen ones again."""
        twice = np.flatnonzero(self.chooser(messages))
        return messages.select(np.concatenate([np.arange(len(messages)), twice]))


@dataclass(frozen=True, kw_only=True)
class Delay(_Chosen):
    """Holds the chosen messages back and delivers them once, with a later batch.

    Rows are sent with those of the next round, bytes before the next message between the same
    roles.
    """

    _held: list[Batch] = field(default_factory=list)

    def apply(self, messages: Batch) -> Batch:
        """Deliver due messages of an earlier batch, and the rest of this one.

        Delayed rows replace the next round's batch.
        """
        if isinstance(messages, Parcels):
            return self._apply_to_bytes(messages)
        if not self._concerns(messages):
            return messages
        due = [held for held in self._held if held.round < messages.round]
        if due:
            self._held.remove(due[0])
            return due[0]
        return self._hold(messages)

    def _apply_to_bytes(self, parcels: Parcels) -> Parcels:
        due = [
            held
            for held in self._held
            if (held.senders.role, held.receivers.role)
            == (parcels.senders.role, parcels.receivers.role)
        ]
        for held in due:
            self._held.remove(held)
        rest = self._hold(parcels) if self._concerns(parcels) else parcels
        for held in due:
            rest = held.joined(rest)
        return rest

    def _hold(self, messages: Batch) -> Batch:
        struck = self.chooser(messages)
        if struck.any():
            self._held.append(messages.select(np.flatnonzero(struck)))
        return messages.select(np.flatnonzero(~struck))


@dataclass(frozen=True, kw_only=True)
class Alter(_Chosen):
    """Flips one bit in each chosen message: the lowest of the first value, or of one byte.

    Args:
        at: which byte of a protocol's message; negative ones count from its end.
    """

    at: int = -1

    def _strike(self, messages: Batch) -> Batch:
        """Deliver all messages, the chosen ones changed by one bit."""
        if isinstance(messages, Parcels):
            struck = self.chooser(messages).tolist()
            data = zip(messages.data, struck, strict=True)
            return replace(messages, data=tuple(self._flipped(d) if s else d for d, s in data))
        payload = messages.payload
        if isinstance(payload, DenseBlock) or payload.values is None:
            return messages
        values = payload.values.copy()
        struck = self.chooser(messages) & (payload.lengths > 0)
        values[payload.indptr[:-1][struck], 0] ^= values.dtype.type(1)
        return replace(messages, payload=replace(payload, values=values))

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[self.at] ^= 1
        return bytes(changed)
