"""FedNCF: item vectors and a network are shared, user vectors are not."""

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables import FedNCF, FedNCFConfig

SYSTEM = item_table_system(
    "fedncf",
    FedNCF,
    FedNCFConfig,
    title="FedNCF (Perifanis and Efraimidis 2022)",
    stays="interactions and the user vector",
    found="the change of the hidden layer is a multiple of the user vector, "
    "and rows of the item table move by what the client interacted with",
    beside=", and of the network",
)
