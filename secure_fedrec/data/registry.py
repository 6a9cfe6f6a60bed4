"""The known data sets: where each comes from, what its files must hash to, how to load it."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from secure_fedrec.data.movielens import load_ml_1m, load_ml_100k, load_ml_latest_small
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.synthetic import SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, DataError

__all__ = [
    "DATASETS",
    "DATA_DIR_VARIABLE",
    "DataFile",
    "DatasetInfo",
    "cache_dir",
    "check_files",
    "dataset_info",
    "load",
    "locate",
]

DATA_DIR_VARIABLE: Final = "SECURE_FEDREC_DATA"
"""Environment variable that names the folder of the data sets."""

_SYNTHETIC: Final = "synthetic"
_HARPER_KONSTAN: Final = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5, 4, Article 19. "
    "https://doi.org/10.1145/2827872"
)
_NO_REDISTRIBUTION: Final = (
    "GroupLens usage licence: research use with acknowledgement, no commercial use and no "
    "redistribution without separate permission."
)
_SAME_CONDITIONS: Final = (
    "GroupLens usage licence: research use with acknowledgement, no commercial use, "
    "redistribution under the same conditions."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """One file of a data set.

    Args:
        name: file name inside the data set's folder.
        sha256: hexadecimal digest of the sound file, or None where it is not known.
        published: whether the origin's archive holds it; other files are derived copies that a
            user may have instead.
    """

    name: str
    sha256: str | None = None
    published: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """What is known about a data set before it is read.

    Args:
        name: how commands and configurations call it; also the name of its folder.
        title: how papers call it.
        read: loads it from its folder; None where there is no folder.
        origin: https address of the publisher's zip archive, or None.
        files: the files that matter here.
        marker: a file that tells the data set's own folder from a folder of data sets; None
            exactly where there are no files.
        clients: expected number of clients, or None where any is right.
        items: expected number of items, or None.
        ratings: expected number of ratings, or None.
        licence: the terms in one sentence.
        citation: what to cite.
    """

    name: str
    title: str
    read: Callable[[Path], RatingTable] | None = None
    origin: str | None = None
    files: tuple[DataFile, ...] = ()
    marker: str | None = None
    clients: int | None = None
    items: int | None = None
    ratings: int | None = None
    licence: str
    citation: str

    def __post_init__(self) -> None:
        if self.origin is not None and not self.origin.startswith("https://"):
            raise ConfigError("data.origin", self.origin, "must be an https address")
        if (self.marker is None) != (not self.files) or (self.read is None) != (not self.files):
            raise ConfigError("data.name", self.name, "files, marker and reader belong together")


_ML_100K: Final = DatasetInfo(
    name="ml-100k",
    title="MovieLens 100K",
    read=load_ml_100k,
    origin="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    files=(
        DataFile(
            name="u.data",
            sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        ),
        DataFile(
            name="u.user",
            sha256="f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c",
        ),
        DataFile(
            name="u.item",
            sha256="553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
        ),
        DataFile(
            name="README",
            sha256="4883b8cf340ed0059971b33f56ad3adc88a40792108ebca3d24aafc4c82e8b52",
        ),
    ),
    marker="u.data",
    clients=943,
    items=1682,
    ratings=100_000,
    licence=_NO_REDISTRIBUTION,
    citation=_HARPER_KONSTAN,
)

_ML_1M: Final = DatasetInfo(
    name="ml-1m",
    title="MovieLens 1M",
    read=load_ml_1m,
    origin="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    files=(
        # No independent digest of the published ratings is known; their number is checked.
        DataFile(name="ratings.dat"),
        DataFile(
            name="users.dat",
            sha256="1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3",
        ),
        DataFile(
            name="movies.dat",
            sha256="0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        ),
        DataFile(
            name="README",
            sha256="416e0b06d0ce900fb5a31f50941f05074f65b855fda9c4f4f1f8da2c56593439",
        ),
        DataFile(
            name="ratings_notimestamp.dat.gz",
            sha256="d772187dc0388f89b245b84aa9ddfd743cf120187044425fdd7b74d4faa31e8a",
            published=False,
        ),
        DataFile(
            name="latest_rating_per_user.dat",
            sha256="5d7b802f6041e6b11ff318bb3c8c065c60a75dde1bc24dc1a04e6c52d8581174",
            published=False,
        ),
    ),
    marker="users.dat",
    clients=6040,
    items=3952,
    ratings=1_000_209,
    licence=_NO_REDISTRIBUTION,
    citation=_HARPER_KONSTAN,
)

_ML_LATEST_SMALL: Final = DatasetInfo(
    name="ml-latest-small",
    title="MovieLens latest-small (9/2018)",
    read=load_ml_latest_small,
    origin="https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
    files=(
        DataFile(
            name="ratings.csv",
            sha256="aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646",
        ),
        DataFile(
            name="movies.csv",
            sha256="5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07",
        ),
        DataFile(
            name="README.txt",
            sha256="63d22ac138e80fae37021797ed8e1b9424b5239dc576a137422adf783ae3f404",
        ),
    ),
    marker="movies.csv",
    clients=610,
    items=9742,
    ratings=100_836,
    licence=_SAME_CONDITIONS,
    citation=_HARPER_KONSTAN,
)

_SYNTHETIC_INFO: Final = DatasetInfo(
    name=_SYNTHETIC,
    title="Synthetic long-tailed ratings",
    licence="Made up on the spot; no terms apply.",
    citation="none",
)

DATASETS: Final[Mapping[str, DatasetInfo]] = MappingProxyType(
    {info.name: info for info in (_ML_100K, _ML_1M, _ML_LATEST_SMALL, _SYNTHETIC_INFO)}
)
"""All known data sets by name."""


def dataset_info(name: str) -> DatasetInfo:
    """Looks a data set up.

    Raises:
        ConfigError: there is no data set of that name.
    """
    if name not in DATASETS:
        raise ConfigError("data.name", name, "unknown data set", DATASETS)
    return DATASETS[name]


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
    info = dataset_info(name)
    if (synthetic is None) == (name == _SYNTHETIC):
        problem = "is given for, and only for, the data set 'synthetic'"
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


def locate(name: str, data_dir: Path | None = None) -> Path:
    """Finds a data set's folder.

    Args:
        name: one of ``DATASETS`` that is read from files.
        data_dir: where to look; by default the folder named by ``SECURE_FEDREC_DATA`` if that is
            set, else :func:`cache_dir`. It is either the data set's own folder or its parent.

    Returns:
        The folder with the data set's files.

    Raises:
        ConfigError: the name is unknown or has no files.
        DataError: no such folder; the message says how to get the data set.
    """
    info = dataset_info(name)
    if info.marker is None:
        raise ConfigError("data.name", name, "is generated, not read from files")
    base = data_home() if data_dir is None else data_dir
    if (base / name).is_dir():
        return base / name
    if (base / info.marker).is_file():
        return base
    raise DataError(
        base,
        f"holds neither a folder {name!r} nor {info.title} itself; fetch it with "
        f"`secure-fedrec data get {name}`, or name the folder of an existing copy with "
        f"`--data-dir` or the variable {DATA_DIR_VARIABLE}",
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
        try:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise DataError(path, f"cannot be read ({error.strerror})") from error
        if found != file.sha256:
            problem = f"is damaged or truncated: SHA-256 expected {file.sha256}, found {found}"
            raise DataError(path, problem)


def _check_size(info: DatasetInfo, folder: Path, table: RatingTable) -> None:
    """Refuses a table that has more or fewer clients, items or ratings than published."""
    sizes = {
        "clients": (info.clients, table.n_clients),
        "items": (info.items, table.n_items),
        "ratings": (info.ratings, len(table)),
    }
    for what, (expected, found) in sizes.items():
        if expected is not None and found != expected:
            problem = f"is incomplete or altered: {found} {what}, expected {expected}"
            raise DataError(folder, problem)
