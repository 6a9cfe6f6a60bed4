"""An ordinary client of a round of denoisers behind mixes."""

from collections.abc import Sequence

import numpy as np

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.denoisers.messages import Named, RoutedAttempt
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import cells_needed
from secure_fedrec.protection.routing.hosted import PathStart
from secure_fedrec.protection.session import Identity, Parcel
from secure_fedrec.wire import Step


class RoutedClient(PathStart):
    """An ordinary client of one attempt.

    Args:
        attempt: the attempt.
        identity: its key.
        rows: the rows that it sends.
    """

    def __init__(self, attempt: RoutedAttempt, identity: Identity, rows: ClientRows) -> None:
        super().__init__(attempt.course, identity)
        self._attempt = attempt
        self._rows = rows

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """After all keys sends rows and cells; after all lists confirms them (``Party``).

        Raises:
            ProtocolError: it is refused, or a cell of this client is in no list.
        """
        if self._attempt.collector.binding.is_denoiser[self.node.number]:
            raise ProtocolError(f"{self.node} denoises, and sends no rows")
        if self._sent is None:
            return self._upload(self._course.directory(inbox))
        return [self._seen(self._sent, inbox)]

    def _upload(self, directory: Directory) -> list[Parcel]:
        attempt, block = self._attempt, self._rows.block
        message = attempt.encode(
            pick(block, np.ones(1, dtype=bool), self._rows.virtual), Step.NOISE
        )
        group = int(attempt.collector.binding.group[self.node.number])
        recipient = attempt.numbers.index(group)
        needed = cells_needed([message], directory.config.capacity)
        cells = self._cells(directory, [message], recipient=recipient, cells=needed)
        return [attempt.named(Named.UPLOAD, block, self._identity), cells]
