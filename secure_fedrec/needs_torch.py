"""Imported first by what needs PyTorch: who lacks it is told the extra that brings it."""

from secure_fedrec.errors import brought_by

with brought_by("torch"):
    import torch  # noqa: F401
