"""Loaders for two MovieLens sets, from the files GroupLens publishes.

Clients and items are numbered from 0 in the order of their published ids. Ages become the seven
bands of ML-1M in every set that states them, so that an attribute means the same everywhere.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.ratings import RatingScale, RatingTable, StrArray
from secure_fedrec.data.textfiles import read_numbers, read_records, whole_numbers
from secure_fedrec.errors import DataError

_FILE: Final = Path(__file__).with_suffix(".toml")
CODE_BOOKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {name: tuple(book) for name, book in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()}
)
"""The meaning of numbers and flags in the files, in the order of the codes."""

GENDERS: Final = CODE_BOOKS["genders"]
"""Categories of the attribute ``gender``."""

AGE_BANDS: Final = CODE_BOOKS["age_bands"]
"""Categories of the attribute ``age_band``, as ML-1M defines them."""

_BAND_CODES: Final = CODE_BOOKS["band_codes"]
_BAND_STARTS: Final = tuple(int(code) for code in _BAND_CODES[1:])
_ML_1M_OCCUPATIONS: Final = CODE_BOOKS["occupations"]
# Papers on ML-1M count its 3,952 movie ids as items, of which 3,883 are listed and 3,706 rated.
_ML_1M_ITEMS: Final = 3952

WHOLE_STARS: Final = RatingScale(1.0, 5.0, 1.0)
"""1 to 5 stars, none of them halved."""
_RATING_COLUMNS: Final = ("user", "item", "rating", "timestamp")


def load_ml_100k(folder: Path) -> RatingTable:
    """Loads ML-100K: 943 clients, 1,682 items, 1 to 5 stars, with demographics and timestamps.

    Args:
        folder: holds ``u.data``, ``u.user`` and ``u.item``.

    Returns:
        The table; attributes ``gender``, ``age_band`` and ``occupation``.

    Raises:
        DataError: a file is missing or damaged; names the file and, where possible, the line.
    """
    users_path, items_path = folder / "u.user", folder / "u.item"
    users = read_records(
        users_path, ("user", "age", "gender", "occupation", "zip code"), separator="|"
    )
    items = read_records(
        items_path, ("item", "title"), separator="|", encoding="latin-1", at_least=True
    )
    _, ages, genders, occupations, _ = zip(*users, strict=True)
    demographics = {
        "gender": _categories(users_path, "gender", genders, GENDERS),
        "age_band": _age_bands(users_path, ages),
        "occupation": np.array(occupations, dtype=np.str_),
    }
    return _assemble(
        name="ml-100k",
        path=folder / "u.data",
        rows=read_numbers(folder / "u.data", _RATING_COLUMNS, separator="\t"),
        client_labels=_labels(users_path, "user", users),
        item_labels=_labels(items_path, "item", items),
        demographics=demographics,
    )


def load_ml_1m(folder: Path) -> RatingTable:
    """Loads ML-1M: 6,040 clients, 3,952 items, 1 to 5 stars, with demographics.

    Item i is movie i + 1, whether listed, rated or neither.

    Args:
        folder: holds ``users.dat`` and either the published ``ratings.dat`` or
            ``ratings_notimestamp.dat.gz``, the same rows without their last column. If both exist,
            the published file is read.

    Returns:
        The table; attributes ``gender``, ``age_band`` and ``occupation``; no timestamps where the
        ratings came without them.

    Raises:
        DataError: a file is missing or damaged; names the file and, where possible, the line.
    """
    path, width = folder / "ratings.dat", 4
    if not path.exists() and (folder / "ratings_notimestamp.dat.gz").exists():
        path, width = folder / "ratings_notimestamp.dat.gz", 3
    users_path = folder / "users.dat"
    users = read_records(
        users_path, ("user", "gender", "age", "occupation", "zip code"), separator="::"
    )
    _, genders, ages, occupations, _ = zip(*users, strict=True)
    codes, spelled = [str(code) for code in range(len(_ML_1M_OCCUPATIONS))], _ML_1M_OCCUPATIONS
    demographics = {
        "gender": _categories(users_path, "gender", genders, GENDERS),
        "age_band": _categories(users_path, "age band", ages, _BAND_CODES, AGE_BANDS),
        "occupation": _categories(users_path, "occupation", occupations, codes, spelled),
    }
    return _assemble(
        name="ml-1m",
        path=path,
        rows=read_numbers(path, _RATING_COLUMNS[:width], separator="::"),
        client_labels=_labels(users_path, "user", users),
        item_labels=np.arange(1, _ML_1M_ITEMS + 1, dtype=np.int64),
        demographics=demographics,
    )


def latest_ml_1m(folder: Path) -> IntArray:
    """Reads the item each ML-1M client rated last, for sets whose ratings carry no timestamps.

    Args:
        folder: holds ``users.dat`` and ``latest_rating_per_user.dat``.

    Returns:
        int64[n_clients], an item per client, in the numbering of :func:`load_ml_1m`.

    Raises:
        DataError: a file is missing or damaged, or a client has no or two latest ratings.
    """
    users_path, path = folder / "users.dat", folder / "latest_rating_per_user.dat"
    users = read_records(users_path, ("user",), separator="::", at_least=True)
    client_labels = _labels(users_path, "user", users)
    item_labels = np.arange(1, _ML_1M_ITEMS + 1, dtype=np.int64)
    rows = read_numbers(path, _RATING_COLUMNS, separator="::")
    clients = _numbered(path, "user", rows[:, 0], client_labels)
    items = _numbered(path, "item", rows[:, 1], item_labels)
    times_seen = np.bincount(clients, minlength=len(client_labels))
    if np.any(times_seen != 1):
        client = client_labels[np.flatnonzero(times_seen != 1)[0]]
        raise DataError(path, f"user {client} must have exactly one latest rating")
    latest = np.empty(len(client_labels), dtype=np.int64)
    latest[clients] = items
    return latest


def _assemble(
    *,
    name: str,
    path: Path,
    rows: FloatArray,
    client_labels: IntArray,
    item_labels: IntArray,
    demographics: dict[str, StrArray],
) -> RatingTable:
    """Makes a table of rows of (user, item, rating[, timestamp]); errors name lines of ``path``."""
    WHOLE_STARS.check(rows[:, 2], path, first_line=1)
    times = whole_numbers(path, rows[:, 3], "timestamp", 1) if rows.shape[1] > 3 else None
    return RatingTable.from_columns(
        name=name,
        n_clients=len(client_labels),
        n_items=len(item_labels),
        clients=_numbered(path, "user", rows[:, 0], client_labels),
        items=_numbered(path, "item", rows[:, 1], item_labels),
        ratings=rows[:, 2],
        scale=WHOLE_STARS,
        client_labels=client_labels,
        item_labels=item_labels,
        demographics=demographics,
        timestamps=times,
        source=path,
        first_line=1,
    )


def _labels(path: Path, what: str, records: Sequence[Sequence[str]]) -> IntArray:
    """The ids in a listing's first column: int64, strictly ascending as in every known file."""
    labels = np.empty(len(records), dtype=np.int64)
    for row, record in enumerate(records):
        line = row + 1
        # The length bound keeps a digit string of any size inside int64.
        if not (record[0].isascii() and record[0].isdigit() and len(record[0]) <= 15):
            raise DataError(path, f"{what} {record[0]!r} is not a number", line=line)
        labels[row] = int(record[0])
        if row and labels[row] <= labels[row - 1]:
            raise DataError(path, f"{what} {labels[row]} is repeated or out of order", line=line)
    return labels


def _numbered(path: Path, what: str, ids: FloatArray, labels: IntArray) -> IntArray:
    """Replaces published ids by their positions in ``labels``; refuses an id not among them."""
    whole = whole_numbers(path, ids, what, 1)
    positions = np.minimum(np.searchsorted(labels, whole), len(labels) - 1)
    unknown = np.flatnonzero(labels[positions] != whole)
    if len(unknown):
        line = 1 + int(unknown[0])
        raise DataError(path, f"{what} {whole[unknown[0]]} is not in the data set", line=line)
    return positions.astype(np.int64)


def _categories(
    path: Path,
    what: str,
    values: Sequence[str],
    allowed: Sequence[str],
    names: Sequence[str] | None = None,
) -> StrArray:
    """Checks a categorical column of a file without header, and spells its codes out."""
    spelled = dict(zip(allowed, allowed if names is None else names, strict=True))
    for row, value in enumerate(values):
        if value not in spelled:
            raise DataError(path, f"{what} {value!r} is not one of {allowed}", line=row + 1)
    return np.array([spelled[value] for value in values], dtype=np.str_)


def _age_bands(path: Path, ages: Sequence[str]) -> StrArray:
    """Sorts ages in years into the seven bands."""
    for row, age in enumerate(ages):
        if not (age.isascii() and age.isdigit() and len(age) <= 3 and int(age) > 0):
            raise DataError(path, f"age {age!r} is not an age in years", line=row + 1)
    bands = np.searchsorted(_BAND_STARTS, [int(age) for age in ages], side="right")
    return np.array(AGE_BANDS, dtype=np.str_)[bands]
