"""Messages between the server's host and a client's host; signed, and bound to one session.

A session begins with a nonce of each side, so no message of another session is taken; its requests
are numbered, so none is accepted twice or late. All are in the envelope of
``protection.session.envelope``, family ``HOSTS``; its round is the number of the request.

    GREETING  16 nonce of the server
    PRESENT   16 nonce of the server | 16 nonce of the site | u32 round that it has completed
              | u64 settled, the last attempt that its private state holds
              | 32 hash of instructions that it has beside those of a request, zeros for none
    REQUEST   u32 round | u64 serial | u64 settled | u32 round and u64 serial of the attempt whose
              keys are agreed on meanwhile, zeros for none | u32 size, state (size 0 for none)
              | u32 size, the statement (``session.statement``; size 0 where the site has it)
              | u32 count, u32 each: who takes part (count 0 for all who are invited)
              | parcels | parcels of the attempt before
    REPLY     parcels; one of stage REFUSED or SITS_OUT has text for the server's host, not its half
    REFUSED   32 hash of the message that is refused | text; where no session is (``mean_site``)

Parcels: u32 count, each u8 role, u32 number of the sender | the same of the receiver | u8 size,
stage | u32 size, data. State: u32 arrays, each u8 size, name | u8 dimensions | u32 each | float64.
Where clients keep the public state from the server: u8 1 | the encrypted state that the server
holds; empty in round 1. Everything is little-endian.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray, nobody
from secure_fedrec.errors import (
    HaltedError,
    ProtocolError,
    RefusalError,
    SitsOutError,
    WireError,
)
from secure_fedrec.protection.session import SERVER, Identity, Node, Parcel, Roster
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.protection.session.nodes import node_of

NONCE_BYTES = 16
NO_INSTRUCTIONS = bytes(32)
"""Hash for hosts whose computation depends on requests only."""
_DOMAIN = b"secure-fedrec|v2|hosts|"
_HEAD = struct.Struct("<IQQIQI")
_PRESENT = struct.Struct("<16s16sIQ32s")
_NODE = struct.Struct("<BI")
_ENDS = struct.Struct("<BIBIB")
_COUNT = struct.Struct("<I")


class Kind(IntEnum):
    """Kinds of messages."""

    GREETING = 1
    PRESENT = 2
    REQUEST = 3
    REPLY = 4
    REFUSED = 5


_OF_SITES = (Kind.PRESENT, Kind.REPLY, Kind.REFUSED)

REFUSED: Final = "REFUSED"
"""Stage of a parcel that says why a host does not answer (``RefusalError``)."""
SITS_OUT: Final = "SITS_OUT"
"""Stage of a parcel that says that a client takes no part in this round (``SitsOutError``)."""
_MOST_TOLD = 500
"""Most characters of a site's message to people at the server."""


def refusal(node: Node, why: RefusalError | HaltedError) -> Parcel:
    """A site's message to the server about why it does not answer."""
    stage = REFUSED if not isinstance(why, SitsOutError) else SITS_OUT
    halted = isinstance(why, HaltedError)
    text = "its part is halted until its owner has looked" if halted else str(why)
    return Parcel(node, SERVER, stage, text.encode())


def told(data: bytes) -> str:
    """Text of a site for people at the server: one line without control characters."""
    text = data.decode("utf-8", errors="replace")[:_MOST_TOLD]
    return "".join(each if each.isprintable() else "?" for each in text)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The facts on which all hosts of a federation must agree before a session.

    Args:
        digest: 32 bytes, hash of every setting that decides what is computed.
        roster: keys of all parties, signed by the operator.
        keys: the parts of a layer's keys that all hosts hold (``hosting.SharedKeys``).
        founder: public key of the first operator of the federation, if another one signed the
            roster; otherwise b"".
    """

    digest: bytes
    roster: Roster
    keys: bytes = b""
    founder: bytes = b""

    @cached_property
    def context(self) -> bytes:
        """The context to which greetings are bound."""
        keys = sha256(self.keys).digest()
        return sha256(_DOMAIN + b"greeting" + self.digest + self.roster.hash + keys).digest()

    @cached_property
    def series(self) -> bytes:
        """16 bytes that identify this federation with this roster."""
        return self.context[:16]

    @cached_property
    def federation(self) -> bytes:
        """32 bytes that identify this federation, the same for every version of its roster.

        They also stay the same if another operator takes over, since records of what clients
        revealed and spent belong to the federation.
        """
        founder = self.founder or self.roster.operator
        return sha256(_DOMAIN + b"federation" + self.digest + founder).digest()

    def session(self, server: bytes, site: bytes, node: Node) -> bytes:
        """The context to which requests and replies of one session with one site are bound."""
        end = _NODE.pack(node.role, node.number)
        return sha256(_DOMAIN + b"session" + self.context + server + site + end).digest()

    def seal(
        self, kind: Kind, body: bytes, *, by: Identity, number: int = 0, context: bytes = b""
    ) -> bytes:
        """Sign a message.

        Args:
            kind: kind of the message.
            body: its content.
            by: who signs.
            number: number of the request in its session; 0 outside requests.
            context: context of the session; b"" for greetings, which precede it.
        """
        return self._messages(number, context).seal(kind, body, by)

    def open(
        self, data: bytes, kind: Kind, *, number: int = 0, context: bytes = b""
    ) -> tuple[Node, bytes]:
        """Sender and body of a message (arguments: ``seal``).

        Raises:
            WireError: the bytes are not a message.
            ProtocolError: of another kind, session or number, or not signed by who sent it.
        """
        found = self._messages(number, context).read(data)
        if found.kind != kind or (found.sender == SERVER) == (kind in _OF_SITES):
            raise ProtocolError(f"expected {kind.name}, got {Kind(found.kind).name}")
        return found.sender, found.body

    def _messages(self, number: int, context: bytes) -> SignedMessages:
        return SignedMessages(Family.HOSTS, Kind, self.roster, number, context or self.context)

    def open_greeting(self, data: bytes) -> bytes:
        """The nonce in the server's GREETING.

        Raises:
            WireError, ProtocolError: it is refused (``open``).
        """
        try:
            _, nonce = self.open(data, Kind.GREETING)
        except ProtocolError as refusal:
            raise ProtocolError(
                f"GREETING: {refusal}; this host holds roster {self.roster.version}, and the "
                "server may hold a later one"
            ) from None
        if len(nonce) != NONCE_BYTES:
            raise WireError(f"GREETING of {len(nonce)} bytes")
        return nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A site's answer to a greeting.

    Args:
        server, site: the nonces.
        completed: the last round that it knows to be over (``SiteState``), for information.
        settled: the last attempt that its state includes.
        instructions: hash of further instructions for its computation, besides requests.
    """

    server: bytes
    site: bytes
    completed: int
    settled: int
    instructions: bytes = NO_INSTRUCTIONS

    def encode(self) -> bytes:
        """The body of PRESENT."""
        numbers = self.completed, self.settled
        return _PRESENT.pack(self.server, self.site, *numbers, self.instructions)

    @classmethod
    def decode(cls, body: bytes) -> "Present":
        """Inverse of ``encode``.

        Raises:
            WireError: the size is wrong.
        """
        if len(body) != _PRESENT.size:
            raise WireError(f"PRESENT of {len(body)} bytes")
        server, site, completed, settled, instructions = _PRESENT.unpack(body)
        return cls(
            server=server,
            site=site,
            completed=completed,
            settled=settled,
            instructions=instructions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a site.

    Args:
        round: round of the attempt.
        serial: serial of the attempt.
        settled: the last attempt that the site's upload was summed in; 0 for none.
        ahead: round and serial of the attempt whose keys are agreed on meanwhile; zeros for none.
        state: the public state, encoded; b"" where the site has it.
        stated: the server's statement of the attempt (``Statement.encoded``), so that a site with
            another statement can report the difference; sent with the state.
        clients: int64[k], ascending: who takes part; empty for all who are invited.
        parcels: for the site's parties.
        late: parcels for its parties of the previous attempt, whose sum had been formed.
    """

    round: int
    serial: int
    settled: int
    ahead: tuple[int, int] = (0, 0)
    state: bytes = b""
    stated: bytes = b""
    clients: IntArray = field(default_factory=nobody)
    parcels: Sequence[Parcel] = ()
    late: Sequence[Parcel] = ()

    def encode(self) -> bytes:
        """The body of REQUEST."""
        head = _HEAD.pack(self.round, self.serial, self.settled, *self.ahead, len(self.state))
        who = len(self.clients).to_bytes(4, "little") + self.clients.astype("<u4").tobytes()
        parcels = encode_parcels(self.parcels) + encode_parcels(self.late)
        stated = len(self.stated).to_bytes(4, "little") + self.stated
        return head + self.state + stated + who + parcels

    @classmethod
    def decode(cls, body: bytes) -> "Request":
        """Inverse of ``encode``.

        Raises:
            ProtocolError, WireError: anything else.
        """
        with _laid_out("REQUEST"):
            round_, serial, settled, *ahead, size = _HEAD.unpack_from(body)
            start = _HEAD.size
            end = start + size
            (length,), at = _COUNT.unpack_from(body, end), end + _COUNT.size
            stated, at = body[at : at + length], at + length
            (count,) = _COUNT.unpack_from(body, at)
            clients = struct.unpack_from(f"<{count}I", body, at + _COUNT.size)
            parcels, at = _parcels(body, at + _COUNT.size + 4 * count)
            late, at = _parcels(body, at)
            _require_end(body, at)
        return cls(
            round=round_,
            serial=serial,
            settled=settled,
            ahead=(ahead[0], ahead[1]),
            state=body[start:end],
            stated=stated,
            clients=np.array(clients, dtype=np.int64),
            parcels=parcels,
            late=late,
        )


def encode_parcels(parcels: Sequence[Parcel]) -> bytes:
    """The body of REPLY."""
    parts = [len(parcels).to_bytes(4, "little")]
    for parcel in parcels:
        stage = parcel.stage.encode()
        one, other = parcel.sender, parcel.receiver
        ends = _ENDS.pack(one.role, one.number, other.role, other.number, len(stage))
        parts += [ends, stage, _COUNT.pack(len(parcel.data)), parcel.data]
    return b"".join(parts)


def decode_parcels(body: bytes) -> list[Parcel]:
    """Inverse of ``encode_parcels``.

    Raises:
        ProtocolError, WireError: anything else.
    """
    with _laid_out("REPLY"):
        parcels, end = _parcels(body, 0)
        _require_end(body, end)
    return parcels


def encode_state(arrays: Mapping[str, FloatArray]) -> bytes:
    """A public state; the order of names does not count."""
    parts = [len(arrays).to_bytes(4, "little")]
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name], dtype="<f8")
        word, shape = name.encode(), values.shape
        layout = f"<B{len(word)}sB{len(shape)}I"
        parts += [struct.pack(layout, len(word), word, len(shape), *shape), values.tobytes()]
    return b"".join(parts)


def decode_state(data: bytes) -> dict[str, FloatArray]:
    """Inverse of ``encode_state``.

    Raises:
        ProtocolError, WireError: anything else.
    """
    found: dict[str, FloatArray] = {}
    with _laid_out("state"):
        (count,), at = _COUNT.unpack_from(data), _COUNT.size
        for _ in range(count):
            (length,) = struct.unpack_from("B", data, at)
            word, dimensions = struct.unpack_from(f"{length}sB", data, at + 1)
            shape = struct.unpack_from(f"<{dimensions}I", data, at + 2 + length)
            start = at + 2 + length + 4 * dimensions
            name, at = _text(word), start + 8 * prod(shape)
            if at > len(data):
                raise WireError(f"the array {name!r} of a state is truncated")
            values = np.frombuffer(data[start:at], dtype="<f8")
            if found and name <= max(found):
                raise WireError("the arrays of a state must ascend by name")
            if not is_single(values):
                raise WireError(f"the array {name!r} of a state is not finite, in single precision")
            try:
                found[name] = values.astype(np.float64).reshape(shape)
            except ValueError:  # more dimensions or empty rows than an array can have
                raise WireError(f"the array {name!r} of a state has no possible shape") from None
        _require_end(data, at)
    return found


def is_single(values: FloatArray) -> bool:
    """Whether values are finite in single precision, which some algorithms compute in."""
    return bool((np.abs(values) <= np.finfo(np.float32).max).all())


def _parcels(body: bytes, at: int) -> tuple[list[Parcel], int]:
    """Parcels at a position in the data, and the position after them."""
    (count,), at = _COUNT.unpack_from(body, at), at + _COUNT.size
    found = []
    for _ in range(count):
        *ends, length = _ENDS.unpack_from(body, at)
        stage, size = struct.unpack_from(f"<{length}sI", body, at + _ENDS.size)
        start = at + _ENDS.size + length + _COUNT.size
        at = start + size
        parties = node_of(*ends[:2]), node_of(*ends[2:])
        found.append(Parcel(*parties, _text(stage), body[start:at]))
    return found, at


@contextmanager
def _laid_out(name: str) -> Iterator[None]:
    try:
        yield
    except struct.error:
        raise WireError(f"{name}: truncated") from None


def _require_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise WireError(f"{len(data)} bytes, where a message ends after {end}")


def _text(data: bytes) -> str:
    if not data.isascii():
        raise WireError("a name is not ASCII")
    return data.decode()
