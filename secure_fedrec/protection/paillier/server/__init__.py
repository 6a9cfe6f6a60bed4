"""Halves of the server: ``uploading`` where an authority opens sums, ``table`` where clients do."""
