"""Halves of clients: ``uploading`` where an authority opens sums, ``table`` where clients do."""
