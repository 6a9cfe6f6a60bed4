"""A public random rotation: spreads a vector evenly over its coordinates.

The rotation is orthonormal, linear and public: it does not protect anything. It makes a coordinate
of a sum of n vectors of norm c about n c / sqrt(d) instead of n c, so that a small ring can hold
the sum (Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated
learning with secure aggregation", 2021; Suresh et al. 2017).

A Walsh-Hadamard transform needs a power of two. Padding would nearly double the upload in the worst
case, so a window of W coordinates, W the largest power of two that is at most d, is moved instead:
first over the beginning, then over the end of the vector, each with its own signs. Two windows
cover all coordinates because 2 W > d, and no coordinate is added.
"""

import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.errors import ConfigError, EncodingError

SEED_BYTES = 32


def window_of(size: int) -> int:
    """Coordinates that one transform mixes: the largest power of two that is at most ``size``."""
    return 1 << (size.bit_length() - 1)


class Rotation:
    """An orthonormal map of R^size, a function of a public seed.

    Args:
        size: d, at least 1.
        seed: 32 public bytes. They must not depend on what is rotated: the bound on the largest
            coordinate of a sum (not privacy) rests on signs that no client knew when it trained.

    Raises:
        ConfigError: the size is not positive or the seed has another length.
    """

    def __init__(self, size: int, seed: bytes) -> None:
        if size < 1:
            raise ConfigError("dp.size", size, "must be at least 1")
        if len(seed) != SEED_BYTES:
            raise ConfigError("dp.rotation_seed", len(seed), f"must have {SEED_BYTES} bytes")
        self.size = size
        self._window = window_of(size)
        self._starts = (0,) if self._window == size else (0, size - self._window)
        self._signs = _signs(seed, len(self._starts) * self._window).reshape(-1, self._window)

    def apply(self, values: FloatArray) -> FloatArray:
        """The rotated vector, float64[size]; the input is left alone.

        Raises:
            EncodingError: the vector has another shape.
        """
        turned = self._copy(values)
        for start, signs in zip(self._starts, self._signs, strict=True):
            part = turned[start : start + self._window]
            part *= signs
            hadamard(part)
        return turned

    def invert(self, values: FloatArray) -> FloatArray:
        """The vector whose rotation is ``values``, up to float64 rounding.

        Raises:
            EncodingError: the vector has another shape.
        """
        turned = self._copy(values)
        for start, signs in zip(self._starts[::-1], self._signs[::-1], strict=True):
            part = turned[start : start + self._window]
            hadamard(part)
            part *= signs
        return turned

    def _copy(self, values: FloatArray) -> FloatArray:
        if values.shape != (self.size,):
            raise EncodingError(f"a vector of shape ({self.size},) was due, got {values.shape}")
        return np.array(values, dtype=np.float64)


@compiled_loop
def hadamard(values: FloatArray) -> None:
    """In place, ``values = H values / sqrt(n)`` for the Walsh-Hadamard matrix; n a power of two."""
    size = len(values)
    half = 1
    while half < size:
        for start in range(0, size, 2 * half):
            for place in range(start, start + half):
                one, other = values[place], values[place + half]
                values[place] = one + other
                values[place + half] = one - other
        half *= 2
    shrink = 1.0 / np.sqrt(float(size))
    for place in range(size):
        values[place] *= shrink


def _signs(seed: bytes, count: int) -> FloatArray:
    label = b"dp|rotation"
    info = b"secure-fedrec|v1|" + len(label).to_bytes(2, "little") + label
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(seed)
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    bits = np.frombuffer(encryptor.update(bytes(math.ceil(count / 8))), dtype=np.uint8)
    flips = np.unpackbits(bits, count=count, bitorder="little").astype(np.float64)
    return np.asarray(1.0 - 2.0 * flips)
