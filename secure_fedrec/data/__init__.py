"""Rating data: immutable tables, known data sets, a synthetic set, and splits.

A data set goes one way through this package: ``download`` fetches files, ``movielens`` reads them,
``registry`` checks them against what is published, and ``splits`` parts the resulting table.
"""

from secure_fedrec.data.download import get
from secure_fedrec.data.movielens import (
    AGE_BANDS,
    GENDERS,
    latest_ml_1m,
    load_ml_1m,
    load_ml_100k,
    load_ml_latest_small,
)
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.data.registry import (
    DATA_DIR_VARIABLE,
    DATASETS,
    DataFile,
    DatasetInfo,
    cache_dir,
    load,
    locate,
)
from secure_fedrec.data.splits import Split, k_fold, leave_one_out
from secure_fedrec.data.synthetic import SyntheticConfig, generate

__all__ = [
    "AGE_BANDS",
    "DATASETS",
    "DATA_DIR_VARIABLE",
    "GENDERS",
    "DataFile",
    "DatasetInfo",
    "RatingScale",
    "RatingTable",
    "Split",
    "SyntheticConfig",
    "cache_dir",
    "generate",
    "get",
    "k_fold",
    "latest_ml_1m",
    "leave_one_out",
    "load",
    "load_ml_1m",
    "load_ml_100k",
    "load_ml_latest_small",
    "locate",
]
