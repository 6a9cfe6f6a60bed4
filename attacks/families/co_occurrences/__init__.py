"""Attacks on sums of co-occurrences: rows of readable uploads, persons in sums, what sums tell."""
