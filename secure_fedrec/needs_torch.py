"""Modules that need PyTorch import this one first: its error names the extra to install."""

from secure_fedrec.errors import require_installed

require_installed("torch", "torch")
