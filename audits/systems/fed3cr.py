"""Fed3CR: a common item table and a generator are shared, personal tables are not."""

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables import Fed3CR, Fed3CRConfig

SYSTEM = item_table_system(
    "fed3cr",
    Fed3CR,
    Fed3CRConfig,
    title="Fed3CR (our reading of its prose)",
    stays="interactions, the user vector and the personal item table",
    found="the change of the generator's first layer divided by that of its biases is its input, "
    "half of which is the mean of the personal item table over what the client interacted with",
    beside=", and of the generator",
)
