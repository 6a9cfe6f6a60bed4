"""Keeps freed memory of this process, because it is soon needed again.

A round makes and drops the same large arrays batch after batch. An allocator that hands each of
them back to the system gets pages that have to be cleared and mapped anew, a quarter of a round's
time.
"""

import ctypes
import sys
from contextlib import suppress
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**25

KEPT: Final = 2**27
"""Bytes that are kept for the batches of a round."""

KEPT_BY_SERVERS: Final = 2**30
"""Bytes kept by a server that receives megabytes from every client, from all before it continues.
"""


def reuse_freed_memory(kept: int = KEPT) -> bool:
    """Let arrays of up to 32 MB come from memory that was freed, of which some is kept.

    Changes no result. It concerns the allocator of the whole process, so only the owner of the
    process, such as a command, should call it; nothing happens with another allocator than glibc's.
    glibc determines how much is kept: the limit applies to free memory at the end of a heap;
    threads have their own heaps, and free memory below a used block is kept as well.

    Args:
        kept: bytes, below 2^31; if more are free at the end of a heap, they are given back.

    Returns:
        Whether the allocator accepted the setting.

    Raises:
        ValueError: the number is beyond what glibc takes, or negative.
    """
    if not 0 <= kept < 2**31:
        raise ValueError(f"bytes to keep must be 0 to 2^31 - 1, not {kept}")
    if not sys.platform.startswith("linux"):
        return False
    with suppress(AttributeError, OSError):
        allocator = ctypes.CDLL(None).mallopt
        taken = allocator(_MMAP_THRESHOLD, _LARGEST), allocator(_TRIM_THRESHOLD, kept)
        return all(taken)
    return False


def return_freed_memory() -> None:
    """Give the system back what was freed and is kept; nothing where the allocator is not glibc's.

    For use between large pieces of work whose memory needs differ.
    """
    if sys.platform.startswith("linux"):
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
