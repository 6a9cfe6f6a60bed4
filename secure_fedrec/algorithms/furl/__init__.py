"""FURL (Bui et al. 2019): federated user representation learning, user vectors stay home."""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
