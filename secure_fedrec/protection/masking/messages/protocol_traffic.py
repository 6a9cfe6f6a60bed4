"""What the masking protocol sends beside the uploads: keys, shares, survivors, reveals, receipts.

A real round counts its messages; a simulated one knows their sizes from the configuration that a
real one would have (``messages.sizes``: the largest case, which inclusion paths of some
clients stay below by a few hashes).
"""

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.fixedpoint import packed_size
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import Kind
from secure_fedrec.protection.masking.messages.sizes import message_sizes
from secure_fedrec.wire import Meter

COUNTS_MAGIC = b"SFTF"
"""Prefix of the packed counts from which clients derive the second round of a tail floor."""


def count_beside(meter: Meter, config: MaskingConfig, clients: IntArray) -> None:
    """Count what a round in which all parties answer would send, without the uploads."""
    for each in message_sizes(config):
        sizes = np.full(len(clients), each.size)
        if each.direction == "down":
            meter.count_beside(sizes, senders=None, receivers=clients)
        elif each.kind != Kind.UPLOAD.name:
            meter.count_beside(sizes, senders=clients, receivers=None)


def count_counts(meter: Meter, rows: int, bits: int, clients: IntArray) -> None:
    """Count the messages that tell clients the counts of a tail floor's first sum."""
    sizes = np.full(len(clients), len(COUNTS_MAGIC) + packed_size(rows, bits))
    meter.count_beside(sizes, senders=None, receivers=clients)


def upload_bytes(config: MaskingConfig) -> int:
    """Bytes of a masked upload."""
    (size,) = (each.size for each in message_sizes(config) if each.kind == Kind.UPLOAD.name)
    return size
