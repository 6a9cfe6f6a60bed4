"""How bad a finding is; apart from what grades it, which takes longer to import."""

SEVERITIES = ("critical", "high", "medium", "low", "info")
"""Worst first."""
