"""Arithmetic on large integers: through GMP where ``gmpy2`` is installed, else Python's own.

Both give the same integers; GMP is about eight times faster at 3072 bits. Neither is constant-time
as a whole: exponents that are secret go through GMP's side-channel-silent exponentiation where
there is one, but multiplication, reduction and Python itself have timings that depend on the
numbers. No claim here covers an adversary that can time these operations on the key holder's
machine.

``gmpy2`` is LGPL-3.0 and part of the extra ``paillier``; nothing here needs it.
"""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from secure_fedrec.errors import ConfigError

try:
    import gmpy2 as _gmpy2  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError:
    _gmpy2 = None

_SMALL_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
_MILLER_RABIN_ROUNDS = 40
_LEAST_SHARED = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arithmetic:
    """Modular arithmetic of one big-number engine; its numbers behave as ``int``.

    Args:
        number: the engine's own form of an integer; products of two such stay in the engine.
        power: ``base ** exponent % modulus`` for a public exponent.
        secret_power: the same for a secret exponent above 0 and an odd modulus.
        inverse: inverse of a unit, to a modulus.
        gcd: greatest common divisor.
        release: lets a thread's large operations run without the interpreter's lock; None for an
            engine whose numbers hold it.
    """

    number: Callable[[int], int]
    power: Callable[[int, int, int], int]
    secret_power: Callable[[int, int, int], int]
    inverse: Callable[[int, int], int]
    gcd: Callable[[int, int], int]
    release: Callable[[], None] | None = None

    def secret_powers(
        self, bases: Sequence[int], exponent: int, modulus: int, threads: int
    ) -> list[int]:
        """``secret_power`` of many bases, by several threads where the engine lets them run."""

        def power(base: int) -> int:
            return self.secret_power(base, exponent, modulus)

        if self.release is None or threads < 2 or len(bases) < _LEAST_SHARED:
            return list(map(power, bases))
        # A power takes milliseconds: handing it to a thread costs nothing beside it.
        with ThreadPoolExecutor(threads, initializer=self.release) as pool:
            return list(pool.map(power, bases))


def _release() -> None:
    _gmpy2.get_context().allow_release_gil = True


def _installed() -> dict[str, Arithmetic]:
    found = {
        "int": Arithmetic(
            number=int,
            power=pow,
            secret_power=pow,
            inverse=lambda value, modulus: pow(value, -1, modulus),
            gcd=math.gcd,
        )
    }
    if _gmpy2 is not None:
        found["gmpy2"] = Arithmetic(
            number=_gmpy2.mpz,
            power=_gmpy2.powmod,
            secret_power=_gmpy2.powmod_sec,
            inverse=_gmpy2.invert,
            gcd=_gmpy2.gcd,
            release=_release,
        )
    return found


ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType(_installed())
"""Engine by name: "int" always, "gmpy2" where it is installed."""


def default_arithmetic(name: str | None = None) -> Arithmetic:
    """The named engine; without a name, the fastest installed one.

    Raises:
        ConfigError: the engine is not available here.
    """
    if name is None:
        return ARITHMETICS.get("gmpy2", ARITHMETICS["int"])
    if name not in ARITHMETICS:
        problem = "is not installed; the extra secure-fedrec[paillier] brings gmpy2"
        raise ConfigError("protection.paillier.arithmetic", name, problem, sorted(ARITHMETICS))
    return ARITHMETICS[name]


def is_probable_prime(candidate: int, arithmetic: Arithmetic | None = None) -> bool:
    """Miller-Rabin with 40 bases drawn by the operating system.

    A composite passes with probability below 4^-40, also one chosen by an adversary: the bases are
    unknown when the candidate is made.
    """
    engine = default_arithmetic() if arithmetic is None else arithmetic
    if candidate < 4:
        return candidate in (2, 3)
    if candidate % 2 == 0 or any(candidate % p == 0 and candidate != p for p in _SMALL_PRIMES):
        return False
    twos = ((candidate - 1) & (1 - candidate)).bit_length() - 1
    odd = (candidate - 1) >> twos
    return all(
        _is_witnessed(2 + secrets.randbelow(candidate - 3), odd, twos, candidate, engine)
        for _ in range(_MILLER_RABIN_ROUNDS)
    )


def _is_witnessed(base: int, odd: int, twos: int, candidate: int, engine: Arithmetic) -> bool:
    """Whether one base fails to prove the candidate composite."""
    power = engine.secret_power(base, odd, candidate)
    if power in (1, candidate - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % candidate
        if power == candidate - 1:
            return True
    return False
