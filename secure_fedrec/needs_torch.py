"""Imported first by what needs PyTorch: who lacks it is told the extra that brings it."""

from secure_fedrec.errors import require_installed

require_installed("torch", "torch")
