"""Keystreams: AES-256 in counter mode, blocks numbered from zero, as fast as this machine can.

The library makes the same bytes in two ways, and which is faster depends on the processor. With
AVX-512, OpenSSL's GCM uses the wide AES instructions, its counter mode does not and takes twice the
time. Elsewhere GCM's hash, which nobody asked for, costs as much as the cipher, and counter mode
takes half the time of GCM. So before its first keystream a process times both, for about a
millisecond; threads that begin at once may each do so.

Under a nonce of zeros GCM encrypts by counter mode from block 2 on (NIST SP 800-38D, sections 7.1
and 6.5). So blocks 0 and 1 come from AES itself and all others are GCM's ciphertext of zeros; its
tag, which would say nothing new, is never made. GCM ends after 2^32 - 2 blocks, so every keystream
does. Blocks 0 and 1 are GCM's own secrets under the same key, so a key of a keystream must never
serve GCM beside.
"""

from enum import Enum
from functools import cache
from time import perf_counter

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

CHUNK_BYTES = 128 * 1024
"""Most bytes that are made at a time; whoever asks for no more at a time saves a loop."""

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
        way: how the library is asked; by default the faster way on this machine.

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
            TypeError: they are not contiguous, cannot be written to, or are no bytes but objects of
                the interpreter; the stream is where it was.
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
