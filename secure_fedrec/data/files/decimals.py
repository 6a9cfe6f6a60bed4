"""Decimal numbers as files have them, made exact."""

import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,15}(\.[0-9]{0,60})?|\.[0-9]{1,60})")
_FLOAT: Final = re.compile(r"[+-]?[0-9]\.[0-9]{1,20}e[+-][0-9]{2}")
_WORDS: Final = {
    word: Fraction(value)
    for value, words in enumerate((("false", "no"), ("true", "yes")))
    for word in words
}
_FINEST: Final = 1000
"""Largest denominator of a level, which may be in thirds, tenths or hundredths."""
_NOISE: Final = Fraction(1, 10**9)
"""Tolerance by which 0.66666666666666663 is 2/3 and 3.3000000000000003 is 3.3; relative for values
below 1."""


def plain(text: str) -> str:
    """A number as ``numpy.savetxt`` writes it, 5.000000000000000000e+00, without an exponent."""
    return format(Decimal(text), "f") if _FLOAT.fullmatch(text) else text


def number_of(text: str) -> Fraction | None:
    """The number that a text is; None where it is not a plain decimal one.

    A value within 1e-9, absolute and relative, of a fraction with a denominator of up to 1,000, or
    of its float32, becomes that fraction; True and yes are 1, False and no are 0.
    """
    text = plain(text.strip())
    if _DECIMAL.fullmatch(text) is None:
        return _WORDS.get(text.lower())
    value = Fraction(text)
    near = value.limit_denominator(_FINEST)
    noise = _NOISE * min(abs(value), Fraction(1))
    return near if min(abs(near - value), abs(_single(near) - value)) <= noise else value


def _single(value: Fraction) -> Fraction:
    """A value rounded to float32."""
    return Fraction(struct.unpack("f", struct.pack("f", value))[0])
