"""Differentially private noise that is exact: integers in the ring, from a cryptographic generator.

Reading order: ``weights`` and ``tables`` (distributions to the last bit), ``sampler`` (drawing),
``clipping``, ``rotation``, ``rounding`` and ``encoding`` (a contribution of certain norm), then the
mechanisms: ``direct`` (local and central), ``skellam`` (distributed), ``rated_set`` (randomized
response). ``events`` says what a mechanism released; ``secure_fedrec.accounting`` computes what
that costs.
"""

from secure_fedrec.protection.base.events import (
    Event,
    ExactSum,
    GaussianNoise,
    LaplaceNoise,
    RandomAnswer,
    Sampling,
    SkellamNoise,
    explained,
)
from secure_fedrec.protection.dp.clipping import Contribution, Part, clip_to_norm
from secure_fedrec.protection.dp.direct import CentralNoise, DirectNoiseConfig, LocalNoise
from secure_fedrec.protection.dp.encoding import BoundedEncoding
from secure_fedrec.protection.dp.rated_set import (
    permanent_epsilon,
    rated_set_events,
    report_epsilon,
    response_for_epsilon,
)
from secure_fedrec.protection.dp.rotation import Rotation
from secure_fedrec.protection.dp.sampler import draw_noise
from secure_fedrec.protection.dp.skellam import (
    SkellamClient,
    SkellamConfig,
    SkellamServer,
    skellam_events,
)
from secure_fedrec.protection.dp.tables import NoiseTable, noise_table

__all__ = [
    "BoundedEncoding",
    "CentralNoise",
    "Contribution",
    "DirectNoiseConfig",
    "Event",
    "ExactSum",
    "GaussianNoise",
    "LaplaceNoise",
    "LocalNoise",
    "NoiseTable",
    "Part",
    "RandomAnswer",
    "Rotation",
    "Sampling",
    "SkellamClient",
    "SkellamConfig",
    "SkellamNoise",
    "SkellamServer",
    "clip_to_norm",
    "draw_noise",
    "explained",
    "noise_table",
    "permanent_epsilon",
    "rated_set_events",
    "report_epsilon",
    "response_for_epsilon",
    "skellam_events",
]
