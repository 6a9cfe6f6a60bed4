"""Federated recommenders, one file per system, each reading like its paper."""

from secure_fedrec.algorithms.base import Algorithm, ClientStep, PublicState
from secure_fedrec.algorithms.pmf import PMF, PMFConfig

__all__ = ["PMF", "Algorithm", "ClientStep", "PMFConfig", "PublicState"]
