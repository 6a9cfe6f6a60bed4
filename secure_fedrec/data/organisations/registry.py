"""The known organisations by name: which data set each is made of."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from secure_fedrec.data.organisations.assist import assist2009_by_blocks, assist2009_sample
from secure_fedrec.data.organisations.movielens import ml_100k_by_zip
from secure_fedrec.data.organisations.split import SplitShares
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.data.registry import check_files, dataset_info, locate
from secure_fedrec.errors import ConfigError

ORGANISATIONS: Final[Mapping[str, tuple[str, Callable[..., Organisations]]]] = MappingProxyType(
    {
        "ml-100k-zip": ("ml-100k", ml_100k_by_zip),
        "assist2009": ("assist2009", assist2009_by_blocks),
        "assist2009-sample": ("assist2009", assist2009_sample),
    }
)
"""Data set and reader of each, by name."""


def load_organisations(
    name: str,
    data_dir: Path | None = None,
    *,
    seed: int,
    shares: SplitShares | None = None,
    verify: bool = True,
) -> Organisations:
    """Loads organisations and parts their records.

    Args:
        name: one of ``ORGANISATIONS``.
        data_dir: as :func:`secure_fedrec.data.locate` takes it.
        seed: seed of the split, at least 0.
        shares: of every user's records, held out; by default 20 % test and, of the others, 10 %
            validation.
        verify: whether to check file digests against what is known.

    Raises:
        ConfigError: the name is unknown.
        DataError: the data set is not there, or a file is damaged.
    """
    if name not in ORGANISATIONS:
        raise ConfigError("data.name", name, "unknown organisations", ORGANISATIONS)
    dataset, read = ORGANISATIONS[name]
    folder = locate(dataset, data_dir)
    if verify:
        check_files(dataset_info(dataset), folder)
    return read(folder, shares=shares or SplitShares(), seed=seed)
