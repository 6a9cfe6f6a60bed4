"""Agreement of a round: all that determines an honest client's upload, besides its own data.

A client computes from the public state, and by the round's number (where step sizes decay), by
instructions (a learning rate) and by the version of its code. A server that told two clients of
different ones could know the others' uploads (zeros, for instance), and so read the upload of the
last from the sum. So every host makes the round's *statement* itself (``Statement``), of its
inputs, and the protocol's masks are bound to the statement's digest: clients with different
statements have no common sum. Statements of the server are not used for it.

Not in it is the client's own past: private tables follow from the attempts that they took part in,
and only the server says which of these were summed (SECURITY.md, limits).

Two sums over one state whose cohorts differ by one client reveal that client's vector. So a client
reveals once for one federation, state and purpose (``Statement.once``, ``journal``): the round, the
cohort and the ring do not count there, since a server could vary them. That does not stop a second
sum: other clients' reveals open the vector of one that was not asked to reveal, which then takes
the state again; and a state that differs in the last digit of one parameter is another state. The
difference of the sums is the vectors of a few clients. Only noise bounds that.

Encoding, version 1: u8 version, then each field in the order of the class: u8 size of its name, the
name, u8 type, u32 size, the value. Types: 0 bytes, 1 text in UTF-8, 2 an integer of 8 bytes, 3 a
float64. Numbers are little-endian.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec import __version__
from secure_fedrec.core.arrays import unmasked
from secure_fedrec.errors import ConfigError, ProtocolError, RefusalError

_VERSION: Final = 1
_HASH_BYTES: Final = 32


def labelled_hash(label: str, *parts: bytes) -> bytes:
    """SHA-256 over a label and length-prefixed parts, so that no two inputs share an encoding."""
    digest = sha256(f"secure-fedrec|v1|masking|{label}|".encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


SOFTWARE: Final = f"secure-fedrec {__version__}"
"""Name and version of this package, which ``Statement.code`` begins with."""

NO_STATEMENT: Final = bytes(_HASH_BYTES)
"""Used in place of a digest if nothing is stated. Refused against an active server."""


class Purpose(IntEnum):
    """What is summed. A client may reveal one sum per state and purpose."""

    UPDATE = 1
    """The change of a model."""
    COUNTS = 2
    """Number of clients that have each row."""
    METRICS = 3
    """Figures of an evaluation."""


class Agreed(NamedTuple):
    """Digests of a statement that a half keeps, 32 bytes each."""

    digest: bytes
    once: bytes


@dataclass(frozen=True, kw_only=True)
class Later:
    """A statement that is not known yet, since keys are agreed on a round ahead.

    Each side names it before UPLOAD (``MaskingClient.load``, ``MaskingServer.name_statement``).

    Args:
        federation: 32 bytes, as in ``Statement``.
    """

    federation: bytes

    @cached_property
    def digest(self) -> bytes:
        """32 bytes, in the place of the statement's."""
        return labelled_hash("statement-named-with-the-vector", self.federation)

    @property
    def later(self) -> "Later":
        """Itself."""
        return self

    @property
    def known(self) -> "Statement":
        """The statement.

        Raises:
            ProtocolError: always: the statement is not known yet.
        """
        raise ProtocolError("the statement of this attempt is not known yet")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Everything that a client's upload in one round is computed from, besides its own data.

    Args:
        federation: 32 bytes, by which federations differ; the same under every version of a roster.
        state: 32 bytes, hash of the public state, such as the model (``state_hash``), as this host
            makes it, never as the server gives it.
        purpose: purpose of the sum.
        round: the round's number, where the algorithm reads one.
        cohort: hash of the invited clients; b"" where the protocol's messages are bound to it.
        instructions: hash of further instructions to a client, such as a learning rate.
        settings: hash of the settings agreed on before.
        code: names and revisions of protocol and algorithm.
        price: planned epsilon of the rounds up to this one; 0 if it is not counted.

    Raises:
        ConfigError: federation or state are not hashes, or a field is of another type or size.
    """

    federation: bytes
    state: bytes
    purpose: Purpose = Purpose.UPDATE
    round: int = 0
    cohort: bytes = b""
    instructions: bytes = b""
    settings: bytes = b""
    code: str = ""
    price: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not field.type or (isinstance(value, float) and math.isnan(value)):
                kind = getattr(field.type, "__name__", field.type)
                raise ConfigError(f"statement.{field.name}", value, f"must be of type {kind}")
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ConfigError(f"statement.{field.name}", value, "must have 8 bytes")
        for name in ("federation", "state"):
            value = getattr(self, name)
            if len(value) != _HASH_BYTES or not any(value):
                size = f"({len(value)} bytes)"
                raise ConfigError(f"statement.{name}", size, f"must be a hash of {_HASH_BYTES}")

    @cached_property
    def encoded(self) -> bytes:
        """The encoding in the module's description, of every field."""
        parts = [bytes([_VERSION])]
        for field in fields(self):
            name, (kind, value) = field.name.encode(), _value(getattr(self, field.name))
            parts += [bytes([len(name)]) + name, struct.pack("<BI", kind, len(value)), value]
        return b"".join(parts)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that everything is bound to."""
        return labelled_hash("statement", self.encoded)

    @cached_property
    def once(self) -> bytes:
        """32 bytes that identify the sum for which a client reveals only once."""
        purpose = self.purpose.to_bytes(2, "little")
        return labelled_hash("once", self.federation, self.state, purpose)

    @cached_property
    def later(self) -> Later:
        """Used in place of this statement before it is known."""
        return Later(federation=self.federation)

    @property
    def known(self) -> "Statement":
        """Itself."""
        return self

    @property
    def agreed(self) -> Agreed:
        """The digests that a half keeps."""
        return Agreed(self.digest, self.once)

    @classmethod
    def decode(cls, data: bytes) -> "Statement":
        """Inverse of ``encoded``.

        Raises:
            ProtocolError: a field is unknown, missing or of another type, or it is not a statement.
        """
        found = _read(data)
        names = [field.name for field in fields(cls)]
        if list(found) != names:
            unknown = sorted(set(found) ^ set(names)) or ["their order"]
            raise RefusalError(f"a statement of other fields: {', '.join(unknown)}")
        values = {name: _taken(*found[name]) for name in names}
        try:
            made = cls(**{**values, "purpose": Purpose(values["purpose"])})
        except (ConfigError, ValueError):
            made = None
        if made is None or made.encoded != data:
            raise ProtocolError("a statement has a field that cannot be")
        return made

    def require_same(self, told: bytes) -> None:
        """Check that another host states the same.

        Args:
            told: its encoding.

        Raises:
            ProtocolError: it differs; the message names the fields and both values of each.
        """
        if told == self.encoded:
            return
        others, own = _read(told), _read(self.encoded)
        differ = [name for name in {**own, **others} if own.get(name) != others.get(name)]
        both = (f"{name} ({_text(others, name)}, here {_text(own, name)})" for name in differ)
        raise RefusalError(f"the server states another round than this host: {', '.join(both)}")


def _value(value: object) -> tuple[int, bytes]:
    match value:
        case bytes():
            return 0, value
        case str():
            return 1, value.encode()
        case int():
            return 2, value.to_bytes(8, "little", signed=True)
        case float():
            return 3, struct.pack("<d", value)
    raise TypeError(f"a statement holds bytes, text and numbers, not {type(value).__name__}")


def _taken(kind: int, value: bytes) -> Any:
    """Inverse of ``_value``; invalid bytes give a value that encodes to other bytes."""
    match kind:
        case 1:
            return value.decode(errors="replace")
        case 2:
            return int.from_bytes(value, "little", signed=True)
        case 3 if len(value) == 8:
            return struct.unpack("<d", value)[0]
    return value


def _read(data: bytes) -> dict[str, tuple[int, bytes]]:
    """The fields of an encoding, in order.

    Raises:
        ProtocolError: it is not a statement of this version.
    """
    found: dict[str, tuple[int, bytes]] = {}
    if data[:1] != bytes([_VERSION]):
        raise RefusalError(f"no statement of version {_VERSION}")
    at = 1
    try:
        while at < len(data):
            (length,) = struct.unpack_from("B", data, at)
            name, kind, size = struct.unpack_from(f"<{length}sBI", data, at + 1)
            start = at + 1 + length + 5
            at = start + size
            found[name.decode("ascii")] = kind, data[start:at]
    except (struct.error, UnicodeDecodeError):
        at = len(data) + 1
    if at != len(data):
        raise ProtocolError("a statement is malformed")
    return found


def _text(found: Mapping[str, tuple[int, bytes]], name: str) -> str:
    if name not in found:
        return "missing"
    value = _taken(*found[name])
    return value.hex()[:16] or "empty" if isinstance(value, bytes) else repr(value)


def state_hash(state: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Hash of a public state (``Statement.state``).

    Args:
        state: arrays by name (a model's parameters), of numbers or booleans; the order of names
            does not count, names, types, shapes and every bit do.

    Returns:
        32 bytes.

    Raises:
        ConfigError: it is empty, or an array holds objects.
    """
    if not state:
        raise ConfigError("state", "(empty)", "must name at least one array")
    parts: list[bytes] = []
    for name in sorted(state):
        array = np.asarray(state[name])
        if isinstance(state[name], np.ma.MaskedArray):
            unmasked(state[name], f"state.{name}")  # refuses it
        if array.dtype.kind not in "biufc":
            raise ConfigError(f"state.{name}", array.dtype, "must hold numbers")
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        described = f"{little.dtype.str}{array.shape}"
        parts += [name.encode(), described.encode(), little.tobytes()]
    return labelled_hash("public-state", *parts)
