"""Finding, checking and loading the data sets of the catalogue."""

import os
from pathlib import Path
from typing import Final

from secure_fedrec.core.files import file_digest
from secure_fedrec.data.catalogue import (
    DATASETS,
    EXAMPLE_SETS,
    SYNTHETIC,
    DatasetInfo,
)
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.refusals import readable
from secure_fedrec.data.synthetic import SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, DataError

DATA_DIR_VARIABLE: Final = "SECURE_FEDREC_DATA"
"""Environment variable that names the folder of the data sets."""


def dataset_info(name: str) -> DatasetInfo:
    """Looks a data set up.

    Raises:
        ConfigError: the name of the data set is unknown.
    """
    known = {**DATASETS, **EXAMPLE_SETS}
    if name not in known:
        raise ConfigError("data.name", name, "unknown data set", known)
    return known[name]


def load(
    name: str,
    data_dir: Path | None = None,
    verify: bool = True,
    *,
    synthetic: SyntheticConfig | None = None,
) -> RatingTable:
    """Loads a data set.

    Args:
        name: one of ``DATASETS``.
        data_dir: see :func:`locate`; not used for ``"synthetic"``.
        verify: whether to check file digests and the table's size against what is published.
            Switch it off only to read an edited copy on purpose.
        synthetic: what to generate, for ``"synthetic"`` and only for it.

    Returns:
        The table.

    Raises:
        ConfigError: the name is unknown, or ``synthetic`` is missing or out of place.
        DataError: the data set is not there, or a file is damaged or truncated.
    """
    if name not in DATASETS:
        problem = "is not a rating table" if name in EXAMPLE_SETS else "unknown data set"
        raise ConfigError("data.name", name, problem, DATASETS)
    info = DATASETS[name]
    if (synthetic is None) == (name == SYNTHETIC):
        problem = "is required for the data set 'synthetic', and only allowed for it"
        raise ConfigError("data.synthetic", synthetic, problem)
    if synthetic is not None:
        return generate(synthetic)
    folder = locate(name, data_dir)
    if verify:
        check_files(info, folder)
    assert info.read is not None  # noqa: S101  only "synthetic" has no reader
    table = info.read(folder)
    if verify:
        _check_size(info, folder, table)
    return table


def load_ml_latest_small(folder: Path) -> RatingTable:
    """Loads ML-latest-small (9/2018): 610 clients, 9,742 items, half stars, with timestamps.

    Args:
        folder: holds ``ratings.csv`` and ``movies.csv``.

    Returns:
        The table, without demographics. Clients are the users who rated, items the listed movies.

    Raises:
        DataError: a file is missing or damaged; names the file and, where possible, the line.
    """
    read = DATASETS["ml-latest-small"].read
    assert read is not None  # noqa: S101  it is not a synthetic set
    return read(folder)


def locate(name: str, data_dir: Path | None = None) -> Path:
    """Finds a data set's folder.

    Args:
        name: one of ``DATASETS`` or ``EXAMPLE_SETS`` that is read from files.
        data_dir: where to look; by default the folder named by ``SECURE_FEDREC_DATA`` if that is
            set, else :func:`cache_dir`. It is either the data set's own folder or its parent.

    Returns:
        The folder with the data set's files.

    Raises:
        ConfigError: the name is unknown or has no files.
        DataError: the folder is missing; the message says how to get the data set.
    """
    info = dataset_info(name)
    if info.marker is None:
        raise ConfigError("data.name", name, "is generated, not read from files")
    base = data_home() if data_dir is None else data_dir
    if (base / name).is_dir():
        return base / name
    if (base / info.marker).is_file():
        return base
    fetch = f"fetch it with `secure-fedrec data get {name}`, or " if info.origin else ""
    raise DataError(
        base,
        f"holds neither a folder {name!r} nor {info.title} itself; {fetch}name the folder of an "
        f"existing copy with `--data-dir` or the variable {DATA_DIR_VARIABLE}",
    )


def data_home() -> Path:
    """Where data sets lie by default: the folder ``SECURE_FEDREC_DATA`` names, else the cache."""
    named = os.environ.get(DATA_DIR_VARIABLE)
    return Path(named) if named else cache_dir()


def cache_dir() -> Path:
    """The per-user folder for downloads: ``secure-fedrec`` in the XDG cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative values ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "secure-fedrec"


def check_files(info: DatasetInfo, folder: Path) -> None:
    """Compares every listed file that is there with its known SHA-256 digest.

    A missing file is not an error here: some are alternatives, and the loader names those it needs.

    Args:
        info: the data set.
        folder: its folder.

    Raises:
        DataError: a file differs from the published one, or cannot be read.
    """
    for file in info.files:
        path = folder / file.name
        if file.sha256 is None or not path.exists():
            continue
        with readable(path):
            found = file_digest(path)
        if found != file.sha256:
            problem = f"is damaged or truncated: SHA-256 expected {file.sha256}, found {found}"
            raise DataError(path, problem)


def _check_size(info: DatasetInfo, folder: Path, table: RatingTable) -> None:
    """Refuses a table that has more or fewer clients, items or ratings than published."""
    sizes = {"clients": table.n_clients, "items": table.n_items, "ratings": len(table)}
    for what, found in sizes.items():
        expected = getattr(info, what)
        if expected is not None and found != expected:
            problem = f"is incomplete or altered: {found} {what}, expected {expected}"
            raise DataError(folder, problem)
