"""Protection layers: what each party may see while a sum is formed.

Reading order: ``base`` (how layers meet), ``virtual_ratings`` and ``randomized_response`` (cloaks),
``plain`` and ``denoisers`` (collectors), ``compatibility`` (what stacks, and what it claims).
"""

from secure_fedrec.protection.base import Cloak, Cloaked, Collector, LocalModel, Stack
from secure_fedrec.protection.compatibility import STACKS, Claim, require_compatible
from secure_fedrec.protection.denoisers import Binding, Denoisers, DenoisersConfig
from secure_fedrec.protection.plain import DirectSum
from secure_fedrec.protection.randomized_response import (
    RandomizedResponse,
    RandomizedResponseConfig,
)
from secure_fedrec.protection.virtual_ratings import VirtualRatings, VirtualRatingsConfig

__all__ = [
    "STACKS",
    "Binding",
    "Claim",
    "Cloak",
    "Cloaked",
    "Collector",
    "Denoisers",
    "DenoisersConfig",
    "DirectSum",
    "LocalModel",
    "RandomizedResponse",
    "RandomizedResponseConfig",
    "Stack",
    "VirtualRatings",
    "VirtualRatingsConfig",
    "require_compatible",
]
