"""Split personalization: whether private parameters of a torch model can stay on their devices.

``check`` tests FURL's three constraints on a model, ``equivalence`` their consequence: that a run
which keeps private parameters at home ends in the bits of one that ships everything.
"""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
from secure_fedrec.errors import SplitPersonalizationError
from secure_fedrec.properties.check_report import Gap
from secure_fedrec.properties.split.aggregation import (
    AggregationInput,
    Aggregator,
    Averaging,
    Summary,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.check import (
    assert_split_personalization,
    check_split_personalization,
)
from secure_fedrec.properties.split.equivalence import (
    SplitComparison,
    assert_split_equals_unsplit,
    compare_split,
)
from secure_fedrec.properties.split.evaluation import Anchored, Loss
from secure_fedrec.properties.split.independent_aggregation import Summaries
from secure_fedrec.properties.split.losses import FedProx
from secure_fedrec.properties.split.random import (
    Batches,
    Column,
    integers,
    normals,
    random_batches,
)
from secure_fedrec.properties.split.report import SplitReport, Violation

__all__ = [
    "AggregationInput",
    "Aggregator",
    "Anchored",
    "Averaging",
    "Batches",
    "Column",
    "FedProx",
    "Gap",
    "Loss",
    "SplitComparison",
    "SplitPersonalizationError",
    "SplitReport",
    "Summaries",
    "Summary",
    "Violation",
    "assert_split_equals_unsplit",
    "assert_split_personalization",
    "check_split_personalization",
    "compare_split",
    "federated_averaging",
    "integers",
    "keep_local",
    "normals",
    "random_batches",
]
