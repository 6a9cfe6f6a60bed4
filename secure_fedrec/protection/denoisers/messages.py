"""Common facts and messages of a round of denoisers behind mixes, on separate hosts."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import WireError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.denoisers.embedded_mixes import RoutedDenoisers
from secure_fedrec.protection.routing.hosted import Course, course_context
from secure_fedrec.protection.session import SERVER, Identity, Node, Parcel, Role
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, decode_rows, encode_rows

_DOMAIN = b"denoisers behind mixes"


class Named(IntEnum):
    """Rows that are sent to the server with a named sender."""

    UPLOAD = 1
    SUMS = 2


_STEPS = {Named.UPLOAD: Step.UPLOAD, Named.SUMS: Step.DENOISE}


@dataclass(frozen=True, slots=True, eq=False)
class RoutedAttempt:
    """Facts that all parties of an attempt know.

    Args:
        collector: sizes, ring, who denoises for whom.
        at: the attempt.
    """

    collector: RoutedDenoisers
    at: Standing

    @property
    def senders(self) -> IntArray:
        """int64[k], ascending: clients that are not denoisers."""
        clients = self.at.clients
        return clients[~self.collector.binding.is_denoiser[clients]]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the denoisers that take part, ascending."""
        found: list[int] = np.unique(self.collector.binding.group[self.at.clients]).tolist()
        return found

    @property
    def course(self) -> Course:
        """The paths of the attempt."""
        at = self.at
        return Course(
            config=self.collector.routing.routing,
            serial=at.serial,
            context=course_context(at, _DOMAIN, at.clients),
            roster=at.roster,
            senders=tuple(self.senders.tolist()),
            recipients=tuple(Node(Role.DENOISER, number) for number in self.numbers),
        )

    def due(self, number: int) -> int:
        """How many clients a denoiser awaits messages of."""
        return int(np.count_nonzero(self.collector.binding.group[self.senders] == number))

    def encode(self, block: RowBlock, step: Step) -> bytes:
        """The encoded rows of one party."""
        return encode_rows(block, round_=self.at.round, step=step, codec=self.collector.codec)

    def decode(self, data: bytes, step: Step) -> RowBlock:
        """Inverse of ``encode``.

        Raises:
            WireError: anything else.
        """
        collector = self.collector
        round_, found, block = decode_rows(data, codec=collector.codec, n_rows=collector.n_items)
        fits = block.values is not None and block.values.shape[1] == collector.width
        if (round_, found) != (self.at.round, step) or not (fits or not len(block.rows)):
            raise WireError(f"no rows of {step.name} of round {self.at.round}")
        if (block.counts is not None) != (step is Step.DENOISE):
            raise WireError("denoisers alone send counts")
        return block

    @property
    def _messages(self) -> SignedMessages:
        at, context = self.at, self.course.context
        return SignedMessages(Family.DENOISING, Named, at.roster, at.serial, context)

    def named(self, kind: Named, block: RowBlock, by: Identity) -> Parcel:
        """A signed message to the server."""
        data = self._messages.seal(kind, self.encode(block, _STEPS[kind]), by)
        return Parcel(by.node, SERVER, kind.name, data)

    def read(self, data: bytes, kind: Named) -> tuple[Node, RowBlock]:
        """Sender and rows of such a message.

        Raises:
            ProtocolError, WireError: the bytes are not such a message.
        """
        sender, body = self._messages.open(data, kind)
        return sender, self.decode(body, _STEPS[kind])
