"""A client of a plain round on hosts."""

from collections.abc import Sequence

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.protection.plain.messages import PlainKind, encode_upload, messages_of
from secure_fedrec.protection.session import SERVER, Identity, Parcel
from secure_fedrec.uploads import RowBlock


class PlainClient:
    """A client of one attempt.

    Args:
        collector: sizes and ring.
        at: the attempt.
        identity: its key.
        block: its rows.
    """

    def __init__(
        self, collector: TableCollector, at: Standing, identity: Identity, block: RowBlock
    ) -> None:
        self.node = identity.node
        self._at = at
        self._identity = identity
        self._body = encode_upload(collector, block)
        self._sent = False

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Send the rows, once (``Party.step``).

        Raises:
            ProtocolError: the rows were sent before.
        """
        if self._sent or inbox:
            raise ProtocolError(
                f"{self.node} has sent its rows, or was sent a message that it never awaits"
            )
        self._sent = True
        data = messages_of(self._at).seal(PlainKind.UPLOAD, self._body, self._identity)
        return [Parcel(self.node, SERVER, PlainKind.UPLOAD.name, data)]
