"""Tests of theorems on any code.

- ``lossless``: a protected run ends in the bits of plain sums, and a bag holds the encoded vectors,
  all of them and nothing else, bit for bit.
- ``wiretap``: what a private value may change on the wire.
- ``started``: any algorithm from any state; ``strike``: one message for a fault to hit.
- ``split``: whether private parameters of a torch model can stay on their devices, and whether a
  run that keeps them there equals one that ships everything. Its names can be imported from here;
  torch is imported only when one of them is used.
- ``client_step``: whether a function that trains a client does not send private values, and does
  not change other clients' values. Its names can be imported from here in the same way.
- ``strategies``: Hypothesis strategies for small federations, including edge cases. They are
  imported by name, ``from secure_fedrec.properties.strategies import federations``, because they
  alone need Hypothesis (``pip install secure-fedrec[properties]``).
"""

from typing import TYPE_CHECKING, Any

from secure_fedrec.properties.lossless.bags import assert_collected
from secure_fedrec.properties.lossless.check import assert_lossless, compare_runs
from secure_fedrec.properties.lossless.comparison import Comparison, Scope, lossless_words
from secure_fedrec.properties.lossless.explanation import Cause, Explanation
from secure_fedrec.properties.lossless.recorded import BesideRecorded
from secure_fedrec.properties.started import Started
from secure_fedrec.properties.strike import Strike
from secure_fedrec.properties.wiretap import Message, WireTap, wire_trace

if TYPE_CHECKING:
    from secure_fedrec.properties.client_step import (
        ClientReport,
        ClientViolation,
        assert_client_step,
        check_client_step,
        lightning_step,
    )
    from secure_fedrec.properties.split import (
        SplitPersonalizationError,
        SplitReport,
        assert_split_personalization,
        check_split_personalization,
    )
    from secure_fedrec.properties.split.equivalence import (
        SplitComparison,
        assert_split_equals_unsplit,
        compare_split,
    )

__all__ = [
    "BesideRecorded",
    "Cause",
    "ClientReport",
    "ClientViolation",
    "Comparison",
    "Explanation",
    "Message",
    "Scope",
    "SplitComparison",
    "SplitPersonalizationError",
    "SplitReport",
    "Started",
    "Strike",
    "WireTap",
    "assert_client_step",
    "assert_collected",
    "assert_lossless",
    "assert_split_equals_unsplit",
    "assert_split_personalization",
    "check_client_step",
    "check_split_personalization",
    "compare_runs",
    "compare_split",
    "lightning_step",
    "lossless_words",
    "wire_trace",
]


def __getattr__(name: str) -> Any:
    """Names of the tests for torch models and client steps, whose modules need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from secure_fedrec.properties import client_step, split  # noqa: PLC0415

    return getattr(client_step if hasattr(client_step, name) else split, name)
