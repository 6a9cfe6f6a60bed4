"""Senders heard in a round of a simulation: each expected sender exactly once."""

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.wire import Messages, Step


class Heard:
    """Senders of one message each to one receiver, in one step of a round.

    Args:
        round_: the round in progress.
        step: step of the messages awaited.
        expected: int64[P], numbers of the senders that must be heard exactly once.
        senders: possible senders, numbered from 0.
        receiver: the receiver's name, for error messages.
    """

    def __init__(
        self,
        round_: int,
        step: Step,
        *,
        expected: IntArray,
        senders: int,
        receiver: str = "the server",
    ) -> None:
        self._round = round_
        self._step = step
        self._receiver = receiver
        self._role = "denoiser" if step is Step.DENOISE else "client"
        self._awaited = np.zeros(senders, dtype=bool)
        self._awaited[expected] = True

    def take(self, messages: Messages) -> None:
        """Hear delivered messages.

        Raises:
            ProtocolError: of another round or step, from a sender that is not awaited, or a second
                one.
        """
        if messages.round != self._round or messages.step is not self._step:
            raise self.refusal(
                f"awaits {self._step.name}, got {messages.step.name} of round {messages.round}"
            )
        ids, role = messages.senders.ids, messages.senders.role
        known = (ids >= 0) & (ids < len(self._awaited)) & (role == self._role)
        known[known] = self._awaited[ids[known]]
        if not known.all():
            stranger = int(ids[~known][0])
            raise self.refusal(f"does not await {role} {stranger}, or has heard it already")
        before = np.count_nonzero(self._awaited)
        self._awaited[ids] = False
        if before - np.count_nonzero(self._awaited) != len(ids):
            self._awaited[ids] = True
            raise self.refusal(f"got two {self._step.name} messages of a {role}")

    def require_complete(self) -> None:
        """Check that all expected senders were heard.

        Raises:
            ProtocolError: a sender was not heard; a sum is not formed without it.
        """
        missing = np.flatnonzero(self._awaited)
        if len(missing):
            raise self.refusal(
                f"has no {self._step.name.lower()} from {len(missing)} {self._role}s, the first "
                f"is {self._role} {int(missing[0])}; the round is abandoned"
            )

    def refusal(self, problem: str) -> ProtocolError:
        """An error of this receiver in this round; ``problem`` follows its name."""
        return ProtocolError(f"round {self._round}: {self._receiver} {problem}")
