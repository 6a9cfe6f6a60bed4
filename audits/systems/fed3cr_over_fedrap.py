"""Fed3CR as a plug-in over FedRAP: the consensus replaces the common table."""

from dataclasses import field

from audits.item_tables import plug_in_system
from secure_fedrec.algorithms.item_tables import Enhancement, FedRAP, FedRAPConfig
from secure_fedrec.settings import NonNegative, Positive


class EnhancedFedRAPConfig(FedRAPConfig, section="algorithm"):
    """Hyper-parameters in addition to those of FedRAP.

    Args:
        item_learning_rate: step size of both item tables.
        independence: lambda, how strongly P and C are pushed apart; with a transfer matrix this
            term is unbounded below, so complementarity replaces it.
        enhancement: what the plug-in adds.

    Raises:
        ConfigError: a field is out of range.
    """

    item_learning_rate: Positive = 60.0
    independence: NonNegative = 0.0
    enhancement: Enhancement = field(default_factory=Enhancement)


SYSTEM = plug_in_system(
    "fed3cr_over_fedrap",
    FedRAP,
    EnhancedFedRAPConfig,
    title="FedRAP with Fed3CR as a plug-in (our reading of its prose)",
    stays="interactions, the score function and the personal item table",
)
