"""FURL's studies: four configurations on texts, and the similarity of independent user spaces."""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
