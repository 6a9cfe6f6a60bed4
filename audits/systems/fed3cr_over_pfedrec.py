"""Fed3CR as a plug-in over PFedRec: clients score fused rows by a function of their own."""

from dataclasses import field

from audits.item_tables import plug_in_system
from secure_fedrec.algorithms.item_tables import Enhancement, PFedRec, PFedRecConfig
from secure_fedrec.settings import Positive


class EnhancedPFedRecConfig(PFedRecConfig, section="algorithm"):
    """Hyper-parameters, beside those of PFedRec.

    Args:
        item_scale: step size of the fused rows in ``learning_rate * n_items``.
        enhancement: what the plug-in adds.

    Raises:
        ConfigError: a field is out of range.
    """

    item_scale: Positive = 1.0
    enhancement: Enhancement = field(default_factory=lambda: Enhancement(item_rate=200.0))


SYSTEM = plug_in_system(
    "fed3cr_over_pfedrec",
    PFedRec,
    EnhancedPFedRecConfig,
    title="PFedRec with Fed3CR as a plug-in (our reading of its prose)",
    stays="interactions, the score function and the personal item table",
    beside=", the bias of the score function",
)
