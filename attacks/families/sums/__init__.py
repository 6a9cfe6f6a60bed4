"""Attacks on sums and on tables that sums moved."""
