"""What all protocols have in common: who the parties are, how messages look, who drives a round.

Reading order: ``nodes`` (names of parties), ``channel`` (halves, channels and the driver),
``over_wire`` (the wire of a run between them).
"""

from secure_fedrec.protection.session.channel import (
    Carrier,
    Channel,
    Hub,
    MemoryChannel,
    Parcel,
    Party,
    drive,
    from_server,
    replies_to,
    run_in_memory,
)
from secure_fedrec.protection.session.nodes import SERVER, Node, Role
from secure_fedrec.protection.session.over_wire import OverWire

__all__ = [
    "SERVER",
    "Carrier",
    "Channel",
    "Hub",
    "MemoryChannel",
    "Node",
    "OverWire",
    "Parcel",
    "Party",
    "Role",
    "drive",
    "from_server",
    "replies_to",
    "run_in_memory",
]
