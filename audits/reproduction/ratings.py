"""The ratings that a paper's studies train on, read or generated once for all of them."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from secure_fedrec.data import RatingTable, load
from secure_fedrec.data.synthetic import SyntheticConfig, generate


def ratings_of(name: str, data_dir: Path | None, quick: Mapping[str, Any]) -> RatingTable:
    """The ratings of a data set, see ``secure_fedrec.data.load``.

    Args:
        name: of the data set.
        data_dir: folder of the data sets.
        quick: of the paper's file, whose ``ratings`` are generated in the place of the paper's;
            empty for the paper's own.
    """
    return generated(quick) if quick else _loaded(name, data_dir)


def generated(quick: Mapping[str, Any]) -> RatingTable:
    """Small generated ratings in place of a paper's."""
    return _generated(**quick["ratings"])


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: Path | None) -> RatingTable:
    return load(name, data_dir)


@lru_cache(maxsize=1)
def _generated(**shape: Any) -> RatingTable:
    return generate(SyntheticConfig(seed=1, **shape))
