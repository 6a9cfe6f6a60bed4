"""A client's host in its session with the server: greetings, numbered requests, signed replies.

The client's halves of the attempt in progress and, if keys are agreed on ahead, of the next one are
kept as long as the session.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.engines.distributed.host_messages import (
    NONCE_BYTES,
    Agreement,
    Kind,
    Present,
    Request,
    encode_parcels,
    refusal,
)
from secure_fedrec.engines.distributed.round_log import note_asked, refusal_fields
from secure_fedrec.errors import HaltedError, ProtocolError, RefusalError, SitsOutError
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import Hosting, Standing
from secure_fedrec.protection.masking import ClientState, MaskingClient
from secure_fedrec.protection.masking.keys_ahead import KeysAhead
from secure_fedrec.protection.masking.pipeline import PipelinedClient
from secure_fedrec.protection.session import Identity, Node, Parcel, Party
from secure_fedrec.protection.session.beacon import Beacon
from secure_fedrec.protection.session.journal import Journal

log = logging.getLogger("secure-fedrec")
SAID: Final = "refused, and said so: %s"


@dataclass(slots=True)
class _Begun:
    context: bytes
    last: int = 0


class SiteSession:
    """The session in progress, if there is one.

    Args:
        agreement: with all other hosts.
        identity: the identity that signs for this host.
        begun: called when a session begins; returns the round of the host's state, and the last
            attempt that it includes.
        handle: answers a request for the host's parties.
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
            ProtocolError, WireError: it is refused; nothing is to be sent. A refusal that may be
                told is the answer (``RefusalError``).
        """
        if len(data) > 2 and data[2] == Kind.GREETING:
            return self._greeted(data)
        session = self._session
        if session is None:
            raise ProtocolError("no session with the server has begun")
        number = session.last + 1
        _, body = self._agreement.open(data, Kind.REQUEST, number=number, context=session.context)
        session.last = number
        request = Request.decode(body)
        try:
            parcels = self._handle(request)
        except Exception as why:
            note_asked(why, round_=request.round, attempt=request.serial)
            if not isinstance(why, (RefusalError, HaltedError)):
                raise
            log.warning(SAID, why, extra=refusal_fields(why))
            parcels = [refusal(self._identity.node, why)]
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


class SittingOut:
    """The party of a client that does not take part in an attempt: it reports this.

    Args:
        node: the client.
        why: the reason that it gives.
    """

    def __init__(self, node: Node, why: SitsOutError) -> None:
        self.node = node
        self._said = refusal(node, why)

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """The same answer to everything (``Party.step``)."""
        return [self._said]


class ClientHalves:
    """The halves of one client.

    Args:
        hosting: hosting of the stack.
        identity: the client's key.
        journal: record of what the client has committed to.
        beacon: source of public randomness at this host; None without one.
    """

    def __init__(
        self, hosting: Hosting, identity: Identity, journal: Journal, beacon: Beacon | None
    ) -> None:
        self._hosting = hosting
        self._identity = identity
        self._journal = journal
        self._beacon = beacon if hosting.takes_beacons else None
        self._masked: list[MaskingClient] = []
        self._ahead: tuple[Standing, MaskingClient] | None = None

    def drop(self) -> None:
        """Drop the half of the next attempt, as its session has ended."""
        self._taken(None)
        self._masked = []

    def begin(self, at: Standing, rows: ClientRows) -> Party:
        """The half of an attempt, loaded: the one whose keys were agreed on ahead, if it fits.

        Args:
            at: the attempt.
            rows: what the client sends.
        """
        hosting, half = self._hosting, self._taken(at)
        if not isinstance(hosting, KeysAhead):
            return hosting.half(at, self._identity, self._journal, rows)
        if half is None:
            half = hosting.open_client(at, self._identity, self._journal)
        hosting.load(at, half, rows)
        self._masked = [half]
        return half

    def begin_ahead(self, at: Standing, serial: int, current: Party | None) -> Party:
        """Both halves, including that of the next attempt, as one party; it is made once.

        Args:
            at: the next attempt, without a public state.
            serial: serial of the attempt in progress.
            current: the half of that attempt; None where the client does not take part.

        Raises:
            ProtocolError: another one than was named before, or not beyond the one in progress, or
                the stack agrees on no keys ahead.
        """
        hosting, node = self._hosting, self._identity.node
        if not isinstance(hosting, KeysAhead) or at.serial <= serial:
            raise ProtocolError(f"no keys of attempt {at.serial} are agreed on in {serial}")
        if self._ahead is not None:
            if at.serial != self._ahead[0].serial or current is None:
                raise ProtocolError(f"keys of attempt {self._ahead[0].serial} are agreed on")
            return current
        half = hosting.open_client(at, self._identity, self._journal)
        self._ahead = at, half
        self._masked.append(half)
        halves: dict[int, Party] = {at.serial: half}
        if current is not None:
            halves[serial] = current
        return PipelinedClient(node, halves)

    def observe(self) -> None:
        """Tell the halves the public values known so far.

        Raises:
            ConfigError: the source of randomness holds a value without a valid signature.
            ProtocolError: the values contradict each other.
        """
        known = {} if self._beacon is None else self._beacon.values()
        for half in self._masked:
            for epoch, value in known.items():
                half.observe_beacon(epoch, value)

    def _taken(self, at: Standing | None) -> MaskingClient | None:
        """The half that was begun ahead, if it is of this attempt and has its keys."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        begun, half = ahead
        same = at is not None and at.serial == begun.serial and half.state is ClientState.BOXES
        if same and at is not None and np.array_equal(at.clients, begun.clients):
            return half
        half.abort("another attempt was begun, or its keys were not agreed on")
        return None
