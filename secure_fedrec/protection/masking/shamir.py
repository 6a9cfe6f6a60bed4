"""Shamir secret sharing over the prime field of 2^255 - 19.

A secret s becomes the constant term of a polynomial of degree t - 1 whose other coefficients are
uniform; the share with index x is its value there. Any t shares determine s by Lagrange
interpolation at 0, and any t - 1 are independent of it (Shamir, "How to Share a Secret",
CACM 1979).

The field holds a 255-bit seed in one element, so a key needs no splitting into chunks. Arithmetic
is on Python integers, which is not constant-time: the party that computes on a secret here is the
one that owns it, or the server after it was handed the shares.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from secure_fedrec.errors import ConfigError, ProtocolError

__all__ = ["ELEMENT_BYTES", "PRIME", "combine", "decode_element", "encode_element", "split"]

PRIME = 2**255 - 19
ELEMENT_BYTES = 32


def encode_element(element: int) -> bytes:
    """The 32 little-endian bytes of a field element."""
    return element.to_bytes(ELEMENT_BYTES, "little")


def decode_element(data: bytes) -> int:
    """Inverse of ``encode_element``.

    Raises:
        ProtocolError: other than 32 bytes, or a number that is no reduced field element.
    """
    element = int.from_bytes(data, "little")
    if len(data) != ELEMENT_BYTES or element >= PRIME:
        raise ProtocolError("a field element must be 32 bytes that encode a number below 2^255-19")
    return element


def split(secret: int, *, threshold: int, indices: Sequence[int]) -> list[int]:
    """Share a secret.

    Args:
        secret: field element.
        threshold: shares that determine it, at least 1.
        indices: the evaluation points, distinct and never 0 (the share there is the secret).

    Returns:
        One share per index, in order. Coefficients come from the operating system's generator.

    Raises:
        ConfigError: the secret is no field element, an index is 0 or repeats, or there are fewer
            indices than the threshold.
    """
    if not 0 <= secret < PRIME:
        raise ConfigError("shamir.secret", "(hidden)", "must be a field element")
    if not 1 <= threshold <= len(indices):
        raise ConfigError(
            "shamir.threshold", threshold, f"must be between 1 and the {len(indices)} shares"
        )
    _require_indices(indices, PRIME)
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_evaluate(coefficients, index, PRIME) for index in indices]


def combine(shares: Mapping[int, int], *, at: int = 0) -> int:
    """Interpolate a polynomial through shares and evaluate it.

    Args:
        shares: exactly as many shares as the threshold, by index.
        at: where to evaluate; 0 gives the secret, another index the share it ought to have.

    Raises:
        ConfigError: an index is 0 or no field element.
    """
    indices = tuple(shares)
    _require_indices(indices, PRIME)
    weights = _weights(indices, at, PRIME)
    return (
        sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME
    )


def _require_indices(indices: Sequence[int], prime: int) -> None:
    if not all(0 < index < prime for index in indices):
        raise ConfigError("shamir.indices", list(indices), "must be field elements other than 0")
    if len(set(indices)) != len(indices):
        raise ConfigError("shamir.indices", list(indices), "must be distinct")


def _evaluate(coefficients: Sequence[int], at: int, prime: int) -> int:
    value = 0
    # Indices are small, so Horner's rule grows slowly and one reduction at the end is fastest.
    for coefficient in reversed(coefficients):
        value = value * at + coefficient
    return value % prime


# Most secrets of a round are recovered from the same responders; indices are public.
@lru_cache(maxsize=64)
def _weights(indices: tuple[int, ...], at: int, prime: int) -> tuple[int, ...]:
    """Lagrange coefficients: the product over j != i of (at - x_j) / (x_i - x_j)."""
    weights = []
    for index in indices:
        # The factors are small: a whole product costs less than reducing each step.
        numerator = math.prod(at - other for other in indices if other != index)
        denominator = math.prod(index - other for other in indices if other != index)
        weights.append(numerator * pow(denominator, -1, prime) % prime)
    return tuple(weights)
