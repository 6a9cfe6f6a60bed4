"""What is known about each data set before it is read: files, digests, sizes, terms, citation.

The facts lie in ``catalogue.toml`` beside this module.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Final

from secure_fedrec.data.files.settings import RatingsFile, preset
from secure_fedrec.data.files.table import read_ratings
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.errors import ConfigError

SYNTHETIC: Final = "synthetic"
"""Name of the data set that is generated."""


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
    """Facts about a data set before it is read.

    Args:
        name: how commands and configurations call it; also the name of its folder.
        title: how papers call it.
        read: loads its rating table from its folder; None where there is no folder, or where it
            holds other data than a rating table. In the catalogue a reader, as ``module:function``,
            or a table of settings of the file reader (``files.RatingsFile``).
        implicit: whether it is implicit feedback.
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
    implicit: bool = False
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
        if (self.marker is None) != (not self.files) or (self.read and not self.files):
            raise ConfigError(
                "data.name", self.name, "files, marker and reader must be given together"
            )


def _read_catalogue() -> Iterator[DatasetInfo]:
    path = Path(__file__).with_suffix(".toml")
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
        files = tuple(DataFile(**file) for file in entry.pop("files", ()))
        reader = entry.pop("read", None)
        if isinstance(reader, dict):
            settings = preset(reader)
            entry |= {"read": partial(_read_file, settings, name), "implicit": settings.implicit}
        elif reader is not None:
            entry["read"] = resolve_name(f"{__package__}.{reader}")
        yield DatasetInfo(name=name, files=files, **entry)


def _read_file(settings: RatingsFile, name: str, folder: Path) -> RatingTable:
    return read_ratings(settings, folder, name=name).table


_ALL: Final = {info.name: info for info in _read_catalogue()}

DATASETS: Final[Mapping[str, DatasetInfo]] = MappingProxyType(
    {name: info for name, info in _ALL.items() if info.read is not None or name == SYNTHETIC}
)
"""All known rating tables by name."""

EXAMPLE_SETS: Final[Mapping[str, DatasetInfo]] = MappingProxyType(
    {name: info for name, info in _ALL.items() if name not in DATASETS}
)
"""Known data sets other than rating tables, by name; each has a loader of its own."""
