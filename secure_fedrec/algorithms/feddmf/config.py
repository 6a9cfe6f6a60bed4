"""Settings of FedDMF, and which of them the paper leaves open."""

from dataclasses import field
from typing import Annotated, Final

from secure_fedrec.models.dmf.model import DMFConfig
from secure_fedrec.models.dmf.training import DMFTraining
from secure_fedrec.settings import Count, NonNegative, OneOf, Settings, Unit, Within

STARTS: Final = ("independent", "common")
ALL_PAIRS: Final = "all-common"
SIMILARITIES: Final = (ALL_PAIRS, "batch")


class FedDMFConfig(Settings, section="algorithm"):
    """Hyper-parameters; epochs, beta and margin are the paper's.

    Args:
        epochs: passes of every organisation over its pairs.
        exchanges: rounds per epoch. Vectors cross once a round; the paper does not say how often.
            With one, strongly pulled vectors swap places with their targets, which have moved as
            well, and do not converge.
        model: form of the model. Dropout and spread are left open by the paper.
        training: local training. The optimiser (Adam) and the negatives are left open.
        beta: weight of the embedding loss.
        similarity: what the embedding loss of a step is a mean over, "all-common" pairs (eq. 4) or
            those of the items in the "batch", which takes less time and weighs pairs by how often
            their item is trained on.
        margin: m, the distance below which two vectors of an item are not pulled together.
        start: of item vectors and layers, "independent" (paper) or "common" to all organisations,
            a function of the public seed.

    Raises:
        ConfigError: a field is out of range.
    """

    epochs: Annotated[Count, Unit("epochs")] = 30
    exchanges: Annotated[Count, Unit("rounds per epoch")] = 1
    model: DMFConfig = field(default_factory=DMFConfig)
    training: DMFTraining = field(default_factory=DMFTraining)
    beta: NonNegative = 100.0
    similarity: Annotated[str, OneOf(SIMILARITIES)] = ALL_PAIRS
    margin: Annotated[float, Within(least=0, most=2)] = 0.2
    start: Annotated[str, OneOf(STARTS)] = "independent"

    @property
    def rounds(self) -> int:
        """T, of the whole training."""
        return self.epochs * self.exchanges
