"""Theorems as tests, for anybody's code.

- ``lossless``: a protected run equals its plain twin (``twin``), bit for bit.
- ``wiretap``: what a private value may change on the wire.
- ``started``: any algorithm from any state; ``strike``: one message for a fault to hit.
- ``strategies``: Hypothesis strategies for small federations with all their corners. It is imported
  by name, ``from secure_fedrec.properties.strategies import federations``, because it alone needs
  Hypothesis (``pip install secure-fedrec[properties]``).
"""

from secure_fedrec.properties.lossless import Comparison, assert_lossless, compare_runs
from secure_fedrec.properties.started import Started
from secure_fedrec.properties.strike import Strike
from secure_fedrec.properties.twin import plain_twin
from secure_fedrec.properties.wiretap import Message, WireTap, wire_trace

__all__ = [
    "Comparison",
    "Message",
    "Started",
    "Strike",
    "WireTap",
    "assert_lossless",
    "compare_runs",
    "plain_twin",
    "wire_trace",
]
