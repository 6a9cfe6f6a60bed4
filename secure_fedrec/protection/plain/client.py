"""A client of a plain round on hosts."""

from collections.abc import Sequence

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.protection.plain.messages import PlainKind, context_of, encode_upload
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Parcel,
)
from secure_fedrec.protection.session.envelope import Family, seal
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
            ProtocolError: they were sent.
        """
        if self._sent or inbox:
            raise ProtocolError(f"{self.node} has sent its rows, or is told what it never awaits")
        self._sent = True
        data = seal(
            Family.PLAIN,
            PlainKind.UPLOAD,
            self._body,
            sender=self.node,
            key=self._identity.key,
            round_=self._at.serial,
            context=context_of(self._at),
        )
        return [Parcel(self.node, SERVER, PlainKind.UPLOAD.name, data)]
