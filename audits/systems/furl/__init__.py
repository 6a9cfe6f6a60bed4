"""FURL as an audit runs it: settings, texts and interactions, checks."""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
