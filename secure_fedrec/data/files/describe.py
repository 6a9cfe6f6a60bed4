"""What is in a file of ratings, before anybody has said how to read it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.ids import trim
from secure_fedrec.data.files.parquet import column_names
from secure_fedrec.data.files.settings import Column, RatingsFile, TextFile
from secure_fedrec.data.files.shape import fields_at, is_number, misnamed, plain_name, shape_of
from secure_fedrec.data.files.source import require_file
from secure_fedrec.data.files.table import pair_keys, read_columns, read_ratings
from secure_fedrec.data.files.times import is_date, whole_seconds
from secure_fedrec.data.files.values import decimals, found_scale, ratings
from secure_fedrec.data.filters import filtered
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import DataError

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "user": (
        *("user", "userid", "uid", "client", "clientid", "customer", "customerid", "reviewerid"),
        *("member", "memberid", "visitorid", "sessionid", "student", "studentid", "profileid"),
    ),
    "item": (
        *("item", "itemid", "iid", "movie", "movieid", "product", "productid", "book", "bookid"),
        *("isbn", "asin", "parentasin", "artist", "artistid", "song", "songid", "track", "trackid"),
        *("anime", "animeid", "game", "gameid", "joke", "jokeid", "business", "businessid"),
        *("article", "articleid", "newsid", "recipeid", "exerid"),
    ),
    "rating": (
        *("rating", "ratings", "score", "stars", "star", "overall", "bookrating", "value"),
        *("weight", "count", "plays", "playcount", "clicks", "views", "preference"),
    ),
    "time": ("timestamp", "time", "ts", "unixtime", "unixreviewtime", "date", "datetime"),
}
_EPOCHS: Final = (10**8, 10**14)
"""Whole numbers that read as seconds or milliseconds since 1970."""

FILTERS: Final = (
    {"min_ratings": 5},
    {"min_ratings": 10},
    {"min_ratings": 20},
    {"min_raters": 5},
    {"min_ratings": 5, "min_raters": 5},
    {"min_ratings": 10, "min_raters": 10},
)
"""What is usually left out."""


COLUMNS: Final = ("user", "item", "rating", "time")
"""What is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a filter leaves.

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
    """What is in a file of ratings.

    Args:
        file: settings that read it.
        names: of its columns; None without a header.
        width: number of its columns.
        rows: how many.
        repeated: rows whose pair has a row before.
        levels: how often each rating occurs, ascending; None without ratings.
        scale: of the ratings; None if they are on none.
        remark: why not.
        table: what the settings make of it.
        tied: clients with several ratings at their latest time; None without times.
        left: what the usual filters leave.
    """

    file: RatingsFile
    names: tuple[str, ...] | None
    width: int
    rows: int
    repeated: int
    levels: Mapping[float, int] | None
    scale: RatingScale | None
    remark: str
    table: RatingTable = field(repr=False)
    tied: int | None
    left: tuple[Left, ...]

    @property
    def unused(self) -> tuple[Column, ...]:
        """Columns that nothing is read from, by name or, without a header, by number."""
        used = {getattr(self.file, what) for what in COLUMNS}
        numbers = range(1, self.width + 1)
        named: Iterable[Column] = numbers if self.names is None else self.names
        both = zip(numbers, named, strict=True)
        return tuple(column for number, column in both if not {number, column} & used)


def look_at(path: Path, named: Mapping[str, Column] = MappingProxyType({})) -> Seen:
    """Look at a file: separator, header, columns, ids, scale, repeated pairs.

    Args:
        path: the file.
        named: columns that are known, by ``COLUMNS``.

    Raises:
        DataError: it is not sound, or it cannot be told which columns are users and items.
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    require_file(path)
    file, names = _guessed(path, named)
    asked = {what: getattr(file, what) for what in COLUMNS}
    columns = read_columns(path, file, {what: at for what, at in asked.items() if at is not None})
    for what in ("user", "item"):
        trim(columns, what, file.ids)
    repeated = len(columns) - _pairs(columns)
    if repeated:
        file = replace(file, duplicates="last")
    file, levels, scale, remark = _scaled(file, columns)
    table = read_ratings(file, path.parent).table
    return Seen(
        file=file,
        names=names,
        width=len(names or fields_at(path, 1, file.separator)),
        rows=len(columns),
        repeated=repeated,
        levels=levels,
        scale=scale,
        remark=remark,
        table=table,
        tied=None if table.timestamps is None else _tied(table, table.timestamps),
        left=tuple(_left(table, keys) for keys in FILTERS),
    )


def _guessed(path: Path, named: Mapping[str, Column]) -> tuple[RatingsFile, tuple[str, ...] | None]:
    """Settings of a file as far as its first lines tell."""
    file = TextFile(path=path.name)
    if file.parquet:
        names: tuple[str, ...] | None = column_names(path, file)
        found = _by_name(path, names or (), named)
        return RatingsFile(path=path.name, **found), names
    shape = shape_of(path, file, {})
    names = shape.names
    if names is None:
        found = {**_by_place(path, shape.separator), **named}
    else:
        found = _by_name(path, names, named)
        row = dict(zip(names, fields_at(path, 2, shape.separator), strict=False))
        rating, time = found.get("rating"), found.get("time")
        if isinstance(rating, str) and not is_number(row.get(rating, "")):
            problem = f"rating column {rating!a}: {row.get(rating, '')!a} is no number"
            raise DataError(path, problem, line=2)
        shown = row.get(str(time), "0")
        if "time" not in named and not (is_number(shown) or is_date(shown)):
            found.pop("time")  # a date in words
    return (
        RatingsFile(path=path.name, separator=shape.separator, header=names is not None, **found),
        names,
    )


def _by_name(path: Path, names: tuple[str, ...], named: Mapping[str, Column]) -> dict[str, Any]:
    """Columns by what a header calls them."""
    plain = [plain_name(name) for name in names]
    found = dict(named)
    for what, known in _NAMES.items():
        for name in known:
            if (
                what not in found
                and name in plain
                and names[plain.index(name)] not in found.values()
            ):
                found[what] = names[plain.index(name)]
    for what in ("user", "item") if len(names) == 2 else ():
        found.setdefault(what, names[0 if what == "user" else 1])
    said = ", ".join(ascii(name) for name in names)
    problems = misnamed(TextFile(path=path.name), named, names, width=len(names))
    if unknown := [what for what in ("user", "item") if what not in found]:
        keys = " ".join(f"--set data.{what}=NAME" for what in unknown)
        problems.append(
            f"none of its columns is known to be the {' or the '.join(unknown)}: {said}; say {keys}"
        )
    if problems:
        raise DataError(path, "; ".join(problems), line=1)
    return found


def _by_place(path: Path, separator: str) -> dict[str, Any]:
    """Columns of a file without a header: user, item, then a rating and a time if they read so."""
    fields = fields_at(path, 1, separator)
    found: dict[str, Column] = {"user": 1, "item": 2}
    for place, text in enumerate(fields[2:], start=3):
        moment = whole_seconds([text])
        if is_date(text) or (moment and _EPOCHS[0] <= moment[0] < _EPOCHS[1]):
            found.setdefault("time", place)
        elif is_number(text):
            found.setdefault("rating", place)
    return found


def _pairs(columns: Columns) -> int:
    """Number of different (user, item) pairs."""
    return len(np.unique(pair_keys(columns)))


def _scaled(
    file: RatingsFile, columns: Columns
) -> tuple[RatingsFile, dict[float, int] | None, RatingScale | None, str]:
    """Settings with the scale that fits, how often each rating occurs, the scale, and why none."""
    if file.rating is None:
        return file, None, None, "no column of ratings: every row is an interaction"
    exact = decimals(columns)
    values, counts = np.unique(ratings(columns, exact), return_counts=True)
    levels = dict(zip(values.tolist(), counts.tolist(), strict=True))
    try:
        scale = found_scale(columns.path, exact)
    except DataError as none:
        lowest = min((value for value in levels if value > 0), default=max(levels))
        return replace(file, positive_from=lowest), levels, None, none.problem
    return replace(file, scale=scale), levels, scale, ""


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
