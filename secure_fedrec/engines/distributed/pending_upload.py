"""What one client submits in a round of its own: kept, to be handed to its half."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.hosting import ClientRows
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock


class PendingUpload:
    """A round's session that keeps what its one client submits (``base.RoundSession``)."""

    def __init__(self, order: IntArray, *, exempt: bool = False) -> None:
        self.order = order
        self._exempt = exempt
        self.bags: Mapping[str, SetBlock] = {}

    def exempt(self, clients: IntArray) -> BoolArray:
        """The client, where no cloak covers what it sends."""
        return np.full(len(clients), self._exempt)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Keep the rows."""
        self.rows = ClientRows(block, virtual)

    def close(self) -> Aggregate:
        """There is no sum at a site."""
        raise ProtocolError("a site forms no sum")


class PendingBags:
    """The same of what it gives to bags (``base.BagRound``)."""

    def __init__(self, upload: PendingUpload) -> None:
        self._upload = upload

    def submit(self, clients: IntArray, bags: Mapping[str, SetBlock]) -> None:
        """Keep the vectors."""
        self._upload.bags = bags

    def close(self) -> dict[str, FloatArray]:
        """There are no bags at a site."""
        raise ProtocolError("a site collects nothing")
