"""A client's half that sends cells with its upload, and checks the receipts."""

from collections.abc import Sequence

from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.routing.hosted import PathStart
from secure_fedrec.protection.session import Identity, Parcel, Party


class MixedGiver(PathStart):
    """A client's half that sends cells with its upload, and checks the receipts (a ``Party``).

    Args:
        half: the half.
        attempt: the attempt.
        identity: the client's key.
        messages: a vector each, to be sent to the bags (``Mixes.messages``).
    """

    def __init__(
        self, half: Party, attempt: BagAttempt, identity: Identity, messages: Sequence[bytes]
    ) -> None:
        super().__init__(attempt.course, identity)
        self._half = half
        self._attempt = attempt
        self._messages = messages

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half; after all keys also sends cells, and confirms the list (``Party``).

        Raises:
            ProtocolError, WireError: it is refused, or a cell of this client is not in the list.
        """
        head = self._attempt.head
        own = [data.removeprefix(head) for data in inbox if data[: len(head)] == head]
        rest = [data for data in inbox if data[: len(head)] != head]
        if not own:
            return self._half.step(rest)
        if self._sent is not None:
            return [self._seen(self._sent, own)]
        directory, cells = self._course.directory(own), self._attempt.mixes.cells
        sent = self._half.step(rest)
        return [*sent, self._cells(directory, self._messages, recipient=0, cells=cells)]
