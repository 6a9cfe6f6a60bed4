"""ML-100K as ten organisations: users by the national area of their zip code, films by genre.

HPFL divides the users by the first digit of the zip code (0: New England and New Jersey, ..., 9:
the Pacific states). Zip codes that begin with a letter are Canadian; their 18 users belong to no
area of the United States and are left out, which gives the 925 users and 1,679 films of the paper's
Table 1. That table counts 96,538 records; these users have 97,914.
"""

from pathlib import Path
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data.movielens import CODE_BOOKS, load_ml_100k
from secure_fedrec.data.organisations.split import SplitShares, draw_parts
from secure_fedrec.data.organisations.tables import Organisations, organise
from secure_fedrec.data.textfiles import read_records
from secure_fedrec.errors import DataError

GENRES: Final = CODE_BOOKS["genres"]
"""The 19 flags of ML-100K's films, in file order; the paper counts "unknown" as one of them."""

_FOREIGN: Final = -1
_USER_COLUMNS: Final = ("user", "age", "gender", "occupation", "zip code")
_ITEM_COLUMNS: Final = ("item", "title", "release date", "video date", "URL", *GENRES)


def ml_100k_by_zip(folder: Path, *, shares: SplitShares, seed: int) -> Organisations:
    """Loads ML-100K by the first digit of the zip code: 10 clients, 925 users, 1,679 films.

    Args:
        folder: holds ``u.data``, ``u.user`` and ``u.item``.
        shares: of every user's ratings, held out.
        seed: seed of the split, at least 0.

    Returns:
        The organisations; 1 to 5 stars, 19 attributes; a client lists the films its users rated.

    Raises:
        DataError: a file is missing or damaged; names the file and, where possible, the line.
    """
    table = load_ml_100k(folder)
    areas = _areas(folder / "u.user")
    kept = areas[table.clients] != _FOREIGN
    users, items = table.clients[kept].astype(np.int64), table.items[kept].astype(np.int64)
    present, clients = np.unique(areas[users], return_inverse=True)
    return organise(
        name="ml-100k-zip",
        names=[f"zip {digit}" for digit in present],
        clients=clients.astype(np.int64),
        users=users,
        items=items,
        scores=table.ratings[kept],
        parts=draw_parts(users, items, shares=shares, seed=seed),
        attributes=_genres(folder / "u.item"),
        attribute_names=GENRES,
        levels=table.scale.levels,
    )


def _areas(path: Path) -> IntArray:
    """First digit of every user's zip code, int64[users]; -1 where it is a letter."""
    areas = []
    for line, record in enumerate(read_records(path, _USER_COLUMNS, separator="|"), start=1):
        first = record[-1][:1]
        if not (first.isascii() and first.isalnum()):
            raise DataError(path, f"zip code {record[-1]!r} has no area", line=line)
        areas.append(int(first) if first.isdigit() else _FOREIGN)
    return np.array(areas, dtype=np.int64)


def _genres(path: Path) -> BoolArray:
    """bool[films, 19]."""
    flags = []
    records = read_records(path, _ITEM_COLUMNS, separator="|", encoding="latin-1")
    for line, record in enumerate(records, start=1):
        own = record[-len(GENRES) :]
        if not set(own) <= {"0", "1"}:
            raise DataError(path, "a genre flag is neither 0 nor 1", line=line)
        flags.append([flag == "1" for flag in own])
    return np.array(flags, dtype=np.bool_)
