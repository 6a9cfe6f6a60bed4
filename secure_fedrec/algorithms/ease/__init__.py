"""Federated EASE: one exact sum of co-occurrences, and a closed form of it.

EASE (Steck, "Embarrassingly shallow autoencoders for sparse data", 2019) predicts a user's row x of
0 and 1 from x itself: scores x B, where B is the ridge regression of every item on all others. All
that it needs of the data is the Gram matrix G = sum_u x_u x_u^T (eq. 8), which is a sum over
users. So a federation of users takes one round under any layer that forms sums.
"""

from secure_fedrec.algorithms.ease.config import EASEConfig
from secure_fedrec.algorithms.ease.system import EASE

__all__ = ["EASE", "EASEConfig"]
