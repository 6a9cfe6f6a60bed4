"""Fed3CR as a plug-in over FedNCF: clients score fused rows by a shared network."""

from dataclasses import field

from audits.item_tables import plug_in_system
from secure_fedrec.algorithms.item_tables import Enhancement, FedNCF, FedNCFConfig


class EnhancedFedNCFConfig(FedNCFConfig, section="algorithm"):
    """Hyper-parameters in addition to those of FedNCF.

    Args:
        enhancement: what the plug-in adds.

    Raises:
        ConfigError: a field is out of range.
    """

    enhancement: Enhancement = field(default_factory=Enhancement)


SYSTEM = plug_in_system(
    "fed3cr_over_fedncf",
    FedNCF,
    EnhancedFedNCFConfig,
    title="FedNCF with Fed3CR as a plug-in (our reading of its prose)",
    stays="interactions, the user vector and the personal item table",
    beside=", of the network",
)
