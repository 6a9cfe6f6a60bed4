"""Makes a rating table from files: ids are numbered, values on their scale, pairs rated once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.data.files.attributes import read_attributes
from secure_fedrec.data.files.columns import Columns, read_text
from secure_fedrec.data.files.faults import shown
from secure_fedrec.data.files.ids import Numbering, number, trim
from secure_fedrec.data.files.jsonlines import is_json_lines, read_json_lines
from secure_fedrec.data.files.lists import read_lists
from secure_fedrec.data.files.parquet import read_parquet
from secure_fedrec.data.files.settings import Column, RatingsFile, TextFile
from secure_fedrec.data.files.shape import shape_of
from secure_fedrec.data.files.times import mixed_units
from secure_fedrec.data.files.values import (
    IMPLICIT,
    found_scale,
    nearest,
    numbers,
    ratings,
    require_on,
)
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import DataError


class FileRatings(NamedTuple):
    """The content of files of ratings.

    Attributes:
        table: all ratings.
        held_out: bool[N], the ratings that come from the test file; None without one.
        left_out: rows that are left out because something is missing in them.
    """

    table: RatingTable
    held_out: BoolArray | None
    left_out: int


Number = TypeVar("Number", bound=np.number)
_ALL = slice(None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Accepted rows of a file; each pair occurs once; ascending.

    Args:
        columns: columns of the file.
        kept: int64[N], the row of each; or all.
        scale: scale of the values.
        values: float64[N].
        times: int64[N], or None.
    """

    columns: Columns
    kept: IntArray | slice = field(repr=False)
    scale: RatingScale
    values: FloatArray = field(repr=False)
    times: IntArray | None = field(repr=False)

    def ids(self, what: str) -> list[str]:
        """The ids that occur, in the order of the file."""
        coded = self.columns.texts[what]
        counts = np.bincount(coded.codes[self.kept], minlength=len(coded.texts))
        return [coded.texts[code] for code in np.flatnonzero(counts)]

    def numbers(self, what: str, ids: Numbering) -> IndexArray:
        """The numbers of the rows' clients or items: int32[N].

        Raises:
            DataError: an id is unknown.
        """
        numbers = ids.of(self.columns, what)[self.kept]
        if numbers.min(initial=0) < 0:
            row, coded = int(np.argmax(numbers < 0)), self.columns.texts[what]
            text = shown(coded.texts[coded.codes[self.kept][row]])
            known = "training ratings" + (" or the catalogue" if what == "item" else "")
            raise self.fault(row, what, f"{text} is not among the {what}s of the {known}")
        return numbers

    def fault(self, row: int, what: str, problem: str) -> DataError:
        """The refusal of one of these rows."""
        row = row if isinstance(self.kept, slice) else int(self.kept[row])
        return self.columns.fault(row, what, problem)


def read_columns(path: Path, file: TextFile, asked: Mapping[str, Column]) -> Columns:
    """Read the columns of a file, without the rows that its settings leave out.

    Args:
        path: where it is.
        file: its settings.
        asked: what is read, and from which column.

    Raises:
        ConfigError: there is no such column.
        DataError: it cannot be read, or is not sound; names line and column.
    """
    if isinstance(file, RatingsFile) and file.layout == "lists":
        columns = read_lists(path, file)
    elif file.parquet:
        columns = read_parquet(path, file, asked)
    elif is_json_lines(path, file):
        columns = read_json_lines(path, file, asked)
    else:
        columns = read_text(path, shape_of(path, file, asked))
    return columns.without_gaps()


def read_ratings(
    file: RatingsFile, folder: Path, *, name: str | None = None, test_path: str | None = None
) -> FileRatings:
    """Read a file of ratings, and one of ratings that are held out.

    Args:
        file: settings of both.
        folder: what their paths are relative to.
        name: name of the table; by default that of the first file.
        test_path: file of the held-out ratings; its users and items are among those of the first.

    Returns:
        The table: its clients are those with a used row, its items likewise or those of the
        catalogue, both numbered in the order of their ids.

    Raises:
        ConfigError: a column is not there.
        DataError: a file cannot be read or is not sound, or the two do not fit together; names
            file, line and column.
    """
    rows = _rows(file, [folder / path for path in (file.path, test_path) if path is not None])
    left_out = sum(part.columns.left_out for part in rows)
    users = number(rows[0].ids("user"), file.ids)
    items = number(_catalogue(file, folder) or rows[0].ids("item"), file.ids)
    table, held = _table(name or Path(file.path).name, rows, users, items)
    for what, ids in (("user", users), ("item", items)):
        if len(ids) < 2:
            raise DataError(folder / file.path, f"holds one {what}: a federation has two or more")
    if file.attributes is not None:
        attributes = read_attributes(file.attributes, folder, file.ids, users, read_columns)
        table = replace(table, demographics=attributes)
    return FileRatings(table, held, left_out)


def read_rows(file: RatingsFile, path: Path) -> Columns:
    """The columns of one file of ratings, ids trimmed and times checked.

    Raises:
        ConfigError: there is no such column.
        DataError: it cannot be read, or is not sound; names line and column.
    """
    asked = {"user": file.user, "item": file.item, "rating": file.rating, "time": file.time}
    named = {what: column for what, column in asked.items() if column is not None}
    columns = read_columns(path, replace(file, path=path.name), named)
    for what in ("user", "item"):
        columns = trim(columns, what, file.ids)
    if columns.time is not None and (columns.time < 0).any():
        row = int(np.argmax(columns.time < 0))
        raise columns.fault(row, "time", f"{columns.time[row]} is before 1970")
    if columns.time is not None and (mixed := mixed_units(columns.time)) is not None:
        row, problem = mixed
        problem += f", or leave times out, {file.advice('time', 'null')}"
        raise columns.fault(row, "time", problem)
    return columns


def _rows(file: RatingsFile, paths: list[Path]) -> list[_Rows]:
    """The used rows of the training file and, if there is one, of the test file."""
    parts = [read_rows(file, path) for path in paths]
    if file.rating is None:
        return [_counted(file, IMPLICIT, each, np.ones(len(each))) for each in parts]
    exact = [numbers(columns) for columns in parts]
    scale = IMPLICIT
    if not file.implicit:
        scale = file.scale if file.scale != "auto" else found_scale(parts[0].path, exact[0])
        for columns, each in zip(parts, exact, strict=True):
            require_on(scale, columns, each)
    return [
        _counted(file, scale, columns, ratings(columns, each))
        for columns, each in zip(parts, exact, strict=True)
    ]


def _counted(file: RatingsFile, scale: RatingScale, columns: Columns, values: FloatArray) -> _Rows:
    """The used rows: one per pair, and for implicit feedback the positive ones."""
    kept: IntArray | slice = _ALL
    times, repeats = columns.time, _Repeats.of(columns)
    if repeats is not None:
        if file.duplicates == "refuse":
            row = int(repeats.later.min())
            problem = "this client has rated this item before (data.duplicates)"
            raise columns.fault(row, "item", problem)
        if file.duplicates == "mean":
            values, times = repeats.means(values, times)
            values = values if file.implicit else nearest(scale, values)
        kept = np.sort(repeats.last if file.duplicates == "last" else repeats.first)
    if file.positive_from is not None:
        kept = np.arange(len(values))[kept]
        kept = kept[values[kept] >= file.positive_from]
        values = np.ones(len(values))
        if not len(kept):
            problem = f"no rating is {file.positive_from:g} (data.positive_from) or more"
            raise DataError(columns.path, problem)
    return _Rows(
        columns=replace(columns, time=None),
        kept=kept,
        scale=scale,
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
        keys = pair_keys(columns)
        ordered = np.sort(keys)
        if (ordered[1:] != ordered[:-1]).all():
            return None
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        return cls(order=order, starts=starts)

    @property
    def first(self) -> IntArray:
        """The first row of every pair."""
        return np.asarray(self.order[self.starts])

    @property
    def last(self) -> IntArray:
        """The last row of every pair."""
        return np.asarray(self.order[np.append(self.starts[1:], len(self.order)) - 1])

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
    columns = trim(columns, "item", file.ids)
    columns.require_once("item")
    return columns.texts["item"].texts


def pair_keys(columns: Columns) -> IntArray:
    """int64[N], equal where user and item are."""
    keys = columns.texts["user"].codes.astype(np.int64)
    keys *= len(columns.texts["item"].texts)
    keys += columns.texts["item"].codes
    return keys


def _table(
    name: str, rows: list[_Rows], users: Numbering, items: Numbering
) -> tuple[RatingTable, BoolArray | None]:
    """One table of all rows, and which of them come from the second file; clears the list."""
    scale, first = rows[0].scale, len(rows[0].values)
    clients = _joined([part.numbers("user", users) for part in rows])
    things = _joined([part.numbers("item", items) for part in rows])
    order = np.argsort(clients.astype(np.int64) * len(items) + things, kind="stable")
    held = None
    if len(rows) > 1:
        held = order >= first
        twice = (np.diff(clients[order]) == 0) & (np.diff(things[order]) == 0)
        if twice.any():
            problem = f"this rating is in {rows[0].columns.path.name} as well"
            raise rows[1].fault(int(order[1:][twice].min()) - first, "item", problem)
    values = _joined([part.values for part in rows])[order]
    timed = [part.times for part in rows if part.times is not None]
    times = _joined(timed)[order] if timed else None
    # There may be millions of rows: what is not needed is freed, and the table does not copy
    # columns.
    rows.clear()
    timed.clear()
    clients, things, places = clients[order], things[order], order.astype(np.int32)
    for column in (clients, things, values, times, places):
        if column is not None:
            column.setflags(write=False)
    del order
    table = RatingTable(
        name=name,
        n_clients=len(users),
        n_items=len(items),
        clients=clients,
        items=things,
        ratings=values,
        scale=scale,
        client_labels=users.labels,
        item_labels=items.labels,
        timestamps=times,
        places=places,
    )
    return table, held


def _joined(parts: list[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
