"""Kinds of messages of the interactive halves; their envelope is that of ``session``."""

from enum import IntEnum


class Kind(IntEnum):
    """Purpose of a message; the number is its code on the wire."""

    MASK_KEY = 1
    """Client to server: its X25519 public key of the round."""
    MASK_KEYS = 2
    """Server to clients: all of these messages."""
    UPLOAD = 3
    """Client to server: encrypted vectors."""
    SUMS = 4
    """Server to the key holder: encrypted sums."""
    RESULT = 5
    """Authority to server: the sums."""
    TABLE = 6
    """Server to clients: the encrypted item table and the digest both updaters gave for it."""
    UPDATE = 7
    """Updating client to server: the next table, encrypted anew, and its digest."""
