"""Protection layers: what each party may see while a sum is formed.

Reading order: ``base`` (how layers meet), ``virtual_ratings`` and ``randomized_response`` (cloaks),
``plain``, ``denoisers`` and ``hidden_sums`` (collectors), ``bags`` (vectors that are not summed),
``stack`` (all of a round together), ``layer`` (what a layer says of itself), ``compatibility`` (all
layers; what stacks, and what it claims), ``stacking`` (from names to a stack).

Layers for other people's training loops stand on their own, each in a package that needs neither
the algorithms nor the engine: ``masking``, ``paillier``, ``dp`` and ``routing``.
"""

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.bags import LocalDPConfig
from secure_fedrec.protection.base import (
    BagShape,
    Cloak,
    Cloaked,
    Collector,
    Released,
    Withstood,
)
from secure_fedrec.protection.compatibility import (
    BAG_LAYERS,
    BAG_RECORDS,
    BAG_STACKS,
    LAYERS,
    RECORDS,
    STACKS,
    claim_of,
    claims_about,
    require_bags_compatible,
    require_compatible,
)
from secure_fedrec.protection.denoisers import Binding, Denoisers, DenoisersConfig
from secure_fedrec.protection.dp.rated_set import RandomizedResponseConfig
from secure_fedrec.protection.layer import STOPS, Claim, Layer, Option, Place, Sizes, Stand, Subject
from secure_fedrec.protection.plain import DirectSum
from secure_fedrec.protection.randomized_response import RandomizedResponse
from secure_fedrec.protection.stack import Stack
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.protection.virtual_ratings import VirtualRatings, VirtualRatingsConfig

__all__ = [
    "BAG_LAYERS",
    "BAG_RECORDS",
    "BAG_STACKS",
    "LAYERS",
    "RECORDS",
    "STACKS",
    "STOPS",
    "BagShape",
    "Binding",
    "Claim",
    "Cloak",
    "Cloaked",
    "Collector",
    "Denoisers",
    "DenoisersConfig",
    "DirectSum",
    "FixedPoint",
    "Layer",
    "LocalDPConfig",
    "LocalModel",
    "Option",
    "Place",
    "RandomizedResponse",
    "RandomizedResponseConfig",
    "Released",
    "Sizes",
    "Stack",
    "Stand",
    "Subject",
    "VirtualRatings",
    "VirtualRatingsConfig",
    "Withstood",
    "build_stack",
    "claim_of",
    "claims_about",
    "require_bags_compatible",
    "require_compatible",
]
