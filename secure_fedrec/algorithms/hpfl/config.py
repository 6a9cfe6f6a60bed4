"""Settings of HPFL, and which of them the paper leaves open."""

from dataclasses import field
from typing import Annotated, Final

from secure_fedrec.algorithms.hpfl.drafts import SEEDINGS
from secure_fedrec.algorithms.hpfl.update import CENTRE_WEIGHTS
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation.scores import AccuracyRule
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.settings import Count, OneOf, Positive, Rate, Rounds, Settings, Share

_COMPONENTS: Final = ("both", "public", "private")
_THRESHOLDS: Final = ("quantile", "stochastic")
_STARTS: Final = ("common", "independent")


class HPFLConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rounds: T, rounds of training.
        components: what is federated: "both" is HPFL, "public" HPFL-K (attribute vectors, no
            drafts), "private" HPFL-R (drafts, no attribute vectors).
        gum: form of the local user model.
        training: local training of a round.
        start: "common" starts the public parts and HM of all clients at the same values,
            "independent" at values of their own, which the paper says is possible.
        user_drafts: clusters of users, per user of the organisation.
        item_drafts: clusters of items, per item of the organisation.
        centres: global clusters, per draft that was sent.
        seeding: of the clusterings, "k-means++", or "random" points, which is several times faster
            on thousands of drafts.
        least_members: drafts of clusters with fewer members stay at home.
        centre_weights: of eq. 2, "farther" (as printed) or "nearer".
        accuracy: how predictions become levels, "nearest" or "ceil" (published code).
        threshold: p of eq. 3. "quantile" is a fixed quantile of all clients' accuracies, from a
            histogram in the protected sum of the last round: accuracies at or above the lower edge
            of its bucket pass. "stochastic" (published code) lets each client draw one uniform r
            and keep attribute k if ``sqrt(r) <= Acc_k / max Acc``; other parties do not learn the
            draw.
        quantile: of the accuracies, which attributes have to reach; 0 keeps every attribute with an
            accuracy above 0.
        buckets: buckets of the histogram that ``threshold`` is read from.
        weight_unit: iterations times accuracy that make a weight of 1 in the sum. It cancels in
            eq. 3, and keeps the values of large organisations within the ring's clip.
        share_hidden: federate HM as well, by overall accuracy; the paper names KM and RM only.
        shifted_accuracies: repeat the published code's off-by-one, which judges attribute k by the
            accuracy on attribute k - 1.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: Rounds = 10
    components: Annotated[str, OneOf(_COMPONENTS)] = "both"
    gum: GUMConfig = field(default_factory=GUMConfig)
    training: GUMTraining = field(default_factory=GUMTraining)
    start: Annotated[str, OneOf(_STARTS)] = "common"
    user_drafts: Rate = 0.1
    item_drafts: Rate = 0.1
    centres: Rate = 0.1
    seeding: Annotated[str, OneOf(SEEDINGS)] = "k-means++"
    least_members: Count = 1
    centre_weights: Annotated[str, OneOf(CENTRE_WEIGHTS)] = "farther"
    accuracy: AccuracyRule = "nearest"
    threshold: Annotated[str, OneOf(_THRESHOLDS)] = "quantile"
    quantile: Share = 0.1
    buckets: Count = 20
    weight_unit: Positive = 1024.0
    share_hidden: bool = False
    shifted_accuracies: bool = False

    def _agree(self) -> None:
        if self.training.keep != "best" and self.training.patience:
            key, patience = self.key("training.patience"), self.training.patience
            raise ConfigError(
                key,
                patience,
                "stops training by validation, so the best epoch must be kept, not the last",
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
        """Buckets of the histogram in the protected sum; 0 for no histogram."""
        return self.buckets if self.shares_public and self.threshold == "quantile" else 0
