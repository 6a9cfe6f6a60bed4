"""Federated recommenders, one file per system, each reading like its paper."""

from secure_fedrec.algorithms.base import (
    Algorithm,
    ClientStep,
    PublicState,
    RatingAlgorithm,
    RatingStep,
    SizedUploads,
)
from secure_fedrec.algorithms.item_tables import (
    FedMF,
    FedMFConfig,
    FedNCF,
    FedNCFConfig,
    FedRAP,
    FedRAPConfig,
    ItemTables,
    PFedRec,
    PFedRecConfig,
)
from secure_fedrec.algorithms.pmf import PMF, PMFConfig

__all__ = [
    "PMF",
    "Algorithm",
    "ClientStep",
    "FedMF",
    "FedMFConfig",
    "FedNCF",
    "FedNCFConfig",
    "FedRAP",
    "FedRAPConfig",
    "ItemTables",
    "PFedRec",
    "PFedRecConfig",
    "PMFConfig",
    "PublicState",
    "RatingAlgorithm",
    "RatingStep",
    "SizedUploads",
]
