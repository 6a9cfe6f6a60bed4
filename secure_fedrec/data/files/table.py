"""From files to a rating table: ids numbered, values on their scale, pairs rated once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data.files.attributes import read_attributes
from secure_fedrec.data.files.columns import Columns, read_text
from secure_fedrec.data.files.faults import shown
from secure_fedrec.data.files.ids import Numbering, number, trim, used
from secure_fedrec.data.files.parquet import read_parquet
from secure_fedrec.data.files.settings import Column, RatingsFile, TextFile
from secure_fedrec.data.files.shape import shape_of
from secure_fedrec.data.files.values import (
    IMPLICIT,
    decimals,
    found_scale,
    nearest,
    ratings,
    require_on,
)
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import DataError


class FileRatings(NamedTuple):
    """What files of ratings hold.

    Attributes:
        table: all ratings.
        held_out: bool[N], the ratings that come from the test file; None without one.
    """

    table: RatingTable
    held_out: BoolArray | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Rows of a file that count, of pairs that occur once; ascending.

    Args:
        columns: of the file.
        kept: int64[N], the row of each.
        values: float64[N].
        times: int64[N], or None.
    """

    columns: Columns
    kept: IntArray = field(repr=False)
    values: FloatArray = field(repr=False)
    times: IntArray | None = field(repr=False)

    def ids(self, what: str) -> list[str]:
        """The ids that occur."""
        rows = np.zeros(len(self.columns), dtype=np.bool_)
        rows[self.kept] = True
        return used(self.columns, what, rows)

    def fault(self, row: int, what: str, problem: str) -> DataError:
        """The refusal of one of these rows."""
        return self.columns.fault(int(self.kept[row]), what, problem)


def read_columns(path: Path, file: TextFile, asked: Mapping[str, Column]) -> Columns:
    """Read the columns of a file, text or Parquet.

    Args:
        path: where it is.
        file: its settings.
        asked: what is read, and from which column.

    Raises:
        ConfigError: there is no such column.
        DataError: it cannot be read, or is not sound; names line and column.
    """
    if file.parquet:
        return read_parquet(path, file, asked)
    return read_text(path, shape_of(path, file, asked))


def read_ratings(
    file: RatingsFile, folder: Path, *, name: str | None = None, test_path: str | None = None
) -> FileRatings:
    """Read a file of ratings, and one of ratings that are held out.

    Args:
        file: settings of both.
        folder: what their paths are relative to.
        name: of the table; by default that of the first file.
        test_path: file of the held-out ratings; its users and items are among those of the first.

    Returns:
        The table: clients are those with a row that counts, items likewise or those of the
        catalogue, both numbered in the order of their ids.

    Raises:
        ConfigError: a column is not there.
        DataError: a file cannot be read or is not sound, or the two do not fit together; names
            file, line and column.
    """
    parts = [_columns(file, folder / path) for path in (file.path, test_path) if path is not None]
    scale, values = _values(file, parts)
    rows = [
        _counted(file, scale, columns, value) for columns, value in zip(parts, values, strict=True)
    ]
    users = number(rows[0].ids("user"), file.ids)
    items = number(_catalogue(file, folder) or rows[0].ids("item"), file.ids)
    table, held = _table(name or Path(file.path).name, scale, rows, users, items)
    for what, ids in (("user", users), ("item", items)):
        if len(ids) < 2:
            raise DataError(folder / file.path, f"holds one {what}: a federation has two or more")
    if file.attributes is not None:
        attributes = read_attributes(file.attributes, folder, file.ids, users, read_columns)
        table = replace(table, demographics=attributes)
    return FileRatings(table, held)


def _columns(file: RatingsFile, path: Path) -> Columns:
    """The columns of one file, their ids trimmed and their times checked."""
    asked = {"user": file.user, "item": file.item, "rating": file.rating, "time": file.time}
    named = {what: column for what, column in asked.items() if column is not None}
    columns = read_columns(path, replace(file, path=path.name), named)
    for what in ("user", "item"):
        trim(columns, what, file.ids)
    if columns.time is not None and (columns.time < 0).any():
        row = int(np.argmax(columns.time < 0))
        raise columns.fault(row, "time", f"{columns.time[row]} is before 1970")
    return columns


def _values(file: RatingsFile, parts: list[Columns]) -> tuple[RatingScale | None, list[FloatArray]]:
    """Every row's value, and the scale that all are on; None where they are on none."""
    if file.rating is None:
        return IMPLICIT, [np.ones(len(columns)) for columns in parts]
    exact = [decimals(columns) for columns in parts]
    values = [ratings(columns, each) for columns, each in zip(parts, exact, strict=True)]
    if file.implicit:
        return None, values
    scale = file.scale if file.scale != "auto" else found_scale(parts[0].path, exact[0])
    for columns, each in zip(parts, exact, strict=True):
        require_on(scale, columns, each)
    return scale, values


def _counted(
    file: RatingsFile, scale: RatingScale | None, columns: Columns, values: FloatArray
) -> _Rows:
    """The rows that count: one per pair, and of implicit feedback those that are positive."""
    kept, times = np.arange(len(values)), columns.time
    repeats = _Repeats.of(columns)
    if repeats is not None:
        if file.duplicates == "refuse":
            row = int(repeats.later.min())
            problem = "this client has rated this item before (data.duplicates)"
            raise columns.fault(row, "item", problem)
        if file.duplicates == "mean":
            values, times = repeats.means(values, times)
            values = values if scale is None else nearest(scale, values)
        kept = np.sort(repeats.last if file.duplicates == "last" else repeats.first)
    if file.positive_from is not None:
        kept = kept[values[kept] >= file.positive_from]
        values = np.ones(len(values))
        if not len(kept):
            problem = f"no rating is {file.positive_from:g} (data.positive_from) or more"
            raise DataError(columns.path, problem)
    return _Rows(
        columns=columns,
        kept=kept,
        values=values[kept],
        times=None if times is None else times[kept],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Repeats:
    """Rows by pair, where a pair occurs twice.

    Args:
        order: int64[N], rows sorted by pair, those of a pair in the order of the file.
        starts: int64[G], where each pair begins in that order.
    """

    order: IntArray
    starts: IntArray

    @classmethod
    def of(cls, columns: Columns) -> "_Repeats | None":
        """Rows by pair; None where every pair occurs once."""
        users, items = (columns.texts[what] for what in ("user", "item"))
        keys = users.codes.astype(np.int64) * len(items.texts) + items.codes
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        return None if len(starts) == len(keys) else cls(order=order, starts=starts)

    @property
    def first(self) -> IntArray:
        """The first row of every pair."""
        return self.order[self.starts]

    @property
    def last(self) -> IntArray:
        """The last row of every pair."""
        return self.order[np.append(self.starts[1:], len(self.order)) - 1]

    @property
    def later(self) -> IntArray:
        """Every row whose pair has one before it."""
        return np.delete(self.order, self.starts)

    def means(
        self, values: FloatArray, times: IntArray | None
    ) -> tuple[FloatArray, IntArray | None]:
        """The mean of every pair, and its latest time, at its first row."""
        counts = np.diff(np.append(self.starts, len(self.order)))
        averaged = values.copy()
        averaged[self.first] = np.add.reduceat(values[self.order], self.starts) / counts
        if times is not None:
            latest = np.maximum.reduceat(times[self.order], self.starts)
            times = times.copy()
            times[self.first] = latest
        return averaged, times


def _catalogue(file: RatingsFile, folder: Path) -> list[str] | None:
    if file.catalogue is None:
        return None
    columns = read_columns(
        folder / file.catalogue.path, file.catalogue, {"item": file.catalogue.item}
    )
    trim(columns, "item", file.ids)
    columns.require_once("item")
    return columns.texts["item"].texts


def _table(
    name: str, scale: RatingScale | None, rows: list[_Rows], users: Numbering, items: Numbering
) -> tuple[RatingTable, BoolArray | None]:
    """One table of all rows, and which of them come from the second file."""
    numbered = [(_numbers(part, "user", users), _numbers(part, "item", items)) for part in rows]
    clients = np.concatenate([part[0] for part in numbered])
    things = np.concatenate([part[1] for part in numbered])
    del numbered
    order = np.argsort(clients * len(items) + things, kind="stable")
    clients, things = clients[order].astype(np.int32), things[order].astype(np.int32)
    held = None
    if len(rows) > 1:
        held = order >= len(rows[0].kept)
        twice = (np.diff(clients) == 0) & (np.diff(things) == 0)
        if twice.any():
            row = int(order[1:][twice].min()) - len(rows[0].kept)
            problem = f"this rating is in {rows[0].columns.path.name} as well"
            raise rows[1].fault(row, "item", problem)
    times = None
    if rows[0].times is not None:
        times = np.concatenate([part.times for part in rows if part.times is not None])[order]
    table = RatingTable(
        name=name,
        n_clients=len(users),
        n_items=len(items),
        clients=clients,
        items=things,
        ratings=np.concatenate([part.values for part in rows])[order],
        scale=IMPLICIT if scale is None else scale,
        client_labels=users.labels,
        item_labels=items.labels,
        timestamps=times,
    )
    return table, held


def _numbers(rows: _Rows, what: str, ids: Numbering) -> IntArray:
    """The numbers of the rows' clients or items; refuses one that is not known."""
    numbers = ids.of(rows.columns, what)[rows.kept]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        row, coded = int(unknown[0]), rows.columns.texts[what]
        text = shown(coded.texts[coded.codes[rows.kept[row]]])
        known = "training ratings" + (" or the catalogue" if what == "item" else "")
        raise rows.fault(row, what, f"{text} is not among the {what}s of the {known}")
    return numbers
