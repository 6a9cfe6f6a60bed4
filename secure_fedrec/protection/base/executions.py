"""Common settings of several layers."""

from typing import Annotated, TypeAlias

from secure_fedrec.settings import OneOf, Within

EXECUTIONS = ("simulated", "real")
"""Random words in place of ciphertexts or masked values, or the protocol itself; the sums are
equal.
"""

Execution: TypeAlias = Annotated[str, OneOf(EXECUTIONS)]
"""How the cryptography of a layer is carried out in a run of the engine."""

_TWO = ": of two clients each knows the other's upload from the sum"
Survivors: TypeAlias = Annotated[int, Within(least=3, why=_TWO)]
"""Fewest clients whose sum may be opened."""
