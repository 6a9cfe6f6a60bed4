"""The rating table: who rated what and how, in immutable columns, and the scale of the ratings."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray, unmasked
from secure_fedrec.data.refusals import refused
from secure_fedrec.errors import ConfigError, DataError, MisfitError
from secure_fedrec.settings import Settings

StrArray = npt.NDArray[np.str_]
"""One categorical value per client."""

Labels = IntArray | StrArray
"""Ids as a source writes them, numbers or text. They are private to a table: they only determine
the numbers of its clients and items and its fingerprint."""

# A level such as 0.1 * 3 is off its decimal value by rounding only; real scales are far coarser.
_LEVEL_TOLERANCE = 1e-9
MOST_STATED = 100_000
"""Largest number of levels of a scale, and more."""

_CHECKED_AT_ONCE = 2**20


class RatingScale(Settings, section="data.scale", kw_only=False):
    """The levels a rating may take: ``low``, ``low + step``, ..., ``high``.

    Args:
        low: smallest level, in stars.
        high: largest level, in stars; above ``low``.
        step: distance of neighbouring levels, in stars; divides ``high - low``.

    Raises:
        ConfigError: the three numbers span no grid, or one of more than 100,000 levels.
    """

    low: float
    high: float
    step: float

    def _agree(self) -> None:
        if self.step <= 0 or self.high <= self.low:
            raise ConfigError("data.scale", str(self), "needs low < high and step > 0")
        steps = (self.high - self.low) / self.step
        if not steps < MOST_STATED:
            raise ConfigError("data.scale", str(self), f"has more than {MOST_STATED:,} levels")
        if abs(steps - round(steps)) > _LEVEL_TOLERANCE:
            raise ConfigError("data.scale", str(self), "high - low must be a multiple of step")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} in steps of {self.step:g}"

    @property
    def levels(self) -> FloatArray:
        """All levels, ascending: float64[L]."""
        count = round((self.high - self.low) / self.step) + 1
        return self.low + self.step * np.arange(count, dtype=np.float64)

    @classmethod
    def of_levels(cls, levels: FloatArray) -> "RatingScale":
        """The scale of some levels, float64[L], ascending and evenly spaced."""
        low, high = float(levels[0]), float(levels[-1])
        return cls(low, high, (high - low) / (len(levels) - 1))

    @property
    def normalised(self) -> "RatingScale":
        """Equally many levels from -1 to 1; affine images of a scale give the same bits."""
        steps = round((self.high - self.low) / self.step)
        return RatingScale(-1.0, 1.0, 2.0 / steps)

    def moved(self, values: FloatArray, to: "RatingScale") -> FloatArray:
        """Values mapped from this scale to another one, levels or not.

        Args:
            values: float64[N].
            to: the other scale.

        Returns: float64[N]; unchanged values if the scales are equal.
        """
        if to == self:
            return values
        share = (values - self.low) / (self.high - self.low)
        return np.asarray(to.low + share * (to.high - to.low))

    def contains(self, values: FloatArray) -> BoolArray:
        """Tells which values are levels.

        Args:
            values: float64[N]; NaN and infinities are allowed and are never levels.

        Returns:
            bool[N].
        """
        # Distance to the nearest level, in steps: infinite or NaN where the value is.
        with np.errstate(over="ignore"):
            steps = (values - self.low) / self.step
        nearest = np.clip(np.rint(steps), 0, len(self.levels) - 1)
        found: BoolArray = np.abs(steps - nearest) <= _LEVEL_TOLERANCE
        return found

    def check(
        self, values: FloatArray, source: str | Path, *, first_line: int | None = None
    ) -> None:
        """Refuses values that are not levels.

        Args:
            values: float64[N].
            source: file or table the values came from, for the message.
            first_line: line of ``values[0]`` in that file; row i is on line ``first_line + i``.

        Raises:
            DataError: some value is off the scale or NaN; names the first one.
        """
        for start in range(0, len(values), _CHECKED_AT_ONCE):
            bad = np.flatnonzero(~self.contains(values[start : start + _CHECKED_AT_ONCE]))
            if len(bad):
                row = start + int(bad[0])
                line = None if first_line is None else first_line + row
                value = float(values[row])
                raise DataError(source, f"rating {value:g} is off its scale ({self})", line=line)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RatingTable:
    """Ratings of ``n_clients`` clients for ``n_items`` items, sorted by (client, item).

    Every column is copied and made read-only, unless it already is, so a table can be shared
    without being changed.
    Tables compare by identity; compare contents through :meth:`fingerprint`.

    Args:
        name: what messages and reports call the table.
        n_clients: clients 0 .. n_clients - 1, with or without ratings.
        n_items: items 0 .. n_items - 1, rated or not.
        clients: int32[N], client of each rating.
        items: int32[N], item of each rating; ascending per client, no pair twice.
        ratings: float64[N], in stars, on ``scale``.
        scale: the levels of a rating.
        client_labels: int64[n_clients] or str[n_clients], the ids the source used; see ``Labels``.
        item_labels: int64[n_items] or str[n_items], likewise.
        demographics: attribute name to str[n_clients], one category per client.
        timestamps: int64[N], seconds since 1970-01-01 UTC, or None if unknown.
        places: int32[N], where a rating stands among the rows of its source, or None if there is
            no such order. It does not belong to the contents of a table.

    Raises:
        DataError: a column has the wrong length, type, range or order, or is masked, or a pair
            occurs twice.
    """

    name: str
    n_clients: int
    n_items: int
    clients: IndexArray = field(repr=False)
    items: IndexArray = field(repr=False)
    ratings: FloatArray = field(repr=False)
    scale: RatingScale
    client_labels: Labels = field(repr=False)
    item_labels: Labels = field(repr=False)
    demographics: Mapping[str, StrArray] = field(default_factory=dict, repr=False)
    timestamps: IntArray | None = field(default=None, repr=False)
    places: IndexArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._freeze_columns()
        _check_range(self.name, "client", self.clients, self.n_clients)
        _check_range(self.name, "item", self.items, self.n_items)
        self.scale.check(self.ratings, self.name)
        steps = np.diff(_pair_keys(self.clients, self.items, self.n_items))
        if np.any(steps < 0):
            raise DataError(self.name, "rows are not sorted by (client, item)")
        if np.any(steps == 0):
            raise DataError(self.name, "a (client, item) pair occurs twice")

    @classmethod
    def from_columns(
        cls,
        *,
        name: str,
        n_clients: int,
        n_items: int,
        clients: npt.NDArray[Any],
        items: npt.NDArray[Any],
        ratings: FloatArray,
        scale: RatingScale,
        client_labels: Labels,
        item_labels: Labels,
        demographics: Mapping[str, StrArray] | None = None,
        timestamps: IntArray | None = None,
        source: str | Path | None = None,
        first_line: int | None = None,
    ) -> "RatingTable":
        """Builds a table from rows in any order.

        The fields are those of the class. ``source`` is the file the rows came from, for messages
        (by default the table's name), and row i is on its line ``first_line + i``.

        Returns:
            The table, rows sorted by (client, item).

        Raises:
            DataError: as the class; a repeated pair is named with its line.
        """
        source = name if source is None else source
        order = _pair_order(source, clients, items, (n_clients, n_items), first_line)
        columns = (ratings,) if timestamps is None else (ratings, timestamps)
        if any(len(column) != len(order) for column in columns):
            raise DataError(source, "the columns differ in length")
        return cls(
            name=name,
            n_clients=n_clients,
            n_items=n_items,
            clients=clients[order],
            items=items[order],
            ratings=ratings[order],
            scale=scale,
            client_labels=client_labels,
            item_labels=item_labels,
            demographics={} if demographics is None else demographics,
            timestamps=None if timestamps is None else timestamps[order],
            places=order.astype(np.int32),
        )

    def __len__(self) -> int:
        return len(self.ratings)

    def counts(self) -> IntArray:
        """Ratings per client: int64[n_clients]."""
        return np.bincount(self.clients, minlength=self.n_clients).astype(np.int64)

    def item_popularity(self) -> IntArray:
        """Ratings per item: int64[n_items]."""
        return np.bincount(self.items, minlength=self.n_items).astype(np.int64)

    def indptr(self) -> IntArray:
        """Row bounds: client u holds rows ``indptr[u]:indptr[u + 1]``; int64[n_clients + 1]."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.counts())])

    def subset(self, mask: BoolArray) -> "RatingTable":
        """Keeps some ratings, and all clients, items and labels.

        Args:
            mask: bool[N], True where a rating stays.

        Returns:
            The smaller table; client and item numbers mean what they meant before.

        Raises:
            DataError: the mask is not bool[N].
        """
        if mask.dtype != np.bool_ or mask.shape != self.ratings.shape:
            raise DataError(self.name, f"a mask of this table is bool[{len(self)}]")
        return replace(
            self,
            clients=self.clients[mask],
            items=self.items[mask],
            ratings=self.ratings[mask],
            timestamps=None if self.timestamps is None else self.timestamps[mask],
            places=None if self.places is None else self.places[mask],
        )

    def on(self, levels: FloatArray) -> "RatingTable":
        """The same ratings on other levels, one for each of the scale's.

        Args:
            levels: float64[L], ascending, evenly spaced. Every rating is one of them, to the bit.

        Raises:
            DataError: the numbers of levels differ.
        """
        if len(levels) != len(self.scale.levels):
            raise DataError(self.name, f"{len(levels)} levels do not stand for {self.scale}")
        places = np.rint((self.ratings - self.scale.low) / self.scale.step).astype(np.int64)
        return replace(self, ratings=levels[places], scale=RatingScale.of_levels(levels))

    def fingerprint(self) -> str:
        """SHA-256 of the table's contents, equal on every platform; the name does not enter.

        Returns:
            64 hexadecimal digits.
        """
        digest = hashlib.sha256(b"secure-fedrec rating table 1\n")
        digest.update(f"{self.n_clients} {self.n_items} {len(self)} {self.scale}\n".encode())
        columns = (self.clients, self.items, self.ratings, self.client_labels, self.item_labels)
        for column in columns:
            words = column.dtype.kind == "U"
            digest.update(b"text\n" + _texts(column) if words else _little_endian(column))
        digest.update(b"no time\n" if self.timestamps is None else b"time\n")
        if self.timestamps is not None:
            digest.update(_little_endian(self.timestamps))
        for attribute in sorted(self.demographics):
            digest.update(_texts(np.array([attribute])) + _texts(self.demographics[attribute]))
        return digest.hexdigest()

    def _freeze_columns(self) -> None:
        """Replaces every column by a checked, read-only copy of its declared type."""
        for size in ("n_clients", "n_items"):
            if not 1 <= getattr(self, size) < 2**31:
                raise DataError(self.name, f"{size} = {getattr(self, size)}: must be 1 to 2^31 - 1")
        rows = len(self.ratings)
        columns: dict[str, tuple[type[np.generic], int]] = {
            "clients": (np.int32, rows),
            "items": (np.int32, rows),
            "ratings": (np.float64, rows),
            "timestamps": (np.int64, rows),
            "places": (np.int32, rows),
            "client_labels": (_label_type(self.client_labels), self.n_clients),
            "item_labels": (_label_type(self.item_labels), self.n_items),
        }
        for column, (dtype, length) in columns.items():
            if (values := getattr(self, column)) is not None:
                frozen = _frozen(f"{self.name}.{column}", values, dtype, length)
                object.__setattr__(self, column, frozen)
        demographics = {
            attribute: _frozen(f"{self.name}.{attribute}", values, np.str_, self.n_clients)
            for attribute, values in self.demographics.items()
        }
        object.__setattr__(self, "demographics", MappingProxyType(demographics))


def _frozen(
    where: str, values: npt.NDArray[Any], dtype: type[np.generic], length: int
) -> npt.NDArray[Any]:
    """Copies a column into its declared type and makes it read-only."""
    target = np.dtype(dtype)
    with refused(where, "{}", MisfitError):
        values = unmasked(values, "the column")
    if values.dtype.kind not in {"i": "iu", "f": "iuf", "U": "U"}[target.kind]:
        raise DataError(where, f"{values.dtype} cannot become {target.name} without loss")
    if values.shape != (length,):
        raise DataError(where, f"has shape {values.shape}, expected ({length},)")
    flags = values.flags
    if values.dtype == target and flags.owndata and flags.c_contiguous and not flags.writeable:
        return values  # nobody can change it: millions of rows need no copy
    frozen = np.array(values, dtype=target, order="C")
    # A narrower integer type wraps silently; wrapped numbers no longer equal what was given.
    if target.kind == "i" and not np.array_equal(frozen, values):
        raise DataError(where, f"holds a number outside {target.name}")
    frozen.setflags(write=False)
    return frozen


def _check_range(source: str | Path, what: str, numbers: npt.NDArray[Any], size: int) -> None:
    """Refuses numbers outside 0 .. size - 1."""
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= size):
        wrong = numbers[(numbers < 0) | (numbers >= size)][0]
        raise DataError(source, f"{what} {wrong} is outside 0 .. {size - 1}")


def _pair_order(
    source: str | Path,
    clients: npt.NDArray[Any],
    items: npt.NDArray[Any],
    shape: tuple[int, int],
    first_line: int | None,
) -> IntArray:
    """The order that sorts rows by (client, item): int64[N]; refuses a repeated pair."""
    if len(clients) != len(items):
        raise DataError(source, "the columns differ in length")
    # Out-of-range numbers would make different pairs share a key.
    _check_range(source, "client", clients, shape[0])
    _check_range(source, "item", items, shape[1])
    keys = _pair_keys(clients, items, shape[1])
    order = np.argsort(keys, kind="stable")
    repeats = order[1:][np.diff(keys[order]) == 0]
    if len(repeats):
        line = None if first_line is None else first_line + int(repeats.min())
        raise DataError(source, "this client has already rated this item", line=line)
    return order


def _pair_keys(clients: npt.NDArray[Any], items: npt.NDArray[Any], width: int) -> IntArray:
    """One int64 per (client, item) pair that sorts like the pair."""
    return clients.astype(np.int64) * width + items.astype(np.int64)


def _label_type(labels: Labels) -> type[np.generic]:
    return np.str_ if labels.dtype.kind == "U" else np.int64


def _texts(column: npt.NDArray[Any]) -> bytes:
    """Texts with their lengths before them: no two lists of texts share an encoding."""
    encoded = [text.encode() for text in column.tolist()]
    return b"".join(len(each).to_bytes(4, "little") + each for each in encoded)


def _little_endian(column: npt.NDArray[Any]) -> bytes:
    """The column's bytes as a little-endian machine holds them."""
    return column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
