"""Settings: dataclasses whose fields state their allowed values, checked once at construction.

    class SamplerConfig(Settings, section="sampler"):
        rounds: Count = 10
        rate: Annotated[float, Within(above=0, most=1)] = 0.5
        order: Annotated[str, OneOf(ORDERS)] = "random"

``SamplerConfig(rate=2)`` raises a ``ConfigError`` of ``sampler.rate`` that names value, problem
and, where they can be listed, choices. A field is of a plain type (bool, int, float, str), of
``Literal`` words, of a tuple, frozenset or table of these, None as well, of any class, or of one
of several of these; ``Annotated`` adds rules. Types are strict: a bool is not a number, and a
string is not an integer. Only an integer stands for a float, and a list for a tuple, as in a file
of settings; numbers are finite.

This package does not read files: the reader of a file renames the section to the table's key
(``ConfigError.renamed``).
"""

from secure_fedrec.settings.base import Settings
from secure_fedrec.settings.rules import (
    Bits,
    Count,
    Filled,
    Matching,
    Natural,
    NonNegative,
    OneOf,
    Positive,
    Probability,
    Rate,
    Refused,
    Round,
    Rounds,
    Share,
    Unit,
    Within,
)

__all__ = [
    "Bits",
    "Count",
    "Filled",
    "Matching",
    "Natural",
    "NonNegative",
    "OneOf",
    "Positive",
    "Probability",
    "Rate",
    "Refused",
    "Round",
    "Rounds",
    "Settings",
    "Share",
    "Unit",
    "Within",
]
