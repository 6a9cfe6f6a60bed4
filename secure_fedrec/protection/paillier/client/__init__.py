"""Halves of clients: ``uploading`` to a server whose sums an authority opens, ``table`` where the
clients hold the key.
"""
