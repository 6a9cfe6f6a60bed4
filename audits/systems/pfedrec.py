"""PFedRec: the item table is shared, score functions are not."""

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables import PFedRec, PFedRecConfig

SYSTEM = item_table_system(
    "pfedrec",
    PFedRec,
    PFedRecConfig,
    title="PFedRec (Zhang et al. 2023)",
    stays="interactions and the score function",
    found="every row of a change is a multiple of the private score vector: its "
    "direction, and by its sign what the client interacted with, are read off one upload",
    beside=", the bias of the score function",
)
