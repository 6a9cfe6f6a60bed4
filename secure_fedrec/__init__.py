"""Federated recommendation on one exact ring, with pluggable protection."""
