"""A denoiser of a round behind mixes, at the host of the client that it is."""

from collections.abc import Sequence

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.denoisers.group_sums import TableSum
from secure_fedrec.protection.denoisers.messages import Named, RoutedAttempt
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import Endpoint
from secure_fedrec.protection.routing.hosted import Kind, PathEnd, require_seen
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.protection.session import SERVER, Identity, Parcel, refusals_of
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step


class RoutedDenoiser(PathEnd):
    """A denoiser of one attempt, at the host of the client that it is.

    Args:
        attempt: the attempt.
        identity: its key.
        own: the rows of that client, which reach the server inside its sums alone.
    """

    def __init__(self, attempt: RoutedAttempt, identity: Identity, own: RowBlock) -> None:
        super().__init__(attempt.course, identity)
        self._attempt = attempt
        collector = attempt.collector
        self._sums = TableSum(collector.n_items, collector.width, collector.codec)
        self._sums.add(own, -1)
        self._list = b""

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        index = self._course.recipients.index(self.node)
        self._end = Endpoint(layers=self._course.config.layers, index=index)
        self._end.rotate(directory, key)

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """After cells sends a list of receipts; after every client's confirmation the sums."""
        course = self._course
        if self._list:
            # Every client has found its cells in the very lists of this attempt.
            require_seen(course, inbox, self.node, self._list)
            return [self._attempt.named(Named.SUMS, self._sums.block(), self._identity)]
        messages = self._messages(self._cells(inbox, course.config.layers, course.mixes[-1:]))
        due = self._attempt.due(self.node.number)
        if len(messages) != due:
            raise ProtocolError(f"{len(messages)} messages came to {self.node}, {due} are due")
        for message in messages:
            self._sums.add(self._attempt.decode(message, Step.NOISE), 1)
        self._list = self._end.receipt(batch=course.serial, identity=self._identity.key)
        return [self._parcel(SERVER, Kind.RECEIPT, self._list)]

    def _messages(self, cells: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []

        def take(cell: bytes) -> None:
            whole = self._end.receive(cell)
            if whole is not None:
                found.append(whole)

        why = refusals_of(cells, take)
        try:
            self._end.require_whole()
        except ProtocolError as missing:
            raise ProtocolError(f"{missing}{why}") from None
        return found
