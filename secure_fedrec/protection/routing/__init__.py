"""Anonymous routing: fixed-size onions through layers of mixes. Usable alone.

Reading order: ``sealing`` (HPKE), ``fragments`` (messages in pieces), ``directory`` (sizes and keys
of an epoch), ``onions`` (one layer per hop), ``mix`` (what a mix does), ``receipts`` (what senders
can check), ``endpoint`` (both ends).

It hides which sender a message came from, within the cells of the same batches, from an adversary
that observes all traffic and runs all nodes except one mix of the path. Assumed: every party holds
the same authentic directory, and senders hand in the same number of cells. Not hidden: who takes
part, when, and how many cells each recipient gets. Cells have no authentic sender: a mix may
replace them, as their senders see in the receivers' lists of receipts, and may insert others, which
is not detected.

    message --cut--> fragments --wrap--> cells --MixNode x layers--> cells --Endpoint--> message
"""

from secure_fedrec.protection.routing.directory import LEAST_SENDERS, Directory, RoutingConfig
from secure_fedrec.protection.routing.endpoint import Endpoint, cells_needed, send
from secure_fedrec.protection.routing.mix import MixNode
from secure_fedrec.protection.routing.onions import Place, address_of
from secure_fedrec.protection.routing.receipts import (
    Receipt,
    SentCells,
    equivocates,
    new_identity,
    receipt_bytes,
    receipt_digest,
)
from secure_fedrec.protection.routing.sealing import KEMS, OpeningKey, SealingKey

__all__ = [
    "KEMS",
    "LEAST_SENDERS",
    "Directory",
    "Endpoint",
    "MixNode",
    "OpeningKey",
    "Place",
    "Receipt",
    "RoutingConfig",
    "SealingKey",
    "SentCells",
    "address_of",
    "cells_needed",
    "equivocates",
    "new_identity",
    "receipt_bytes",
    "receipt_digest",
    "send",
]
