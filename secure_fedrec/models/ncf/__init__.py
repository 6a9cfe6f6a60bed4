"""Neural collaborative filtering, whole and cut into private and federated parameters."""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
