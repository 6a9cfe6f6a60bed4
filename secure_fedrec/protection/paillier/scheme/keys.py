"""Paillier keys: our own in the form of Damgård, Jurik and Nielsen, and imported ones.

A plaintext m in Z_n is encrypted as ``(1 + m n) * o mod n^2`` with an obfuscator o, a random n-th
residue. Where obfuscators come from is a property of the key:

- DJN keys (Damgård, Jurik and Nielsen, "A generalization of Paillier's public-key system with
  applications to electronic voting", Int. J. Inf. Secur. 2010): p and q are 3 mod 4
  with gcd(p - 1, q - 1) = 2, ``h = (-x^2)^n mod n^2`` for a random x is part of the public key, and
  ``o = h^alpha`` with a random alpha of half the bits of n. That residues by half-length exponents
  look uniform depends on the hardness of factoring n (Goldreich and Rosen, J. Cryptology 2003). The
  fixed base is what makes encryption fast.
- Imported keys have no h, and n alone cannot show whether its primes would allow one: they use
  ``o = r^n mod n^2`` for a random unit r, as Paillier wrote it (EUROCRYPT 1999).

The layout of a key, version 1, little-endian, where ``bits`` is the length of n:

    public   "SFPK" | u8 version | u8 form | u16 bits | n [bits / 8] | h [bits / 4] if form 1
    private  "SFPS" | u8 version | u8 form | u16 bits | p, q [bits / 16 each] | h if form 1

with p < q. A private key is written in the clear: encrypt its storage.
"""

import hashlib
import math
import secrets
import struct
from dataclasses import dataclass, field
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric import rsa

from secure_fedrec.errors import ConfigError, PrivateStateError, WireError
from secure_fedrec.protection.paillier.scheme.arithmetic import (
    default_arithmetic,
    is_probable_prime,
)

DEFAULT_BITS = 3072
"""Length of n: 128 bits of security by NIST SP 800-57 part 1, table 2."""

_MINIMUM_BITS = 2048
_MAXIMUM_BITS = 8192
_VERSION = 1
_HEAD = struct.Struct("<4sBBH")
_PUBLIC, _PRIVATE = b"SFPK", b"SFPS"
_FULL, _DJN = 0, 1
_ID_DOMAIN = b"secure-fedrec|v1|paillier|public-key|"
_RSA_EXPONENT = 65537  # of the throw-away RSA keys that the primes are taken from


def require_key_bits(bits: int, *, key: str = "paillier.bits") -> None:
    """Check the length of a modulus before a key is made or taken.

    Args:
        bits: length of n.
        key: the setting to name in the refusal.

    Raises:
        ConfigError: ``bits`` is below 2048, above 8192, or not a multiple of 16.
    """
    if not _MINIMUM_BITS <= bits <= _MAXIMUM_BITS or bits % 16:
        allowed = f"{_MINIMUM_BITS} to {_MAXIMUM_BITS} bits, a multiple of 16"
        raise ConfigError(key, bits, f"the modulus must have {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public key, which all parties may hold.

    The receiver of a public key can check its form only; take it, or its ``key_id``, over a channel
    that its holder signs.

    Args:
        n: the modulus, a product of two primes of equal length.
        h: generator of the obfuscators of a DJN key; None for an imported key.

    Raises:
        ConfigError: a field is out of range.
    """

    n: int
    h: int | None = None
    key_id: bytes = field(init=False, repr=False, compare=False)
    """SHA-256 of the serialised key, which ciphertexts and messages are bound to."""

    def __post_init__(self) -> None:
        require_key_bits(self.n.bit_length())
        if self.n % 2 == 0:
            raise ConfigError("paillier.n", "(even)", "must be a product of two odd primes")
        if self.h is not None:
            if not 1 < self.h < self.n**2 - 1:
                raise ConfigError("paillier.h", "(out of range)", "must lie in (1, n^2 - 1)")
            if math.gcd(self.h, self.n) != 1:
                raise ConfigError("paillier.h", "(not a unit)", "must be coprime to n")
        digest = hashlib.sha256(_ID_DOMAIN + self.to_bytes()).digest()
        object.__setattr__(self, "key_id", digest)

    def __repr__(self) -> str:
        form = "imported" if self.h is None else "DJN"
        return f"PublicKey({form}, {self.bits} bits, id {self.key_id.hex()[:16]})"

    @property
    def bits(self) -> int:
        """Length of n."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext."""
        return self.bits // 4

    def to_bytes(self) -> bytes:
        """The layout above."""
        return _written(_PUBLIC, self.bits, self.n.to_bytes(self.bits // 8, "little"), self.h)

    @classmethod
    def from_bytes(cls, data: bytes) -> "PublicKey":
        """Read a public key, accepting exactly what ``to_bytes`` writes.

        Raises:
            WireError: anything else.
        """
        form, bits = _read_head(data, _PUBLIC, "public")
        n, h = _read_numbers(data, (bits // 8, bits // 4 if form == _DJN else 0))
        if n.bit_length() != bits:
            raise WireError(f"public key: n does not have its {bits} bits")
        try:
            return cls(n=n, h=h if form == _DJN else None)
        except ConfigError as problem:
            raise WireError(f"public key: {problem}") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateKey:
    """The key that opens ciphertexts. It is never printed, pickled or copied.

    Args:
        p: the smaller prime.
        q: the larger prime.
        h: generator of the obfuscators of a DJN key; None for an imported key.

    Raises:
        ConfigError: the numbers are not primes of equal length, do not meet the conditions of a
            DJN key although h is given, or h is not an n-th residue.
    """

    p: int
    q: int
    h: int | None = None
    public: PublicKey = field(init=False)

    def __post_init__(self) -> None:
        if not (2 < self.p < self.q and self.p.bit_length() == self.q.bit_length()):
            _refuse("p and q must have equal length, p the smaller one")
        object.__setattr__(self, "public", PublicKey(n=self.p * self.q, h=self.h))
        if not all(is_probable_prime(prime) for prime in (self.p, self.q)):
            _refuse("p and q must be prime")
        if self.h is None:
            return
        if not _suit(self.p, self.q):
            _refuse("a DJN key needs p and q to be 3 mod 4 with gcd(p - 1, q - 1) = 2")
        engine = default_arithmetic()
        if any(engine.secret_power(self.h, r - 1, r * r) != 1 for r in (self.p, self.q)):
            _refuse("h must be an n-th residue")

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.public!r})"

    def __reduce__(self) -> NoReturn:
        raise PrivateStateError("a Paillier private key is neither pickled nor copied")

    def to_bytes(self) -> bytes:
        """The layout above, secret."""
        bits = self.public.bits
        primes = (prime.to_bytes(bits // 16, "little") for prime in (self.p, self.q))
        return _written(_PRIVATE, bits, b"".join(primes), self.h)

    @classmethod
    def from_bytes(cls, data: bytes) -> "PrivateKey":
        """Read a private key, accepting exactly what ``to_bytes`` writes.

        Raises:
            WireError: anything else, or numbers that are not a key.
        """
        form, bits = _read_head(data, _PRIVATE, "private")
        sizes = (bits // 16, bits // 16, bits // 4 if form == _DJN else 0)
        p, q, h = _read_numbers(data, sizes)
        try:
            key = cls(p=p, q=q, h=h if form == _DJN else None)
        except ConfigError as problem:
            raise WireError(f"private key: {problem.problem}") from None
        if key.public.bits != bits:
            raise WireError(f"private key: n does not have its {bits} bits")
        return key


def generate_key(bits: int = DEFAULT_BITS) -> PrivateKey:
    """Make a DJN key.

    The primes are those of RSA keys that OpenSSL generates from the operating system's randomness
    (FIPS 186-5 probable primes between sqrt(2) 2^(bits/2 - 1) and 2^(bits/2)), kept where they are
    3 mod 4. Drawing whole primes until a pair suits keeps each as likely as any other that suits.

    Args:
        bits: length of n, a multiple of 16.

    Raises:
        ConfigError: ``bits`` is below 2048, above 8192, or not a multiple of 16.
    """
    require_key_bits(bits)
    found: list[int] = []
    while True:
        numbers = rsa.generate_private_key(_RSA_EXPONENT, bits).private_numbers()
        for prime in (numbers.p, numbers.q):
            for other in found:
                p, q = sorted((prime, other))
                if _suit(p, q) and (p * q).bit_length() == bits and _are_apart(p, q):
                    return PrivateKey(p=p, q=q, h=_generator(p * q))
            if prime % 4 == 3:
                found.append(prime)


def _suit(p: int, q: int) -> bool:
    """The conditions of a DJN key."""
    return p % 4 == 3 and q % 4 == 3 and math.gcd(p - 1, q - 1) == 2


def _are_apart(p: int, q: int) -> bool:
    """FIPS 186-5, A.1.3: close primes are found by Fermat's method."""
    return (q - p).bit_length() > p.bit_length() - 100


def _generator(n: int) -> int:
    """``(-x^2)^n mod n^2`` for a random unit x."""
    while True:
        x = secrets.randbelow(n)
        if math.gcd(x, n) == 1:
            return int(default_arithmetic().power(-x * x % n, n, n * n))


def _refuse(problem: str) -> NoReturn:
    raise ConfigError("paillier.private_key", "(not shown)", problem)


def _written(magic: bytes, bits: int, numbers: bytes, h: int | None) -> bytes:
    head = _HEAD.pack(magic, _VERSION, _FULL if h is None else _DJN, bits)
    return head + numbers + (b"" if h is None else h.to_bytes(bits // 4, "little"))


def _read_head(data: bytes, magic: bytes, kind: str) -> tuple[int, int]:
    if len(data) < _HEAD.size:
        raise WireError(f"{kind} key: {len(data)} bytes are shorter than a header")
    found, version, form, bits = _HEAD.unpack_from(data)
    if found != magic or version != _VERSION or form not in (_FULL, _DJN):
        raise WireError(f"{kind} key: unknown format, version or form")
    try:
        require_key_bits(bits)
    except ConfigError:
        raise WireError(f"{kind} key: {bits} bits are not accepted") from None
    return form, bits


def _read_numbers(data: bytes, sizes: tuple[int, ...]) -> list[int]:
    if len(data) != _HEAD.size + sum(sizes):
        raise WireError(f"key of {len(data)} bytes, {_HEAD.size + sum(sizes)} declared")
    numbers, place = [], _HEAD.size
    for size in sizes:
        numbers.append(int.from_bytes(data[place : place + size], "little"))
        place += size
    return numbers
