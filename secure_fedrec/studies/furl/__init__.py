"""FURL's studies: four configurations on texts, and how alike independent user spaces are."""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
