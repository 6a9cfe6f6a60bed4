"""Encryption and decryption of integers below n, many at a time.

Paillier is additively homomorphic: the product of ciphertexts modulo n^2 decrypts to the sum of
their plaintexts modulo n. Only integers are encrypted here, and a ciphertext is a single number
below n^2: there is no exponent beside it, so nothing about a plaintext's size is in the clear.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from secure_fedrec.core.cores import usable_cores
from secure_fedrec.errors import EncodingError
from secure_fedrec.protection.paillier.scheme.arithmetic import Arithmetic, default_arithmetic
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey, PublicKey

_WINDOW = 256  # w = 8: one byte of the exponent is one digit


_Dual: TypeAlias = tuple[int, int]
"""A number modulo n^2 as its two digits to the base n, lowest first."""


def _times(left: _Dual, right: _Dual, n: int) -> _Dual:
    """Product modulo n^2: the square of n drops out, which is a fifth faster than reducing by n^2.

    (a + b n)(c + d n) = a c + (a d + b c) n modulo n^2.
    """
    carry, low = divmod(left[0] * right[0], n)
    return low, (carry + left[0] * right[1] + left[1] * right[0]) % n


class _FixedBase:
    """Powers of one base by a table of all its digits' powers (Brickell et al., EUROCRYPT 1992).

    Row j holds ``base^(d * 256^j)`` modulo n^2 for d in 0 .. 255, so a power is one product per
    byte of the exponent and no squaring. Built with 255 products per row; 17 MB for n of 2048 bits,
    38 MB for 3072.
    """

    def __init__(self, base: int, n: int, digits: int, engine: Arithmetic) -> None:
        self._n = engine.number(n)
        self._one = (engine.number(1), engine.number(0))
        high, low = divmod(engine.number(base), self._n)
        step = (low, high)
        self._rows: list[list[_Dual]] = []
        for _ in range(digits):
            row = [self._one]
            for _ in range(_WINDOW - 1):
                row.append(_times(row[-1], step, self._n))
            self._rows.append(row)
            step = _times(row[-1], step, self._n)

    def power(self, exponent: bytes) -> _Dual:
        """``base ** exponent`` for an exponent in little-endian bytes, one per row."""
        product, n = self._one, self._n
        for row, digit in zip(self._rows, exponent, strict=True):
            product = _times(product, row[digit], n)
        return product


class Encryptor:
    """Encrypts under a public key; builds the table of a DJN key once.

    Args:
        key: the key to encrypt under.
        arithmetic: the engine; the fastest one by default.
    """

    def __init__(self, key: PublicKey, arithmetic: Arithmetic | None = None) -> None:
        engine = default_arithmetic() if arithmetic is None else arithmetic
        self.key = key
        self._engine = engine
        self._n = engine.number(key.n)
        self._n_squared = engine.number(key.n**2)
        # Half as many bits as n has, so a byte for every 16 bits of n.
        self._alpha_bytes = key.bits // 16
        self._table: _FixedBase | None = None
        if key.h is not None:
            self._table = _FixedBase(key.h, key.n, digits=self._alpha_bytes, engine=engine)

    def encrypt(self, plaintexts: Iterable[int]) -> list[int]:
        """Encrypt integers, each under randomness of its own from the operating system.

        Args:
            plaintexts: integers in [0, n).

        Returns:
            One ciphertext per plaintext, in (0, n^2).

        Raises:
            EncodingError: a plaintext is out of range; nothing is returned then.
        """
        return [self._encrypt(plaintext) for plaintext in plaintexts]

    def _encrypt(self, plaintext: int) -> int:
        if not 0 <= plaintext < self.key.n:
            raise EncodingError("a plaintext lies outside [0, n): it would wrap")
        low, high = self._obfuscator()
        # (1 + m n)(a + b n) = a + (b + m a) n modulo n^2, where (1 + n)^m = 1 + m n.
        return low + (high + plaintext * low) % self._n * self._n

    def _obfuscator(self) -> _Dual:
        """A random n-th residue modulo n^2; see ``keys`` for the two ways to one."""
        if self._table is not None:
            return self._table.power(secrets.token_bytes(self._alpha_bytes))
        while True:
            r = secrets.randbelow(self.key.n)
            if self._engine.gcd(r, self._n) == 1:
                high, low = divmod(self._engine.power(r, self._n, self._n_squared), self._n)
                return low, high


class Decryptor:
    """Decrypts with a private key, modulo p^2 and q^2 apart (Paillier 1999, section 7).

    Args:
        key: the key.
        arithmetic: the engine; the fastest one by default.
        threads: that decrypt at once, where the engine lets them; as many as the process may use
            processors by default.
    """

    def __init__(
        self, key: PrivateKey, arithmetic: Arithmetic | None = None, threads: int | None = None
    ) -> None:
        engine = default_arithmetic() if arithmetic is None else arithmetic
        self.key = key.public
        self._engine = engine
        self._threads = usable_cores() if threads is None else threads
        self._p, self._q = engine.number(key.p), engine.number(key.q)
        # L((1 + n)^(p - 1) mod p^2) = (p - 1) q = -q modulo p, and the other way round.
        self._scale_p = engine.inverse(-key.q % key.p, key.p)
        self._scale_q = engine.inverse(-key.p % key.q, key.q)
        self._p_inverse = engine.inverse(key.p, key.q)

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        """Decrypt ciphertexts that are units modulo n^2.

        Returns:
            Plain ``int`` in [0, n), one per ciphertext.
        """
        rests_p = self._rests(ciphertexts, self._p, self._scale_p)
        rests_q = self._rests(ciphertexts, self._q, self._scale_q)
        return [
            int(rest_p + self._p * ((rest_q - rest_p) * self._p_inverse % self._q))
            for rest_p, rest_q in zip(rests_p, rests_q, strict=True)
        ]

    def _rests(self, ciphertexts: Sequence[int], prime: int, scale: int) -> list[int]:
        """Plaintexts modulo one prime: ``L(c^(p - 1) mod p^2) * scale``, L(u) = (u - 1) / p."""
        square = prime * prime
        bases = [ciphertext % square for ciphertext in ciphertexts]
        powers = self._engine.secret_powers(bases, prime - 1, square, self._threads)
        return [(power - 1) // prime * scale % prime for power in powers]
