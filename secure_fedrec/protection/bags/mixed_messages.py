"""Facts that all parties know of an attempt whose bags come through mixes."""

from dataclasses import dataclass

from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.routing.hosted import Course, Kind, course_context
from secure_fedrec.protection.session import SERVER, Node, Parcel, Role, from_server

_MAGIC = b"SFBGMX"


_DOMAIN = b"bags behind mixes"


@dataclass(frozen=True, slots=True, eq=False)
class BagAttempt:
    """Facts that all parties of an attempt know.

    Args:
        mixes: the layer.
        at: the attempt.
    """

    mixes: Mixes
    at: Standing

    @property
    def course(self) -> Course:
        """The paths of the attempt."""
        at = self.at
        return Course(
            config=self.mixes.routing,
            serial=at.serial,
            context=course_context(at, _DOMAIN, at.present),
            roster=at.roster,
            senders=tuple(at.present.tolist()),
            recipients=(SERVER,),
        )

    @property
    def head(self) -> bytes:
        """Prefix of what the server sends to a client."""
        return _MAGIC + self.at.serial.to_bytes(8, "little")

    def to_clients(self, kind: Kind, *messages: bytes) -> list[Parcel]:
        """Messages of the server to every client."""
        clients = (Node(Role.CLIENT, number) for number in self.at.present.tolist())
        return from_server(clients, kind.name, *(self.head + data for data in messages))
