"""Common parts of all protocols: parties, messages, and the driver of a round.

Reading order: ``nodes`` (names of parties), ``identity`` and ``roster`` (their keys), ``envelope``
(signed messages), ``parties`` (halves, channels and the driver), ``over_wire`` (the wire of a run
between them), ``beacon`` (public randomness).
"""

from secure_fedrec.protection.session.nodes import AUTHORITY, SERVER, Node, Role
from secure_fedrec.protection.session.over_wire import OverWire
from secure_fedrec.protection.session.parties import (
    Carrier,
    Channel,
    Hub,
    MemoryChannel,
    Parcel,
    Party,
    drive,
    from_server,
    one_of_each,
    refusals_of,
    replies_to,
    run_in_memory,
)
from secure_fedrec.protection.session.roster import Identity, Roster

__all__ = [
    "AUTHORITY",
    "SERVER",
    "Carrier",
    "Channel",
    "Hub",
    "Identity",
    "MemoryChannel",
    "Node",
    "OverWire",
    "Parcel",
    "Party",
    "Role",
    "Roster",
    "drive",
    "from_server",
    "one_of_each",
    "refusals_of",
    "replies_to",
    "run_in_memory",
]
