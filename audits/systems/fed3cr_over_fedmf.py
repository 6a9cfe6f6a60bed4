"""Fed3CR as a plug-in over FedMF: clients score fused rows by a user vector."""

from dataclasses import field

from audits.item_tables import plug_in_system
from secure_fedrec.algorithms.item_tables import Enhancement, FedMF, FedMFConfig


class EnhancedFedMFConfig(FedMFConfig, section="algorithm"):
    """Hyper-parameters, beside those of FedMF.

    Args:
        enhancement: what the plug-in adds.

    Raises:
        ConfigError: a field is out of range.
    """

    enhancement: Enhancement = field(default_factory=Enhancement)


SYSTEM = plug_in_system(
    "fed3cr_over_fedmf",
    FedMF,
    EnhancedFedMFConfig,
    title="FedMF with Fed3CR as a plug-in (our reading of its prose)",
    stays="interactions, the user vector and the personal item table",
)
