"""Attacks on uploads and sums of co-occurrences: rows, persons, membership, next choices."""
