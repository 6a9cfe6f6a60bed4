"""Protection layers: what each party may see while a sum is formed.

Reading order: ``session`` (parties, signed messages, journals), ``base`` (how layers meet, what a
layer says of itself, what stacks), ``plain``, ``denoisers``, ``shared_upload``, ``masking`` and
``paillier`` (who forms the sum), ``routing`` (mixes), ``dp`` (noise), ``cloaks`` (covered rated
sets), ``bags`` (vectors that are not summed), ``means`` (of arrays), ``layers`` (all of them,
and what each stack claims), ``stacking`` (from names to a stack).

Layers that other training loops can use are separate packages, which need neither the algorithms
nor the engine: ``masking``, ``paillier``, ``dp`` and ``routing``.
"""

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.bags import LocalDPConfig
from secure_fedrec.protection.base.compatibility import claim_of
from secure_fedrec.protection.base.layer_interfaces import (
    BagShape,
    Cloak,
    Cloaked,
    Collector,
    Released,
    Withstood,
)
from secure_fedrec.protection.base.record import (
    STOPS,
    Claim,
    Layer,
    Option,
    Place,
    Sizes,
    Stand,
    Subject,
)
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.protection.cloaks.randomized_response import RandomizedResponse
from secure_fedrec.protection.cloaks.virtual_ratings import VirtualRatings, VirtualRatingsConfig
from secure_fedrec.protection.denoisers.config import Binding, DenoisersConfig
from secure_fedrec.protection.denoisers.embedded import Denoisers
from secure_fedrec.protection.dp.rated_set import RandomizedResponseConfig
from secure_fedrec.protection.layers import (
    BAG_LAYERS,
    BAG_RECORDS,
    BAG_STACKS,
    LAYERS,
    RECORDS,
    STACKS,
    claims_about,
    require_bags_compatible,
    require_compatible,
)
from secure_fedrec.protection.plain.embedded import DirectSum
from secure_fedrec.protection.stacking import build_stack

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
