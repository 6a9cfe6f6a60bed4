"""A client's half that gives to bags under its name."""

from collections.abc import Sequence

from secure_fedrec.protection.bags.messages import BagKind
from secure_fedrec.protection.session import SERVER, Parcel, Party


class Giver:
    """A client's half that sends its vectors beside its first message (a ``Party``).

    Args:
        half: the half.
        message: the vectors, sealed (``messages.seal_vectors``).
    """

    def __init__(self, half: Party, message: bytes) -> None:
        self.node = half.node
        self._half = half
        self._message = message

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half, with the vectors in the first answer (``Party.step``)."""
        parcels = self._half.step(inbox)
        if self._message:
            parcels.append(Parcel(self.node, SERVER, BagKind.VECTORS.name, self._message))
            self._message = b""
        return parcels
