"""The item-table family: methods that share an item table and keep the users' side private.

``ItemTables`` is the algorithm, the same for all; a method is a file beside it (``method`` says
what it supplies).
"""

from secure_fedrec.algorithms.item_tables.fed3cr import Fed3CR, Fed3CRConfig
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import Enhanced, Enhancement
from secure_fedrec.algorithms.item_tables.fedmf import FedMF, FedMFConfig
from secure_fedrec.algorithms.item_tables.fedncf import FedNCF, FedNCFConfig
from secure_fedrec.algorithms.item_tables.fedrap import FedRAP, FedRAPConfig
from secure_fedrec.algorithms.item_tables.local import ItemTableTraining
from secure_fedrec.algorithms.item_tables.pfedrec import PFedRec, PFedRecConfig
from secure_fedrec.algorithms.item_tables.ranked import ranked, ranked_between_rounds
from secure_fedrec.algorithms.item_tables.trainer import ItemTables

__all__ = [
    "Enhanced",
    "Enhancement",
    "Fed3CR",
    "Fed3CRConfig",
    "FedMF",
    "FedMFConfig",
    "FedNCF",
    "FedNCFConfig",
    "FedRAP",
    "FedRAPConfig",
    "ItemTableTraining",
    "ItemTables",
    "PFedRec",
    "PFedRecConfig",
    "ranked",
    "ranked_between_rounds",
]
