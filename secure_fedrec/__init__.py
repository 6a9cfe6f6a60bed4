"""Federated recommendation on one exact ring, with pluggable protection."""

__version__ = "0.1.0"
