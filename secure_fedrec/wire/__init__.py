"""Messages between parties: carried, metered, recorded, and shown to adversaries as views.

Reading order: ``message_batches`` (messages), ``wire`` (their transport), ``meter`` (their cost),
``policy`` and ``recording`` (what is kept, and how), ``transcript`` (who may see what), ``faults``
(for tests).
"""

from secure_fedrec.wire.adversary import Adversary
from secure_fedrec.wire.closed import MessageAskedError
from secure_fedrec.wire.faults import Alter, Delay, Drop, Fault, Repeat
from secure_fedrec.wire.message_batches import (
    NOBODY,
    Messages,
    Parties,
    Step,
    decode_rows,
    decode_set,
    encode_rows,
    encode_set,
    message_sizes,
    set_sizes,
)
from secure_fedrec.wire.meter import Meter
from secure_fedrec.wire.parcels import Parcels
from secure_fedrec.wire.policy import RecordingPolicy, Traffic, row_dtype
from secure_fedrec.wire.recording import BlockStore, Recorder
from secure_fedrec.wire.transcript import KNOWLEDGE, TRAFFIC, Transcript, View
from secure_fedrec.wire.truth import OwnUploads, Truth
from secure_fedrec.wire.wire import Wire

__all__ = [
    "KNOWLEDGE",
    "NOBODY",
    "TRAFFIC",
    "Adversary",
    "Alter",
    "BlockStore",
    "Delay",
    "Drop",
    "Fault",
    "MessageAskedError",
    "Messages",
    "Meter",
    "OwnUploads",
    "Parcels",
    "Parties",
    "Recorder",
    "RecordingPolicy",
    "Repeat",
    "Step",
    "Traffic",
    "Transcript",
    "Truth",
    "View",
    "Wire",
    "decode_rows",
    "decode_set",
    "encode_rows",
    "encode_set",
    "message_sizes",
    "row_dtype",
    "set_sizes",
]
