"""FedRAP: a common item table is shared; personal ones and score functions are not."""

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables import FedRAP, FedRAPConfig

SYSTEM = item_table_system(
    "fedrap",
    FedRAP,
    FedRAPConfig,
    title="FedRAP (Li et al. 2024)",
    stays="interactions, the score function and the personal item table",
    found="beside a decay that is the same for all, rows of a change are multiples of the "
    "private score vector, and tell by their sign what the client interacted with",
)
