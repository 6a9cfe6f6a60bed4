"""PerFedRec: the server clusters clients and mixes their item tables."""

from audits.item_tables import single_table_system
from secure_fedrec.algorithms.item_tables.perfedrec import PerFedRec, PerFedRecConfig

SYSTEM = single_table_system(
    "perfedrec",
    PerFedRec,
    PerFedRecConfig,
    title="PerFedRec (Luo et al. 2022, without its graph network)",
    stays="interactions",
    own="user vector",
)
