"""Keystreams: AES-256 in counter mode, blocks numbered from zero, as fast as this machine can.

The library makes the same bytes in two ways, and which is faster depends on the processor. With
AVX-512, OpenSSL's GCM uses the wide AES instructions, its counter mode does not and takes twice the
time. Elsewhere GCM's hash, which is not needed here, costs as much as the cipher, and counter mode
takes half the time of GCM. So before its first keystream a process times both, for about a
millisecond; threads that begin at once may each do so.

Under a nonce of zeros GCM encrypts by counter mode from block 2 on (NIST SP 800-38D, sections 7.1
and 6.5). So blocks 0 and 1 come from AES itself and all others are GCM's ciphertext of zeros; its
tag is not needed and never made. GCM ends after 2^32 - 2 blocks, so every keystream does. Blocks 0
and 1 are GCM's own secrets under the same key, so a keystream's key must never also be used for
GCM.

A mask is the keystream of a key, added to or taken off a vector of ring words (``MaskExpander``). A
key serves one vector of one round, so the counter starts at zero. Words are drawn at the full width
w of the array (32 or 64 bits). Where the ring has b < w bits, the sum is cut to b bits once, before
it is packed: Z_2^w -> Z_2^b is a ring map, so cutting a sum equals summing cut masks. Expansion and
addition are fused through buffers that stay in the processor's second-level cache, four keystreams
to one pass over the sum: a mask never exists as a whole array.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from time import perf_counter

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.compiled import add_four, subtract_four

CHUNK_BYTES = 128 * 1024
"""Largest number of bytes made at a time; a request of at most that many avoids a loop."""

STREAM_BYTES = 2**36
"""Bytes of a whole keystream: GCM's blocks and the two before them."""

_FIRST = b"".join(block.to_bytes(16, "big") for block in range(2))
_ZEROS = memoryview(bytes(CHUNK_BYTES))
_TRIALS = 5


class Way(Enum):
    """How the library is asked for a keystream; the bytes are the same."""

    COUNTER = "ctr"
    GCM = "gcm"


class Keystream:
    """The keystream of one key, from its beginning.

    Args:
        key: 32 secret bytes that are used for nothing else.
        way: how the library is called; by default the faster way on this machine.

    Raises:
        ValueError: the key has another length.
    """

    __slots__ = ("_first", "_left", "_rest")

    def __init__(self, key: bytes, way: Way | None = None) -> None:
        cipher = algorithms.AES256(key)
        self._left = STREAM_BYTES
        self._first = b""
        if (way or faster_way()) is Way.COUNTER:
            self._rest = Cipher(cipher, modes.CTR(bytes(16))).encryptor()
            return
        self._first = Cipher(cipher, modes.ECB()).encryptor().update(_FIRST)  # noqa: S305
        self._rest = Cipher(cipher, modes.GCM(bytes(12))).encryptor()

    def fill(self, out: memoryview | bytearray) -> None:
        """Overwrite n contiguous bytes, of whatever items, with the next n bytes.

        Raises:
            TypeError: they are not contiguous, cannot be written to, or are objects of the
                interpreter instead of bytes; the position of the stream is unchanged.
            ValueError: the stream has no n bytes left; nothing is overwritten.
        """
        view = memoryview(out)
        if view.nbytes == 0:
            return
        if view.readonly or "O" in view.format:
            raise TypeError("a keystream is written into memory that can be written to, of numbers")
        out = view.cast("B")
        if len(out) > self._left:
            raise ValueError(f"a keystream ends after {STREAM_BYTES} bytes")
        self._left -= len(out)
        if self._first:
            begun = min(len(self._first), len(out))
            out[:begun] = self._first[:begun]
            self._first, out = self._first[begun:], out[begun:]
        if len(out) == CHUNK_BYTES:
            self._rest.update_into(_ZEROS, out)
            return
        for start in range(0, len(out), CHUNK_BYTES):
            piece = out[start : start + CHUNK_BYTES]
            self._rest.update_into(_ZEROS[: len(piece)], piece)


@cache
def faster_way() -> Way:
    """The way that takes less time here: the best of a few trials of each, in turn."""
    out = bytearray(CHUNK_BYTES)
    streams = {way: Keystream(bytes(32), way) for way in Way}
    best = dict.fromkeys(Way, float("inf"))
    for _ in range(_TRIALS):
        for way, stream in streams.items():
            begun = perf_counter()
            stream.fill(out)
            best[way] = min(best[way], perf_counter() - begun)
    return min(Way, key=lambda way: best[way])


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
            ValueError: the target is not a one-dimensional array of ring words, or a key is not 32
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
        # Piece by piece, with all keys, so that a piece stays in the cache.
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
        """Add the next words of every stream to a piece, four streams in one pass over it."""
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
