"""How an engine reaches the parties of a protocol: the seam that a distributed engine fills.

A protocol's halves take and give bytes (``protection.session``), and ``drive`` takes a round to its
end over a ``Channel``: ``nodes()`` says who can be reached, ``exchange(stage, messages, timeout)``
sends what the server's half gave and returns what came back. The embedded engine has all parties in
one process: ``MemoryChannel``, over the run's wire where ``OverWire`` carries. An engine whose
clients are elsewhere supplies another channel and drives the same halves; a client that lives for
one message at a time keeps its half in between by ``MaskingClient.save`` and ``resume``.
"""

from secure_fedrec.protection.session import (
    Channel,
    Hub,
    MemoryChannel,
    OverWire,
    Parcel,
    Party,
    drive,
)

__all__ = ["Channel", "Hub", "MemoryChannel", "OverWire", "Parcel", "Party", "drive"]
