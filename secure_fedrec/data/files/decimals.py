"""Decimal numbers as files have them, made exact."""

import re
from fractions import Fraction
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,15}(\.[0-9]{0,60})?|\.[0-9]{1,60})")
_WORDS: Final = {"true": Fraction(1), "false": Fraction(0)}
_FINEST: Final = 1000
"""Most parts of 1 that a level is taken for: thirds, tenths, hundredths."""
_NOISE: Final = Fraction(1, 10**9)
"""0.66666666666666663 is 2/3, and 3.3000000000000003 is 3.3."""


def number_of(text: str) -> Fraction | None:
    """The number that a text is; None where it is no plain decimal one.

    What is within 1e-9 of a fraction with a denominator of up to 1,000 is that fraction; True and
    False are 1 and 0.
    """
    text = text.strip()
    if _DECIMAL.fullmatch(text) is None:
        return _WORDS.get(text.lower())
    value = Fraction(text)
    near = value.limit_denominator(_FINEST)
    return near if abs(near - value) <= _NOISE else value
