"""Masks: the AES-256-CTR keystream of a key, added to or taken off a vector of ring words.

A key serves one vector of one round, so the counter starts at zero. Words are drawn at the full
width w of the array (32 or 64 bits). Where the ring has b < w bits, the sum is cut to b bits once,
before it is packed: Z_2^w -> Z_2^b is a ring map, so cutting a sum equals summing cut masks.

Expansion and addition are fused through buffers that stay in the processor's second-level cache,
four keystreams to one pass over the sum: a mask never exists as a whole array.
"""

from collections.abc import Callable, Sequence

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.compiled import add_four, subtract_four
from secure_fedrec.protection.keystream import Keystream

KEY_BYTES = 32
_BUFFER_BYTES = 128 * 1024
_AT_ONCE = 4  # as many as ``add_four`` takes; with the piece and zeros, 768 KiB
_MOST_KEYS = 256  # cipher states that are held at a time


class MaskExpander:
    """Expands keys into masks; holds its buffers, so it serves one thread at a time."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers = [np.empty(_BUFFER_BYTES, dtype=np.uint8) for _ in range(_AT_ONCE)]

    def apply(self, target: RingArray, *, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
        """Add the masks of some keys to a vector, and take those of others off, in place.

        Args:
            target: contiguous uint32[d] or uint64[d]; words wrap modulo 2^32 or 2^64.
            add: 32-byte keys of the masks to add.
            subtract: 32-byte keys of the masks to take off.

        Raises:
            ValueError: the target is no one-dimensional array of ring words, or a key is not 32
                bytes long.
        """
        if target.ndim != 1 or target.dtype not in (np.uint32, np.uint64):
            raise ValueError(
                f"masks cover uint32[d] or uint64[d], not {target.dtype} {target.shape}"
            )
        for start in range(0, max(len(add), len(subtract)), _MOST_KEYS):
            chosen = slice(start, start + _MOST_KEYS)
            self._apply(
                target,
                [Keystream(key) for key in add[chosen]],
                [Keystream(key) for key in subtract[chosen]],
            )

    def _apply(
        self, target: RingArray, plus: Sequence[Keystream], minus: Sequence[Keystream]
    ) -> None:
        step = _BUFFER_BYTES // target.itemsize
        # Piece by piece, all keys on one piece: the piece stays in the cache too.
        for start in range(0, len(target), step):
            piece = target[start : start + step]
            self._cover(piece, plus, add_four, np.add)
            self._cover(piece, minus, subtract_four, np.subtract)

    def _cover(
        self,
        piece: RingArray,
        streams: Sequence[Keystream],
        by_four: Callable[..., None],
        by_one: np.ufunc,
    ) -> None:
        """Put the next words of every stream on a piece, four streams in one pass over it."""
        rows = [buffer[: piece.nbytes].view(f"<u{piece.itemsize}") for buffer in self._buffers]
        buffers = [buffer.data[: piece.nbytes] for buffer in self._buffers]
        whole = len(streams) - len(streams) % _AT_ONCE
        for first in range(0, whole, _AT_ONCE):
            for buffer, stream in zip(buffers, streams[first : first + _AT_ONCE], strict=True):
                stream.fill(buffer)
            by_four(piece, *rows)
        for stream in streams[whole:]:
            stream.fill(buffers[0])
            by_one(piece, rows[0], out=piece)

    def wipe(self) -> None:
        """Overwrite the buffers, which hold the last pieces of masks."""
        for buffer in self._buffers:
            buffer.fill(0)
