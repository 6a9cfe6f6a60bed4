"""Split personalization: may the private parameters of a torch model stay on their devices?

``check`` tests FURL's three constraints on a model, ``equivalence`` what follows from them: that a
run which keeps private parameters at home ends in the bits of one that ships everything.
"""

from secure_fedrec.properties.split.check import (
    AggregationInput,
    Aggregator,
    Anchored,
    Averaging,
    Batches,
    Column,
    FedProx,
    Gap,
    Loss,
    SplitPersonalizationError,
    SplitReport,
    Summaries,
    Summary,
    Violation,
    assert_split_personalization,
    check_split_personalization,
    federated_averaging,
    integers,
    keep_local,
    normals,
    random_batches,
)
from secure_fedrec.properties.split.equivalence import (
    SplitComparison,
    assert_split_equals_unsplit,
    compare_split,
)

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
