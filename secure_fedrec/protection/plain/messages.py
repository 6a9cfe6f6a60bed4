"""The one message of a plain round: a client's rows, under its name and signature.

Body, little-endian: u32 rows | rows x i32, ascending | the words, packed to the ring's bits, row by
row.
"""

from enum import IntEnum
from hashlib import sha256

import numpy as np

from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import pack, packed_size, unpack
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.base.row_numbers import decode_row_numbers, encode_row_numbers
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.uploads import RowBlock

_DOMAIN = b"secure-fedrec|v1|plain|"


class PlainKind(IntEnum):
    """Kinds of messages."""

    UPLOAD = 1


def messages_of(at: Standing) -> SignedMessages:
    """All messages of an attempt, with the context to which they are bound."""
    context = sha256(_DOMAIN + at.series + at.roster.hash + at.statement.digest).digest()
    return SignedMessages(Family.PLAIN, PlainKind, at.roster, at.serial, context)


def encode_upload(collector: TableCollector, block: RowBlock) -> bytes:
    """The body of a client's message.

    Raises:
        WireError: its rows have no values.
    """
    if block.values is None:
        raise WireError("rows without values cannot be summed")
    words = pack(np.ascontiguousarray(block.values).reshape(-1), collector.codec.bits)
    return encode_row_numbers(block.rows) + bytes(words)


def decode_upload(collector: TableCollector, body: bytes) -> RowBlock:
    """The rows of one client.

    Raises:
        WireError: another length, or rows that do not ascend or are not of the table.
    """
    rows, end = decode_row_numbers(body, collector.n_items)
    count, width, bits = len(rows), collector.width, collector.codec.bits
    if len(body) != end + packed_size(count * width, bits):
        raise WireError(f"an upload of {len(body)} bytes declares {count} rows")
    words = unpack(body[end:], count * width, bits).reshape(count, width)
    return RowBlock(indptr=np.array([0, count]), rows=rows, values=words)
