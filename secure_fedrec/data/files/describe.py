"""Describes the content of a file of ratings before settings for it exist."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.doubts import doubt_of
from secure_fedrec.data.files.guess import guess
from secure_fedrec.data.files.kinds import ROLES, counts_only
from secure_fedrec.data.files.nobody import require_somebody
from secure_fedrec.data.files.settings import Column, RatingsFile
from secure_fedrec.data.files.source import require_file
from secure_fedrec.data.files.table import pair_keys, read_ratings, read_rows
from secure_fedrec.data.files.values import found_scale, numbers, ratings
from secure_fedrec.data.filters import filtered
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import DataError

FILTERS: Final = (
    {"min_ratings": 5},
    {"min_ratings": 10},
    {"min_ratings": 20},
    {"min_raters": 5},
    {"min_ratings": 5, "min_raters": 5},
    {"min_ratings": 10, "min_raters": 10},
)
"""The usual filters and their effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The rows that a filter keeps.

    Args:
        keys: its settings.
        clients, items, ratings: how many are left.
    """

    keys: Mapping[str, int]
    clients: int
    items: int
    ratings: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """The content of a file of ratings.

    Args:
        file: settings that read it.
        names: names of its columns; None without a header.
        width: number of its columns.
        rows: how many are used.
        left_out: how many do not, because something is missing in them.
        repeated: rows whose pair occurs in an earlier row.
        levels: how often each rating occurs, ascending; None without ratings.
        scale: scale of the ratings; None if they are on none.
        remark: why not, and how they are read.
        doubt: the refusal to decide what they are; None where that is clear.
        taken: other decisions that were not stated and that a user may not expect, as clauses.
        table: the table that these settings read.
        tied: clients with several ratings at their latest time; None without times.
        left: the result of the usual filters.
    """

    file: RatingsFile
    names: tuple[str, ...] | None
    width: int
    rows: int
    left_out: int
    repeated: int
    levels: Mapping[float, int] | None
    scale: RatingScale | None
    remark: str
    doubt: DataError | None
    taken: tuple[str, ...]
    table: RatingTable = field(repr=False)
    tied: int | None
    left: tuple[Left, ...]

    @property
    def unused(self) -> tuple[Column, ...]:
        """Columns that are not read, by name or, without a header, by number."""
        if self.file.layout == "lists":
            return ()
        used = {getattr(self.file, what) for what in ROLES}
        numbers = range(1, self.width + 1)
        named: Iterable[Column] = numbers if self.names is None else self.names
        both = zip(numbers, named, strict=True)
        return tuple(column for number, column in both if not {number, column} & used)


def look_at(path: Path, told: Mapping[str, Any] = MappingProxyType({})) -> Seen:
    """Look at a file: separator, header, columns, ids, scale, repeated pairs.

    Args:
        path: the file.
        told: settings of ``RatingsFile`` that are known, by name.

    Raises:
        DataError: it is not sound, or it cannot be told which columns are users and items.
        ConfigError: it is Parquet, and pyarrow is not installed; or what is told does not fit.
    """
    require_file(path)
    guessed = guess(path, told)
    file = guessed.file
    columns = read_rows(file, path)
    require_somebody(file, columns)
    repeated = len(columns) - len(np.unique(pair_keys(columns)))
    if repeated and "duplicates" not in told:
        file = replace(file, duplicates="last")
    file, levels, remark, doubt = _scaled(file, columns, guessed.names)
    table = read_ratings(file, path.parent).table
    return Seen(
        file=file,
        names=guessed.names,
        width=guessed.width,
        rows=len(columns),
        left_out=columns.left_out,
        repeated=repeated,
        levels=levels,
        scale=None if isinstance(file.scale, str) else file.scale,
        remark=remark,
        doubt=doubt,
        taken=guessed.taken,
        table=table,
        tied=None if table.timestamps is None else _tied(table, table.timestamps),
        left=tuple(_left(table, keys) for keys in FILTERS),
    )


def _scaled(
    file: RatingsFile, columns: Columns, names: Sequence[str] | None
) -> tuple[RatingsFile, dict[float, int] | None, str, DataError | None]:
    """Settings for the ratings, how often each occurs, and why they are not on a scale.

    The last value is the question, if values do not decide it and the name does not say counts.
    """
    if file.rating is None:
        return file, None, "no column of ratings: every row is an interaction", None
    exact = numbers(columns)
    values, counts = np.unique(ratings(columns, exact), return_counts=True)
    levels = dict(zip(values.tolist(), counts.tolist(), strict=True))
    if file.positive_from is not None:
        return (
            file,
            levels,
            f"none, by the settings: rows from {file.positive_from:g} on count",
            None,
        )
    if file.scale != "auto":
        return file, levels, "", None
    lowest = min((value for value in levels if value > 0), default=max(levels))
    implicit = replace(file, positive_from=lowest)
    taken = f"rows from {lowest:g} on count (data.positive_from = {lowest:g})"
    name = file.rating
    if isinstance(name, int) and names is not None:
        name = names[name - 1]
    if counts_only(name):
        remark = f"none: these are counts or flags by the name of {name!a}: implicit feedback"
        return implicit, levels, f"{remark}, {taken}", None
    doubt = doubt_of(columns, exact, levels)
    with suppress(DataError):
        every = replace(file, scale=found_scale(columns.path, exact))
        said = f"undecided: {doubt}; the figures here are of all rows" if doubt else ""
        return every, levels, said, doubt
    return implicit, levels, f"undecided: {doubt}; the figures here are of {taken}", doubt


def _tied(table: RatingTable, times: IntArray) -> int:
    """Clients who gave several ratings at their latest time."""
    latest = np.full(table.n_clients, -1, dtype=np.int64)
    np.maximum.at(latest, table.clients, times)
    at_latest = np.bincount(table.clients[times == latest[table.clients]])
    return int((at_latest > 1).sum())


def _left(table: RatingTable, keys: Mapping[str, int]) -> Left:
    try:
        left = filtered(table, **keys).table
    except DataError:
        return Left(keys=keys, clients=0, items=0, ratings=0)
    return Left(keys=keys, clients=left.n_clients, items=left.n_items, ratings=len(left))
