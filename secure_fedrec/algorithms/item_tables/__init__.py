"""The item-table family: methods that share an item table and keep the users' side private.

``ItemTables`` is the algorithm, the same for all; a method is a file beside it (``method`` says
what it supplies).
"""

from secure_fedrec.algorithms.item_tables.fed3cr import Fed3CR as Fed3CR
from secure_fedrec.algorithms.item_tables.fed3cr import Fed3CRConfig as Fed3CRConfig
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import Enhanced as Enhanced
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import Enhancement as Enhancement
from secure_fedrec.algorithms.item_tables.fedmf import FedMF as FedMF
from secure_fedrec.algorithms.item_tables.fedmf import FedMFConfig as FedMFConfig
from secure_fedrec.algorithms.item_tables.fedncf import FedNCF as FedNCF
from secure_fedrec.algorithms.item_tables.fedncf import FedNCFConfig as FedNCFConfig
from secure_fedrec.algorithms.item_tables.fedrap import FedRAP as FedRAP
from secure_fedrec.algorithms.item_tables.fedrap import FedRAPConfig as FedRAPConfig
from secure_fedrec.algorithms.item_tables.local import ItemTableStart as ItemTableStart
from secure_fedrec.algorithms.item_tables.local import ItemTableTraining as ItemTableTraining
from secure_fedrec.algorithms.item_tables.pfedrec import PFedRec as PFedRec
from secure_fedrec.algorithms.item_tables.pfedrec import PFedRecConfig as PFedRecConfig
from secure_fedrec.algorithms.item_tables.ranked import ranked as ranked
from secure_fedrec.algorithms.item_tables.ranked import (
    ranked_between_rounds as ranked_between_rounds,
)
from secure_fedrec.algorithms.item_tables.trainer import ItemTables as ItemTables
