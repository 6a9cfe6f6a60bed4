"""Data of federations: immutable rating tables, organisations, known data sets, and splits.

A data set goes one way through this package: ``download`` fetches files, ``files`` (anybody's) or
``movielens`` reads them, ``registry`` checks them against what the ``catalogue`` says is published,
``filters`` leaves out what is asked for, and ``splits`` parts the resulting table. Organisations,
clients with many users each, are read and parted by the modules that carry their name.
"""

from secure_fedrec.data.catalogue import DATASETS, EXAMPLE_SETS, DataFile, DatasetInfo
from secure_fedrec.data.download import get
from secure_fedrec.data.files import FileRatings, RatingsFile, read_ratings
from secure_fedrec.data.filters import filtered
from secure_fedrec.data.movielens import (
    AGE_BANDS,
    GENDERS,
    latest_ml_1m,
    load_ml_1m,
    load_ml_100k,
)
from secure_fedrec.data.organisations.registry import ORGANISATIONS, load_organisations
from secure_fedrec.data.organisations.split import SplitShares
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.data.organisations.tables import ClientRecords, Organisations, Records, organise
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.data.registry import (
    DATA_DIR_VARIABLE,
    cache_dir,
    load,
    load_ml_latest_small,
    locate,
)
from secure_fedrec.data.splits import Split, k_fold, leave_one_out
from secure_fedrec.data.synthetic import SyntheticConfig, generate

__all__ = [
    "AGE_BANDS",
    "DATASETS",
    "DATA_DIR_VARIABLE",
    "EXAMPLE_SETS",
    "GENDERS",
    "ORGANISATIONS",
    "ClientRecords",
    "DataFile",
    "DatasetInfo",
    "FileRatings",
    "Organisations",
    "RatingScale",
    "RatingTable",
    "RatingsFile",
    "Records",
    "Split",
    "SplitShares",
    "SyntheticConfig",
    "SyntheticOrganisationsConfig",
    "cache_dir",
    "filtered",
    "generate",
    "generate_organisations",
    "get",
    "k_fold",
    "latest_ml_1m",
    "leave_one_out",
    "load",
    "load_ml_1m",
    "load_ml_100k",
    "load_ml_latest_small",
    "load_organisations",
    "locate",
    "organise",
    "read_ratings",
]
