"""What is in a file of ratings, before anybody has said how to read it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.faults import Shape, shown
from secure_fedrec.data.files.ids import trim
from secure_fedrec.data.files.parquet import column_names
from secure_fedrec.data.files.settings import Column, RatingsFile, TextFile
from secure_fedrec.data.files.shape import fields_at, is_number, misnamed, plain_name, shape_of
from secure_fedrec.data.files.source import require_file
from secure_fedrec.data.files.table import pair_keys, read_columns, read_ratings
from secure_fedrec.data.files.times import is_date, whole_seconds
from secure_fedrec.data.files.values import comma_hint, decimals, found_scale, ratings
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

DECIDED: Final = ("scale", "positive_from")
"""Settings that say what the ratings are, one or the other."""

_COUNTS: Final = frozenset(("weight", "count", "plays", "playcount", "clicks", "views"))
"""Names of columns that count, whatever is in them."""

_CELLS: Final = 6
"""Fewest columns of numbers, beside the first, that read like items."""

_SAID: Final = 20
"""Most columns of a file that a message names."""

_STRAY: Final = 0.01
"""Largest share of the rows that may be astray for the others to make a scale."""


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
        remark: why not, and what is made of them.
        doubt: the refusal to decide what they are; None where that is clear.
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
    doubt: DataError | None
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


def look_at(
    path: Path,
    named: Mapping[str, Column] = MappingProxyType({}),
    decided: Mapping[str, Any] = MappingProxyType({}),
) -> Seen:
    """Look at a file: separator, header, columns, ids, scale, repeated pairs.

    Args:
        path: the file.
        named: columns that are known, by ``COLUMNS``.
        decided: what the ratings are, where that is known, by ``DECIDED``.

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
    repeated = len(columns) - len(np.unique(pair_keys(columns)))
    if repeated:
        file = replace(file, duplicates="last")
    file, levels, remark, doubt = _scaled(file, columns, decided)
    table = read_ratings(file, path.parent).table
    return Seen(
        file=file,
        names=names,
        width=len(names or fields_at(path, 1, file.separator)),
        rows=len(columns),
        repeated=repeated,
        levels=levels,
        scale=None if isinstance(file.scale, str) else file.scale,
        remark=remark,
        doubt=doubt,
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
    if not {"user", "item"} <= named.keys():
        _require_rows(path, shape)
    if names is None:
        found = {**_by_place(path, shape.separator), **named}
    else:
        found = _by_name(path, names, named)
        row = dict(zip(names, fields_at(path, 2, shape.separator), strict=False))
        rating, time = found.get("rating"), found.get("time")
        if isinstance(rating, str) and not is_number(given := row.get(rating, "")):
            problem = f"rating column {rating!a}: {given!a} is no number" + comma_hint(given)
            raise DataError(path, problem, line=2)
        shown = row.get(str(time), "0")
        if "time" not in named and not (is_number(shown) or is_date(shown)):
            found.pop("time")  # a date in words
    return (
        RatingsFile(path=path.name, separator=shape.separator, header=names is not None, **found),
        names,
    )


def _require_rows(path: Path, shape: Shape) -> None:
    """Refuse a table of users by items, whose cells are the ratings.

    Raises:
        DataError: it reads like one.
    """
    known = {name for what in ("item", "rating", "time") for name in _NAMES[what]}
    names = shape.names or ()
    cells = fields_at(path, shape.first_line, shape.separator)[1:]
    written = [cell for cell in cells if cell.strip()]
    small = all(is_number(cell) and abs(float(cell)) < _EPOCHS[0] for cell in written)
    if len(cells) >= _CELLS and small and not any(plain_name(name) in known for name in names):
        problem = (
            f"has {len(cells) + 1} columns of numbers: this looks like a table of users by items. "
            "Write a row per rating instead, user,item,rating; or, if rows are, say which column "
            "is what: --set data.user=COLUMN --set data.item=COLUMN --set data.rating=COLUMN"
        )
        raise DataError(path, problem, line=shape.first_line)


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
    said = ", ".join(map(shown, names[:_SAID])) + (", ..." if len(names) > _SAID else "")
    problems = misnamed(TextFile(path=path.name), named, names, width=len(names))
    if unknown := [what for what in ("user", "item") if what not in found]:
        keys = " ".join(f"--set data.{what}=NAME" for what in unknown)
        problem = (
            f"none of its columns is known to be the {' or the '.join(unknown)}: {said}; say {keys}"
        )
        beside = [f"data.{what}" for what in ("rating", "time") if what not in found]
        if beside:
            problem += f", and {' and '.join(beside)} likewise if there are such columns"
        problems.append(problem)
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
        elif hint := comma_hint(text):
            raise DataError(path, f"column {place}: {shown(text)} is no number{hint}", line=1)
    return found


def _scaled(
    file: RatingsFile, columns: Columns, decided: Mapping[str, Any]
) -> tuple[RatingsFile, dict[float, int] | None, str, DataError | None]:
    """Settings that say what the ratings are, how often each occurs, why they are on no scale.

    Last comes the doubt, where half of the levels never occur and the column is no count by name.
    """
    if file.rating is None:  # what is decided of ratings is refused then
        remark = "no column of ratings: every row is an interaction"
        return replace(file, **decided), None, remark, None
    exact = decimals(columns)
    values, counts = np.unique(ratings(columns, exact), return_counts=True)
    levels = dict(zip(values.tolist(), counts.tolist(), strict=True))
    if decided:
        told = replace(file, **decided)
        return told, levels, f"none, as told: rows from {told.positive_from or 0:g} on count", None
    try:
        return replace(file, scale=found_scale(columns.path, exact)), levels, "", None
    except DataError as none:
        refused = none
    lowest = min((value for value in levels if value > 0), default=max(levels))
    implicit = replace(file, positive_from=lowest)
    taken = f"rows from {lowest:g} on count (data.positive_from = {lowest:g})"
    if plain_name(str(file.rating)) in _COUNTS:
        why = f"{refused.problem.partition(';')[0]}; column {file.rating!a} counts by its name"
        return implicit, levels, f"none: {why}: implicit feedback, {taken}", None
    doubt = _doubt(columns, exact, levels, refused)
    return implicit, levels, f"undecided: {doubt}; the figures here are of {taken}", doubt


def _doubt(
    columns: Columns, exact: Sequence[Decimal], levels: Mapping[float, int], refused: DataError
) -> DataError:
    """Why a file without a scale is neither ratings nor counts for sure, and what to do."""
    say = (
        "ratings, say --set 'data.scale={ low = 1, high = 5, step = 1 }' with its numbers; "
        "counts or clicks, --set data.positive_from=1 with the least that counts"
    )
    ordered = sorted(exact)
    few = _STRAY * sum(levels.values())
    for strays in (ordered[-1:], ordered[:1], ordered[-2:], ordered[:1] + ordered[-1:]):
        if sum(levels[float(value)] for value in strays) > few:
            continue
        with suppress(DataError):
            scale = found_scale(columns.path, [each for each in exact if each not in strays])
            without = "it" if len(strays) == 1 else "two values"
            problem = (
                f"is astray: without {without}, the scale is {scale}. Mend or "
                f"take out the row; or if it is meant: for {say}"
            )
            return columns.refuse("rating", exact.index(strays[-1]), problem)
    problem = refused.problem.partition(";")[0].partition(": state")[0]
    return DataError(columns.path, f"{problem}. If these are {say}")


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
