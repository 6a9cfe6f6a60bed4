"""A host's side of its session with the server: greetings, numbered requests, signed replies."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from secure_fedrec.engines.distributed.host_messages import (
    NONCE_BYTES,
    Agreement,
    Kind,
    Present,
    Request,
    encode_parcels,
)
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Identity, Parcel


@dataclass(slots=True)
class _Begun:
    context: bytes
    last: int = 0


class SiteSession:
    """The session in progress, if there is one.

    Args:
        agreement: with all other hosts.
        identity: who signs for this host.
        begun: called when a session begins; gives the round that the host's state is of, and the
            last attempt that is in it.
        handle: what the host's parties answer to a request.
    """

    def __init__(
        self,
        agreement: Agreement,
        identity: Identity,
        begun: Callable[[], tuple[int, int]],
        handle: Callable[[Request], Sequence[Parcel]],
    ) -> None:
        self._agreement = agreement
        self._identity = identity
        self._begun = begun
        self._handle = handle
        self._session: _Begun | None = None

    def answer(self, data: bytes) -> bytes:
        """Handle one message of the server.

        Raises:
            ProtocolError, WireError: it is refused; nothing is to be sent.
        """
        if len(data) > 2 and data[2] == Kind.GREETING:
            return self._greeted(data)
        session = self._session
        if session is None:
            raise ProtocolError("no session with the server has begun")
        number = session.last + 1
        _, body = self._agreement.open(data, Kind.REQUEST, number=number, context=session.context)
        session.last = number
        parcels = self._handle(Request.decode(body))
        return self._agreement.seal(
            Kind.REPLY,
            encode_parcels(parcels),
            by=self._identity,
            number=number,
            context=session.context,
        )

    def _greeted(self, data: bytes) -> bytes:
        """Begin a session."""
        agreement = self._agreement
        server, own = agreement.open_greeting(data), os.urandom(NONCE_BYTES)
        self._session = _Begun(agreement.session(server, own, self._identity.node))
        completed, settled = self._begun()
        present = Present(server=server, site=own, completed=completed, settled=settled)
        return agreement.seal(Kind.PRESENT, present.encode(), by=self._identity)
