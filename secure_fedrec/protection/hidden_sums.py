"""Former import path of layers of hidden sums; each layer has its own folder now."""

from secure_fedrec.protection.dp.config import (
    DP_KEYS,
    ClipConfig,
    SkellamLayerConfig,
    contribution_of,
    encoding_of,
)
from secure_fedrec.protection.dp.embedded import NoisedSum
from secure_fedrec.protection.dp.layer import CLIP, SKELLAM
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.layer import MASKING
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.paillier.embedded import EncryptedSum
from secure_fedrec.protection.paillier.layer import PAILLIER

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
