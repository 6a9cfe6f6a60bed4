"""The ratings that a paper's studies train on, read or generated once for all of them."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from secure_fedrec.data import RatingTable, load
from secure_fedrec.data.synthetic import SyntheticConfig, generate


@lru_cache(maxsize=2)
def loaded(name: str, data_dir: Path | None) -> RatingTable:
    """The ratings of a data set, see ``secure_fedrec.data.load``."""
    return load(name, data_dir)


def generated(quick: Mapping[str, Any], *shape: str) -> RatingTable:
    """Small ratings in the place of a paper's.

    Args:
        quick: of the paper's file.
        shape: names of those of its keys that say how large they are.
    """
    return _generated(**{name: quick[name] for name in shape})


@lru_cache(maxsize=1)
def _generated(**shape: Any) -> RatingTable:
    return generate(SyntheticConfig(seed=1, **shape))
