"""The one message of a plain round: a client's rows, under its name and signature.

Body, little-endian: u32 rows | rows x i32, ascending | the words, packed to the ring's bits, row by
row.
"""

from enum import IntEnum
from hashlib import sha256

import numpy as np

from secure_fedrec.core.packing import pack, packed_size, unpack
from secure_fedrec.errors import WireError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.uploads import RowBlock

_DOMAIN = b"secure-fedrec|v1|plain|"


class PlainKind(IntEnum):
    """Kinds of messages."""

    UPLOAD = 1


def context_of(at: Standing) -> bytes:
    """What all messages of an attempt are bound to."""
    return sha256(_DOMAIN + at.series + at.roster.hash + at.state).digest()


def encode_upload(collector: TableCollector, block: RowBlock) -> bytes:
    """The body of a client's message.

    Raises:
        WireError: its rows have no values.
    """
    if block.values is None:
        raise WireError("rows without values cannot be summed")
    rows = np.ascontiguousarray(block.rows, dtype="<i4").tobytes()
    words = pack(np.ascontiguousarray(block.values).reshape(-1), collector.codec.bits)
    return len(block.rows).to_bytes(4, "little") + rows + bytes(words)


def decode_upload(collector: TableCollector, body: bytes) -> RowBlock:
    """The rows of one client.

    Raises:
        WireError: another length, or rows that do not ascend or are not of the table.
    """
    count, width, bits = int.from_bytes(body[:4], "little"), collector.width, collector.codec.bits
    end = 4 + 4 * count
    if len(body) != end + packed_size(count * width, bits):
        raise WireError(f"an upload of {len(body)} bytes declares {count} rows")
    rows = np.frombuffer(body, dtype="<i4", count=count, offset=4).astype(np.int32)
    if count and (np.any(rows[1:] <= rows[:-1]) or rows[0] < 0 or rows[-1] >= collector.n_items):
        raise WireError(f"row numbers must ascend and stay below {collector.n_items}")
    words = unpack(body[end:], count * width, bits).reshape(count, width)
    return RowBlock(indptr=np.array([0, count]), rows=rows, values=words)
