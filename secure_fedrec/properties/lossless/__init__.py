"""Losslessness: a protected run ends in the bits of plain sums."""
