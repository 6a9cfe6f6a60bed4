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

PRIME = 2**255 - 19
ELEMENT_BYTES = 32


def encode_element(element: int) -> bytes:
    """The 32 little-endian bytes of a field element."""
    return element.to_bytes(ELEMENT_BYTES, "little")


def decode_element(data: bytes) -> int:
    """Inverse of ``encode_element``.

    Raises:
        ProtocolError: other than 32 bytes, or a number that is not a reduced field element.
    """
    element = int.from_bytes(data, "little")
    if len(data) != ELEMENT_BYTES or element >= PRIME:
        raise ProtocolError("a field element must be 32 bytes that encode a number below 2^255-19")
    return element


def require_elements(*encoded: bytes) -> None:
    """Check what is sent as bytes of field elements (``decode_element``)."""
    for each in encoded:
        decode_element(each)


def split(secret: int, *, threshold: int, indices: Sequence[int]) -> list[int]:
    """Share a secret.

    Args:
        secret: field element.
        threshold: shares that determine it, at least 1.
        indices: the evaluation points, distinct and never 0 (the share there is the secret).

    Returns:
        One share per index, in order. Coefficients come from the operating system's generator.

    Raises:
        ConfigError: the secret is not a field element, an index is 0 or repeats, or there are fewer
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
        at: where to evaluate; 0 gives the secret, another index gives the share that belongs there.

    Raises:
        ConfigError: an index is 0 or no field element.
    """
    indices = tuple(shares)
    _require_indices(indices, PRIME)
    weights = _weights(indices, at, PRIME)
    return (
        sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME
    )


def correct(shares: Mapping[int, int], *, threshold: int) -> int | None:
    """Restore a secret although some of its shares are wrong.

    Shares are a Reed-Solomon codeword; this is the decoder of Gao, "A new algorithm for decoding
    Reed-Solomon codes", 2003. It takes a multiple of m^2 multiplications for m shares.

    Args:
        shares: m shares by index, at least as many as the threshold.
        threshold: shares that determine the secret, t.

    Returns:
        The secret if at most (m - t) / 2 shares are wrong; else None, or some other element.

    Raises:
        ConfigError: an index is 0 or no field element.
    """
    _require_indices(tuple(shares), PRIME)
    remainder, last = _interpolate(shares)
    factor: list[int] = [1]
    before: list[int] = []
    # Remainder = factor * interpolation modulo the product of all (x - index). Once it is short
    # enough, the factor vanishes at the wrong shares, and the quotient is the polynomial.
    while 2 * (len(remainder) - 1) >= len(shares) + threshold:
        quotient, rest = _divide(last, remainder)
        last, remainder = remainder, rest
        factor, before = _less_product(before, quotient, factor), factor
    found, rest = _divide(remainder, factor)
    if rest or len(found) > threshold:
        return None
    return found[0] if found else 0


def _interpolate(shares: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """The polynomial through all shares, and the product of all (x - index).

    Coefficients stand from the lowest to the highest, without leading zeros.
    """
    product = [1]
    for index in shares:
        product = [
            (low - index * high) % PRIME
            for low, high in zip([0, *product], [*product, 0], strict=True)
        ]
    through = [0] * len(shares)
    for index, share in shares.items():
        others, carry = [0] * len(shares), 0
        for place in range(len(shares), 0, -1):  # product / (x - index)
            carry = others[place - 1] = (product[place] + index * carry) % PRIME
        scale = share * pow(_evaluate(others, index, PRIME), -1, PRIME)
        through = [
            (each + scale * other) % PRIME for each, other in zip(through, others, strict=True)
        ]
    return _trimmed(through), product


def _divide(dividend: list[int], divisor: list[int]) -> tuple[list[int], list[int]]:
    """Quotient and remainder of two polynomials; the divisor is not zero."""
    rest, inverse = list(dividend), pow(divisor[-1], -1, PRIME)
    quotient = [0] * max(0, len(dividend) - len(divisor) + 1)
    for place in reversed(range(len(quotient))):
        times = quotient[place] = rest[place + len(divisor) - 1] * inverse % PRIME
        for offset, coefficient in enumerate(divisor):
            rest[place + offset] = (rest[place + offset] - times * coefficient) % PRIME
    return quotient, _trimmed(rest[: len(divisor) - 1])


def _less_product(start: list[int], one: list[int], other: list[int]) -> list[int]:
    """``start`` less the product of two polynomials."""
    result = start + [0] * (len(one) + len(other) - 1 - len(start))
    for place, coefficient in enumerate(one):
        for offset, factor in enumerate(other):
            result[place + offset] = (result[place + offset] - coefficient * factor) % PRIME
    return _trimmed(result)


def _trimmed(polynomial: list[int]) -> list[int]:
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial


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
        # Factors are small: one product is faster than reducing at each step.
        numerator = math.prod(at - other for other in indices if other != index)
        denominator = math.prod(index - other for other in indices if other != index)
        weights.append(numerator * pow(denominator, -1, prime) % prime)
    return tuple(weights)
