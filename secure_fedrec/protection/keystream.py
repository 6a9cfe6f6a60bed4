"""Keystreams: AES-256 in counter mode, blocks numbered from zero, as fast as the library's GCM.

OpenSSL's GCM uses the wide AES instructions of recent processors, its counter mode does not: where
there are any, GCM takes less than half the time. Under a nonce of zeros GCM encrypts by counter
mode from block 2 on (NIST SP 800-38D, sections 7.1 and 6.5). So blocks 0 and 1 come from AES itself
and all others are GCM's ciphertext of zeros; its tag, which would say nothing new, is never made.
GCM ends after 2^32 - 2 blocks, with an error. Blocks 0 and 1 are GCM's own secrets under the same
key, so a key of a keystream must never serve GCM beside.
"""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

CHUNK_BYTES = 128 * 1024
"""Most bytes that are made at a time; whoever asks for no more at a time saves a loop."""

_FIRST = b"".join(block.to_bytes(16, "big") for block in range(2))
_ZEROS = memoryview(bytes(CHUNK_BYTES))


class Keystream:
    """The keystream of one key, from its beginning.

    Args:
        key: 32 secret bytes that are used for nothing else.

    Raises:
        ValueError: the key has another length.
    """

    __slots__ = ("_first", "_rest")

    def __init__(self, key: bytes) -> None:
        cipher = algorithms.AES256(key)
        self._first = Cipher(cipher, modes.ECB()).encryptor().update(_FIRST)  # noqa: S305
        self._rest = Cipher(cipher, modes.GCM(bytes(12))).encryptor()

    def fill(self, out: memoryview | bytearray) -> None:
        """Overwrite n contiguous bytes, of whatever items, with the next n bytes.

        Raises:
            TypeError: they are not contiguous.
            ValueError: the stream has no n bytes left.
        """
        view = memoryview(out)
        if view.nbytes == 0:
            return
        out = view.cast("B")
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
