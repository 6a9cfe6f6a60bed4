"""Common interfaces of layers, collectors and stacks.

Reading order: ``events`` (what noise released), ``layer_interfaces`` (how layers meet),
``expected_senders`` (who is heard in a round), ``table`` (rows that are summed), ``dense_uploads``
and ``hidden_sum`` (uploads that show no row), ``hosting`` (a collector's halves, one at a time),
``record`` (what a layer says of itself), ``compatibility`` (what stacks), ``folding`` and ``stack``
(one round through all layers).
"""

from secure_fedrec.protection.base.layer_interfaces import (
    BagChannel,
    BagRound,
    BagShape,
    Cloak,
    Cloaked,
    Collecting,
    Collector,
    Noised,
    PublicStep,
    Released,
    RoundSession,
    Stated,
    StateKeeper,
    Withstood,
)

__all__ = [
    "BagChannel",
    "BagRound",
    "BagShape",
    "Cloak",
    "Cloaked",
    "Collecting",
    "Collector",
    "Noised",
    "PublicStep",
    "Released",
    "RoundSession",
    "StateKeeper",
    "Stated",
    "Withstood",
]
