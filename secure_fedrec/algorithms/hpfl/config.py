"""Settings of HPFL, and which of them the paper leaves open."""

import math
from dataclasses import dataclass, field
from typing import Final

from secure_fedrec.algorithms.hpfl.drafts import SEEDINGS
from secure_fedrec.algorithms.hpfl.update import CENTRE_WEIGHTS
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation.scores import ACCURACY_RULES, AccuracyRule
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining

__all__ = ["HPFLConfig"]

_COMPONENTS: Final = ("both", "public", "private")
_THRESHOLDS: Final = ("quantile", "stochastic")
_STARTS: Final = ("common", "independent")


@dataclass(frozen=True, slots=True, kw_only=True)
class HPFLConfig:
    """Hyper-parameters.

    Args:
        rounds: T.
        components: what is federated: "both" is HPFL, "public" HPFL-K (attribute vectors, no
            drafts), "private" HPFL-R (drafts, no attribute vectors).
        gum: form of the local user model.
        training: local training of a round.
        start: "common" starts the public parts and HM of all clients at the same values,
            "independent" at values of their own, which the paper says is possible.
        user_drafts: clusters per user.
        item_drafts: clusters per item.
        centres: global clusters per draft.
        seeding: of the clusterings, "k-means++", or "random" points, which is several times faster
            on thousands of drafts.
        least_members: drafts of clusters with fewer members stay at home.
        centre_weights: of eq. 2, "farther" (as printed) or "nearer".
        accuracy: how predictions become levels, "nearest" or "ceil" (published code).
        threshold: p of eq. 3. "quantile" is a fixed quantile of all clients' accuracies, from a
            histogram in the protected sum of the last round: accuracies at or above the lower edge
            of its bucket pass. "stochastic" (published code) lets each client draw one uniform r
            and keep attribute k if ``sqrt(r) <= Acc_k / max Acc``; nobody else learns the draw.
        quantile: of the accuracies, in [0, 1); 0 keeps every attribute with an accuracy above 0.
        buckets: of the histogram.
        weight_unit: iterations times accuracy that make a weight of 1 in the sum. It cancels in
            eq. 3, and keeps the values of large organisations within the ring's clip.
        share_hidden: federate HM as well, by overall accuracy; the paper names KM and RM only.
        shifted_accuracies: repeat the published code's off-by-one, which judges attribute k by the
            accuracy on attribute k - 1.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: int = 10
    components: str = "both"
    gum: GUMConfig = field(default_factory=GUMConfig)
    training: GUMTraining = field(default_factory=GUMTraining)
    start: str = "common"
    user_drafts: float = 0.1
    item_drafts: float = 0.1
    centres: float = 0.1
    seeding: str = "k-means++"
    least_members: int = 1
    centre_weights: str = "farther"
    accuracy: AccuracyRule = "nearest"
    threshold: str = "quantile"
    quantile: float = 0.1
    buckets: int = 20
    weight_unit: float = 1024.0
    share_hidden: bool = False
    shifted_accuracies: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "least_members", "buckets"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algorithm.{name}", getattr(self, name), "must be at least 1")
        for name in ("user_drafts", "item_drafts", "centres"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"algorithm.{name}", getattr(self, name), "must be in (0, 1]")
        if not 0 <= self.quantile < 1:
            raise ConfigError("algorithm.quantile", self.quantile, "must be in [0, 1)")
        if not (math.isfinite(self.weight_unit) and self.weight_unit > 0):
            raise ConfigError(
                "algorithm.weight_unit", self.weight_unit, "must be positive and finite"
            )
        choices = {
            "components": _COMPONENTS,
            "seeding": SEEDINGS,
            "start": _STARTS,
            "centre_weights": CENTRE_WEIGHTS,
            "accuracy": ACCURACY_RULES,
            "threshold": _THRESHOLDS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"algorithm.{name}", getattr(self, name), "unknown", known)
        if self.training.keep != "best" and self.training.patience:
            raise ConfigError(
                "algorithm.training.patience",
                self.training.patience,
                "stops by validation, but the last epoch is kept",
                (0,),
            )

    @property
    def shares_public(self) -> bool:
        """Whether attribute vectors are federated."""
        return self.components != "private"

    @property
    def shares_private(self) -> bool:
        """Whether drafts are federated."""
        return self.components != "public"

    @property
    def histogram_buckets(self) -> int:
        """Buckets of the histogram in the protected sum; 0 for none."""
        return self.buckets if self.shares_public and self.threshold == "quantile" else 0
