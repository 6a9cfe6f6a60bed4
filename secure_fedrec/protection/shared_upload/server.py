"""The server's half: it holds explicit shares, proposes a set of clients, and adds the sums up."""

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import IndexArray, RingArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import SERVER, Node, Parcel, Role, from_server, refusals_of
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    Members,
    decode_members,
    decode_rows,
    encode_members,
    open_envelope,
    set_digest,
    support_digest,
)
from secure_fedrec.protection.shared_upload.round_context import RoundContext
from secure_fedrec.protection.shared_upload.round_parties import Half
from secure_fedrec.protection.shared_upload.share_sums import reveal
from secure_fedrec.uploads import Aggregate


class _State(Enum):
    COLLECTING = "collecting shares"
    PROPOSED = "waiting for consents"
    AGREED = "waiting for sums"
    DONE = "done"
    ABORTED = "aborted"


class SharingServer(Half):
    """The server in one round (a ``Hub``).

    Args:
        context: the round.
        identity: its signing key.
        cohort: clients that ``step`` invites; None for all of the roster.

    Raises:
        ProtocolError: the roster has another key for the server.

    Attributes:
        aggregate: sums and counts, once the round is over.
        stage: kind of the messages that are awaited.
        left_out: why a client that answered is not in the proposed set, by client.
    """

    aggregate: Aggregate | None = None
    stage = "CREATED"

    def __init__(
        self,
        context: RoundContext,
        identity: Ed25519PrivateKey,
        cohort: Sequence[int] | None = None,
    ) -> None:
        super().__init__(context, SERVER, identity, _State.COLLECTING)
        self._shares: dict[int, tuple[IndexArray, RingArray]] = {}
        self._body = b""
        self._cohort = cohort
        self.left_out: dict[int, str] = {}

    @property
    def finished(self) -> bool:
        """Whether there is an aggregate."""
        return self.aggregate is not None

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Ask for keys, hand them on, take shares, agree and add up (``Party.step``).

        A client's share that is refused is left out; the set agreed on does not have that client.

        Raises:
            ProtocolError, WireError: a denoiser is missing or refused, or the round is aborted.
        """
        whole = list(dict.fromkeys(inbox))  # what came twice in the same bytes came once
        match self.stage:
            case "CREATED":
                return self._ask("ADVERT", Kind.ADVERT, b"")
            case "ADVERT":
                self.stage = "SHARES"
                numbers = range(self._context.clients) if self._cohort is None else self._cohort
                clients = (Node(Role.CLIENT, number) for number in numbers)
                return from_server(clients, "ADVERT", *whole)
            case "SHARES":
                refusals_of(whole, self.receive)
                return self._ask("HELD", Kind.HELD, b"")
            case "HELD":
                return self._ask("CONSENT", Kind.PROPOSAL, self.propose(whole))
            case "CONSENT":
                return self._ask("SUMS", Kind.AGREEMENT, self.agree(whole))
        self.aggregate = self.finish(whole)
        return []

    def receive(self, message: bytes) -> None:
        """Take a client's share.

        Raises:
            ProtocolError: it is unsigned, of another round, or the client's second; it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.COLLECTING)
        signed = open_envelope(message, Kind.SHARES, context=self._context)
        if signed.sender.number in self._shares:
            raise ProtocolError(f"client {signed.sender.number} sent two shares")
        self._shares[signed.sender.number] = decode_rows(
            signed.body, self._context, width=self._context.width + 1
        )

    def share_of(self, client: int) -> tuple[IndexArray, RingArray]:
        """The server's share of a client's rows: row numbers, and uniform words [n, d + 1].

        Raises:
            ProtocolError: it does not hold a share of that client.
        """
        if client not in self._shares:
            raise ProtocolError(f"the server holds nothing of client {client}")
        return self._shares[client]

    def propose(self, held: Sequence[bytes]) -> bytes:
        """The clients that server and all denoisers received, with equal rows.

        Args:
            held: the seeds that each denoiser holds, in any order.

        Raises:
            ProtocolError: fewer clients than the floor: the round is aborted. Or a message is
                missing, unsigned or of another round.
            WireError: a malformed message.
        """
        self._require(_State.COLLECTING)
        context = self._context
        bodies = self._open_all(held, Kind.HELD)
        lists = [decode_members(body, context) for body in bodies]
        mine: Members = {
            client: support_digest(client, rows, context)
            for client, (rows, _) in self._shares.items()
        }
        chosen = {
            client: support
            for client, support in mine.items()
            if all(other.get(client) == support for other in lists)
        }
        heard = set(mine).union(*lists)
        self.left_out = {
            client: _reason(client, mine, lists) for client in sorted(heard - set(chosen))
        }
        if len(chosen) < context.floor:
            self._abort(f"{len(chosen)} clients are fewer than the floor of {context.floor}")
        self._shares = {client: self._shares[client] for client in sorted(chosen)}
        self._body = encode_members(chosen)
        self._state = _State.PROPOSED
        return self._sign(Kind.PROPOSAL, self._body)

    def agree(self, consents: Sequence[bytes]) -> bytes:
        """All consents, for the denoisers to see that they agree.

        Raises:
            ProtocolError: a denoiser consented to another set: the round is aborted. Or a message
                is missing, unsigned or of another round.
            WireError: a malformed message.
        """
        self._require(_State.PROPOSED)
        expected = set_digest(self._body, self._context)
        for number, body in enumerate(self._open_all(consents, Kind.CONSENT)):
            if body != expected:
                self._abort(f"denoiser {number} consented to another set")
        self._state = _State.AGREED
        return self._sign(Kind.AGREEMENT, b"".join(consents))

    def finish(self, sums: Sequence[bytes]) -> Aggregate:
        """Add up the sums of all parties.

        Raises:
            ProtocolError: a denoiser's sums are of other rows, or the total is not one that real
                rows can have: the round is aborted. Or a message is missing, unsigned or of another
                round.
            WireError: a malformed message.
        """
        self._require(_State.AGREED)
        context = self._context
        bodies = self._open_all(sums, Kind.SUMS)
        parts = [decode_rows(body, context, width=context.width + 1) for body in bodies]
        totals = np.zeros((context.n_items, context.width + 1), dtype=context.codec.dtype)
        named = np.zeros(context.n_items, dtype=np.int64)
        for rows, words in self._shares.values():
            scatter_add(totals, rows, words)
            named[rows] += 1
        support = np.flatnonzero(named)
        for number, (rows, words) in enumerate(parts):
            if not np.array_equal(rows, support):
                self._abort(f"the sums of denoiser {number} are of other rows than the shares")
            scatter_add(totals, rows, words)
        try:
            aggregate = reveal(totals, named, context.codec)
        except ProtocolError as damage:
            self._abort(str(damage))
        self._state = _State.DONE
        self._shares = {}
        return aggregate

    @property
    def members(self) -> tuple[int, ...]:
        """Clients of the proposed set, ascending; empty before there is one."""
        collecting = self._state in (_State.COLLECTING, _State.ABORTED)
        return () if collecting else tuple(decode_members(self._body, self._context))

    def _ask(self, stage: str, kind: Kind, *messages: bytes) -> list[Parcel]:
        """Await a stage, for which every denoiser is sent the messages."""
        self.stage = stage
        numbers = range(self._context.denoisers)
        return from_server((Node(Role.DENOISER, n) for n in numbers), kind.name, *messages)

    def _forget(self) -> None:
        self._shares = {}


def _reason(client: int, mine: Members, lists: Sequence[Members]) -> str:
    if client not in mine:
        return "no share at the server"
    for number, other in enumerate(lists):
        if client not in other:
            return f"no seed at denoiser {number}"
        if other[client] != mine[client]:
            return f"other rows at denoiser {number}"
    return ""
