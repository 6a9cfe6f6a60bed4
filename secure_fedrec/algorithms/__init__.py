"""Federated recommenders, one file per system, each reading like its paper."""

from secure_fedrec.algorithms.base import (
    Algorithm,
    ClientStep,
    PublicState,
    RatingAlgorithm,
    RatingStep,
    SizedUploads,
)
from secure_fedrec.algorithms.pmf import PMF, PMFConfig

__all__ = [
    "PMF",
    "Algorithm",
    "ClientStep",
    "PMFConfig",
    "PublicState",
    "RatingAlgorithm",
    "RatingStep",
    "SizedUploads",
]
