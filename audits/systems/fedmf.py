"""FedMF on implicit feedback: item vectors are shared, user vectors are not."""

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables import FedMF, FedMFConfig

SYSTEM = item_table_system(
    "fedmf",
    FedMF,
    FedMFConfig,
    title="FedMF on implicit feedback (Chai et al. 2021)",
    stays="interactions and the user vector",
    found="every row of a change is a multiple of the user vector: its direction, "
    "and by its sign what the client interacted with, are read off one upload",
)
