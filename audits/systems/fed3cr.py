"""Fed3CR: a common item table and a generator are shared, personal tables are not."""

from audits.item_tables import GENERATOR_TELLS, item_table_system
from secure_fedrec.algorithms.item_tables import Fed3CR, Fed3CRConfig

SYSTEM = item_table_system(
    "fed3cr",
    Fed3CR,
    Fed3CRConfig,
    title="Fed3CR (our reading of its prose)",
    stays="interactions, the user vector and the personal item table",
    found=GENERATOR_TELLS,
    beside=", and of the generator",
)
