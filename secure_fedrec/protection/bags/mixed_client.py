"""A client's half that hands in cells with its upload, and looks for them."""

from collections.abc import Sequence

from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import send
from secure_fedrec.protection.routing.hosted import (
    Kind,
    cells_for,
    seen,
)
from secure_fedrec.protection.routing.receipts import SentCells
from secure_fedrec.protection.session import (
    Identity,
    Parcel,
    Party,
)


class MixedGiver:
    """A client's half that hands in cells with its upload, and looks for them (a ``Party``).

    Args:
        half: the half.
        attempt: the attempt.
        identity: the client's key.
        messages: a vector each, to be sent to the bags (``Mixes.messages``).
    """

    def __init__(
        self, half: Party, attempt: BagAttempt, identity: Identity, messages: Sequence[bytes]
    ) -> None:
        self.node = half.node
        self._half = half
        self._attempt = attempt
        self._course = attempt.course
        self._identity = identity
        self._messages = messages
        self._sent: SentCells | None = None

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half; upon all keys the cells as well, upon the list that it was seen (``Party``).

        Raises:
            ProtocolError, WireError: it is refused, or a cell of this client is not in the list.
        """
        head = self._attempt.head
        own = [data.removeprefix(head) for data in inbox if data[: len(head)] == head]
        rest = [data for data in inbox if data[: len(head)] != head]
        if not own:
            return self._half.step(rest)
        if self._sent is not None:
            return [seen(self._course, self._sent, own, self._identity)]
        directory = self._course.directory(own)
        return [*self._half.step(rest), self._cells(directory)]

    def _cells(self, directory: Directory) -> Parcel:
        course, first = self._course, self._course.mixes[0]
        self._sent = SentCells(directory, batch=course.serial)
        cells = send(
            self._messages,
            recipient=0,
            cells=self._attempt.mixes.cells,
            directory=directory,
            sent=self._sent,
        )
        sealed = course.seal(Kind.CELLS, cells_for(first, cells), self._identity)
        return Parcel(self.node, first, Kind.CELLS.name, sealed)
