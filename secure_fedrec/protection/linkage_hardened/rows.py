"""One share of one fake row, as a cell carries it to a denoiser, version 1, little-endian.

    u8 version | u8 0 | u16 denoiser | u32 round | 32 bytes context digest
    16 bytes row id | u32 row number | words [d]

The 128-bit row id is the same at all denoisers and occurs nowhere else: it lets them see that they
hold shares of the same rows, and says nothing about who sent them.
"""

import struct
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.routing.sealing import labelled
from secure_fedrec.protection.shared_upload.context import DOMAIN, RoundContext
from secure_fedrec.protection.shared_upload.messages import decode_support, encode_support
from secure_fedrec.wire.words import pack_words, unpack_words

_VERSION = 1
_HEADER = struct.Struct("<BBHI32s16sI")
_ENTRY = struct.Struct("<16sI")
_CELLS = struct.Struct("<I")
ROW_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class RowShare:
    """A share of a row.

    Args:
        row_id: 16 random bytes.
        row: row number.
        words: [1, d] ring words, uniform.
    """

    row_id: bytes
    row: int
    words: RingArray


def row_bytes(width: int, bytes_per_value: int) -> int:
    """Size of an encoded share; a cell must carry that much."""
    return _HEADER.size + width * bytes_per_value


def encode_row(share: RowShare, denoiser: int, context: RoundContext) -> bytes:
    """Bytes of the layout above."""
    header = _HEADER.pack(
        _VERSION, 0, denoiser, context.round, context.digest, share.row_id, share.row
    )
    return header + pack_words(share.words, context.codec)


def decode_row(data: bytes, denoiser: int, context: RoundContext) -> RowShare:
    """Read a share, accepting exactly what ``encode_row`` writes.

    Raises:
        WireError: malformed bytes.
        ProtocolError: a share of another round, or for another denoiser.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"a row share of {len(data)} bytes is shorter than its header")
    version, zero, receiver, round_, digest, row_id, row = _HEADER.unpack_from(data)
    if version != _VERSION or zero:
        raise WireError("a row share of an unknown version")
    if round_ != context.round or digest != context.digest:
        raise ProtocolError(f"a row share of round {round_} belongs to another round or setting")
    if receiver != denoiser:
        raise ProtocolError(f"a row share for denoiser {receiver}, not {denoiser}")
    if row >= context.n_items:
        raise WireError(f"row {row} lies outside the {context.n_items} rows of the table")
    words = unpack_words(data[_HEADER.size :], 1, context.width, context.codec)
    return RowShare(row_id, row, words)


def set_of_rows(rows: dict[bytes, int], context: RoundContext) -> bytes:
    """Digest of a set of row ids with their row numbers, for denoisers to compare."""
    entries = b"".join(_ENTRY.pack(row_id, rows[row_id]) for row_id in sorted(rows))
    return sha256(labelled(DOMAIN, b"rows", context.digest, entries)).digest()


def encode_sums(
    cells: int, rows: IndexArray, counts: IntArray, words: RingArray, context: RoundContext
) -> bytes:
    """Body of FAKES: cells received, rows with a fake, how many of each, their sums [n, d]."""
    packed = counts.astype("<u4").tobytes()
    return _CELLS.pack(cells) + encode_support(rows) + packed + pack_words(words, context.codec)


def decode_sums(body: bytes, context: RoundContext) -> tuple[int, IndexArray, IntArray, RingArray]:
    """Read the body of FAKES.

    Raises:
        WireError: not what ``encode_sums`` writes.
    """
    if len(body) < _CELLS.size:
        raise WireError("sums of fakes are shorter than their header")
    (cells,) = _CELLS.unpack_from(body)
    rows, end = decode_support(body[_CELLS.size :], context)
    place = _CELLS.size + end
    if len(body) < place + 4 * len(rows):
        raise WireError("sums of fakes end inside their counts")
    counts = np.frombuffer(body, "<u4", len(rows), place).astype(np.int64)
    words = unpack_words(body[place + 4 * len(rows) :], len(rows), context.width, context.codec)
    if np.any(counts == 0):
        raise WireError("sums of fakes name a row without a fake")
    return cells, rows, counts, words
