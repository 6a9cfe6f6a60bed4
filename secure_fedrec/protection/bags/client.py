"""A client's half that gives to bags under its name."""

from collections.abc import Mapping, Sequence

from secure_fedrec.protection.bags.bag_vectors import require_bags
from secure_fedrec.protection.bags.embedded import LayeredBags
from secure_fedrec.protection.bags.messages import MAGIC, BagKind, encode_vectors, messages_of
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.session import SERVER, Identity, Parcel, Party
from secure_fedrec.uploads import SetBlock


class Giver:
    """A client's half that sends its vectors beside its first message (a ``Party``).

    Args:
        half: the half.
        at: the attempt.
        identity: the client's key.
        channel: the bags.
        given: float64 vectors by bag, one segment.

    Raises:
        WireError: a bag is missing or unknown, or its vectors do not fit its sizes.
        EncodingError: a value cannot be encoded.
    """

    def __init__(
        self,
        half: Party,
        at: Standing,
        identity: Identity,
        channel: LayeredBags,
        given: Mapping[str, SetBlock],
    ) -> None:
        require_bags(given, channel.bags, 1)
        self.node = half.node
        self._half = half
        body = b"".join(encode_vectors(channel, name, given[name]) for name in channel.bags)
        self._message = MAGIC + messages_of(at).seal(BagKind.VECTORS, body, identity)

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half, and once the vectors (``Party.step``)."""
        parcels = self._half.step(inbox)
        if self._message:
            parcels.append(Parcel(self.node, SERVER, BagKind.VECTORS.name, self._message))
            self._message = b""
        return parcels
