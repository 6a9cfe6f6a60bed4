"""GPFedRec: the server compares clients by their item tables, and averages those of neighbours."""

from audits.item_tables import single_table_system
from secure_fedrec.algorithms.item_tables.gpfedrec import GPFedRec, GPFedRecConfig

SYSTEM = single_table_system(
    "gpfedrec",
    GPFedRec,
    GPFedRecConfig,
    title="GPFedRec (Zhang et al. 2024)",
    stays="interactions",
    own="score function",
)
