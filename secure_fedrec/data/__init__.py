"""Data of federations: immutable rating tables, organisations, known data sets, and splits.

The steps from a data set's files to its parts: ``download`` fetches files, ``files`` (of any
origin) or ``movielens`` reads them, ``registry`` checks them against what the ``catalogue`` says is
published, ``filters`` leaves out what is asked for, and ``splits`` parts the resulting table.
Organisations, clients with many users each, are read and parted by the modules that carry their
name.
"""

from secure_fedrec.data.catalogue import DATASETS as DATASETS
from secure_fedrec.data.catalogue import EXAMPLE_SETS as EXAMPLE_SETS
from secure_fedrec.data.catalogue import DataFile as DataFile
from secure_fedrec.data.catalogue import DatasetInfo as DatasetInfo
from secure_fedrec.data.download import get as get
from secure_fedrec.data.files import FileRatings as FileRatings
from secure_fedrec.data.files import RatingsFile as RatingsFile
from secure_fedrec.data.files import read_ratings as read_ratings
from secure_fedrec.data.filters import filtered as filtered
from secure_fedrec.data.movielens import AGE_BANDS as AGE_BANDS
from secure_fedrec.data.movielens import GENDERS as GENDERS
from secure_fedrec.data.movielens import latest_ml_1m as latest_ml_1m
from secure_fedrec.data.movielens import load_ml_1m as load_ml_1m
from secure_fedrec.data.movielens import load_ml_100k as load_ml_100k
from secure_fedrec.data.organisations.registry import ORGANISATIONS as ORGANISATIONS
from secure_fedrec.data.organisations.registry import load_organisations as load_organisations
from secure_fedrec.data.organisations.split import SplitShares as SplitShares
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig as SyntheticOrganisationsConfig,
)
from secure_fedrec.data.organisations.synthetic import (
    generate_organisations as generate_organisations,
)
from secure_fedrec.data.organisations.tables import ClientRecords as ClientRecords
from secure_fedrec.data.organisations.tables import Organisations as Organisations
from secure_fedrec.data.organisations.tables import Records as Records
from secure_fedrec.data.organisations.tables import organise as organise
from secure_fedrec.data.ratings import RatingScale as RatingScale
from secure_fedrec.data.ratings import RatingTable as RatingTable
from secure_fedrec.data.registry import DATA_DIR_VARIABLE as DATA_DIR_VARIABLE
from secure_fedrec.data.registry import cache_dir as cache_dir
from secure_fedrec.data.registry import load as load
from secure_fedrec.data.registry import load_ml_latest_small as load_ml_latest_small
from secure_fedrec.data.registry import locate as locate
from secure_fedrec.data.splits import Split as Split
from secure_fedrec.data.splits import k_fold as k_fold
from secure_fedrec.data.splits import leave_one_out as leave_one_out
from secure_fedrec.data.synthetic import SyntheticConfig as SyntheticConfig
from secure_fedrec.data.synthetic import generate as generate
