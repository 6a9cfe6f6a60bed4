"""Means of flat vectors under masks or noise, for loops that are not the engine's."""

from secure_fedrec.protection.means.terms import MaskedMean, Mean, NoisedMean, ProtectedMean, Update

__all__ = ["MaskedMean", "Mean", "NoisedMean", "ProtectedMean", "Update"]
