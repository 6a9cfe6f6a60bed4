"""Masking, encryption and noise as collectors of the engine: uploads that show no row and no value.

Reading order: ``dense`` (the public layout, what all have in common), ``masked``, ``encrypted``,
``noised`` (masked sums with Skellam noise inside), ``layers`` (their records).
"""

from secure_fedrec.protection.hidden_sums.encrypted import EncryptedSum, EncryptionLayerConfig
from secure_fedrec.protection.hidden_sums.layers import CLIP, MASKING, PAILLIER, SKELLAM
from secure_fedrec.protection.hidden_sums.masked import MaskedSum, MaskingLayerConfig
from secure_fedrec.protection.hidden_sums.noised import (
    DP_KEYS,
    ClipConfig,
    NoisedSum,
    SkellamLayerConfig,
    contribution_of,
    encoding_of,
)

__all__ = [
    "CLIP",
    "DP_KEYS",
    "MASKING",
    "PAILLIER",
    "SKELLAM",
    "ClipConfig",
    "EncryptedSum",
    "EncryptionLayerConfig",
    "MaskedSum",
    "MaskingLayerConfig",
    "NoisedSum",
    "SkellamLayerConfig",
    "contribution_of",
    "encoding_of",
]
