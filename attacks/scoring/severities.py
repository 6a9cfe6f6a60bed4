"""The severities of findings; the grading is in a module that takes longer to import."""

SEVERITIES = ("critical", "high", "medium", "low", "info")
"""Worst first."""
