"""Federated recommenders, one file per system, in the notation of its paper."""

from secure_fedrec.algorithms.base import Algorithm as Algorithm
from secure_fedrec.algorithms.base import ClientStep as ClientStep
from secure_fedrec.algorithms.base import PublicState as PublicState
from secure_fedrec.algorithms.base import RatingAlgorithm as RatingAlgorithm
from secure_fedrec.algorithms.base import RatingStep as RatingStep
from secure_fedrec.algorithms.base import SizedUploads as SizedUploads
from secure_fedrec.algorithms.item_tables import FedMF as FedMF
from secure_fedrec.algorithms.item_tables import FedMFConfig as FedMFConfig
from secure_fedrec.algorithms.item_tables import FedNCF as FedNCF
from secure_fedrec.algorithms.item_tables import FedNCFConfig as FedNCFConfig
from secure_fedrec.algorithms.item_tables import FedRAP as FedRAP
from secure_fedrec.algorithms.item_tables import FedRAPConfig as FedRAPConfig
from secure_fedrec.algorithms.item_tables import ItemTables as ItemTables
from secure_fedrec.algorithms.item_tables import PFedRec as PFedRec
from secure_fedrec.algorithms.item_tables import PFedRecConfig as PFedRecConfig
from secure_fedrec.algorithms.pmf import PMF as PMF
from secure_fedrec.algorithms.pmf import PMFConfig as PMFConfig
