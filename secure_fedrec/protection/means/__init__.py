"""Means of a model's arrays under masks or noise, for training loops outside the engine."""

from secure_fedrec.protection.means.arrays import Arrays, SharedArrays, trained
from secure_fedrec.protection.means.terms import MaskedMean, Mean, NoisedMean, ProtectedMean, Update

__all__ = [
    "Arrays",
    "MaskedMean",
    "Mean",
    "NoisedMean",
    "ProtectedMean",
    "SharedArrays",
    "Update",
    "trained",
]
