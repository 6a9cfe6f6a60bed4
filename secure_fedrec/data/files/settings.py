"""How a file of ratings is to be read: settings, with the meaning of every key."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from secure_fedrec.data.files.decimals import number_of
from secure_fedrec.data.files.source import UTF_8
from secure_fedrec.data.files.times import Clock
from secure_fedrec.data.ratings import RatingScale
from secure_fedrec.settings import Filled, Refused, Settings

PARQUET: Final = (".parquet", ".pq")
"""Names that end so are read as Parquet, all others as text."""

BLANKS: Final = "blanks"
"""A separator: one or more blanks or tabs."""

Column: TypeAlias = int | str
"""A column by its name in the header, or by its number from 1."""


@dataclass(frozen=True, slots=True)
class AColumn:
    """A name that is not blank, or a number from 1.

    Attributes:
        keywords: of JSON Schema, of numbers and of texts.
    """

    keywords: ClassVar = (("minimum", 1), ("pattern", r"\S"))

    def check(self, value: Any) -> None:
        """Refuse what names no column."""
        if value in (0, "") or (isinstance(value, int) and value < 0) or not str(value).strip():
            raise Refused(value, "must be a name of the header, or a number from 1")


@dataclass(frozen=True, slots=True)
class ASeparator:
    """One to four signs that cannot be part of a plain number."""

    def check(self, value: Any) -> None:
        """Refuse text that cannot separate two columns."""
        plain = value.isascii() and not any(
            each.isalnum() or each in "\"'.+-\r\n\0\x1f" for each in value
        )
        if value not in ("auto", BLANKS) and not (1 <= len(value) <= 4 and plain):
            problem = (
                "must be 'auto', 'blanks', or one to four signs other than letters, digits and "
                "quotes"
            )
            raise Refused(value, problem)


@dataclass(frozen=True, slots=True)
class AnEncoding:
    """The name of an encoding of text that Python knows."""

    def check(self, value: Any) -> None:
        """Refuse settings with which a plain table cannot be written."""
        plain = "user,1\n"
        with suppress(LookupError, ValueError):  # among them UnicodeError
            if plain.encode(value).decode(value) == plain:
                return
        raise Refused(value, "is not an encoding of text, such as utf-8, latin-1, cp1252, gb18030")


class TextFile(Settings, section="data"):
    r"""A file with a row per line.

    Args:
        path: the file, relative to the configuration's folder, or to ``--data-dir`` where that is
            given. Files packed by gzip, xz or bzip2 are unpacked; a name in ``.parquet`` or ``.pq``
            is read as Parquet (extra ``file``), a first line that is a JSON object as JSON Lines,
            all else as columns of text.
        separator: text between two columns, one to four characters (``","``, ``"\t"``, ``"::"``,
            ``";"``, ``"|"``), or ``"blanks"``: one or more blanks or tabs, none counting at the
            ends of a line. ``"auto"`` looks at the first lines.
        header: whether the first line names the columns. ``"auto"`` takes it for one if columns are
            asked for by name, or if it has text where the next line has a number.
        encoding: of the text, by Python's name for it: ``"utf-8"`` (a byte-order mark is skipped,
            one of UTF-16 obeyed), ``"latin-1"``, ``"cp1252"``, ``"gb18030"``.
        missing: the treatment of a row with an empty cell in a column that is read: ``"refuse"``
            the file, or ``"drop"`` the row.

    Raises:
        ConfigError: a field is out of range.
    """

    path: Annotated[str, Filled()]
    separator: Annotated[str, ASeparator()] = "auto"
    header: Literal["auto"] | bool = "auto"
    encoding: Annotated[str, AnEncoding()] = UTF_8
    missing: Literal["refuse", "drop"] = "refuse"

    @property
    def parquet(self) -> bool:
        """Whether the file is read as Parquet."""
        return self.path.lower().endswith(PARQUET)

    def advice(self, name: str, value: object) -> str:
        """The command-line option for a key of this table."""
        return f"--set {shlex.quote(f'{self.key(name)}={value}')}"

    @property
    def drops(self) -> bool:
        """Whether a row with an empty place is left out."""
        return self.missing == "drop"

    @property
    def gaps(self) -> frozenset[str]:
        """Texts whose rows are left out, in any column that is read."""
        return frozenset(("",) if self.drops else ())

    def is_gap(self, what: str, text: str) -> bool:
        """Whether a text of a column leaves its row out."""
        del what
        return text.strip() in self.gaps

    def clock(self) -> Clock:
        """The reader of a column of times."""
        return Clock(gaps=self.gaps)

    @property
    def of_gaps(self) -> str:
        """Advice about an empty cell, as the end of a message."""
        return f"; {self.advice('missing', 'drop')} leaves such rows out"


class CatalogueFile(TextFile, section="data.catalogue"):
    """All items, rated or not; a row each.

    Args:
        path: the file, see ``data.path``.
        separator: see ``data.separator``.
        header: see ``data.header``.
        encoding: see ``data.encoding``.
        missing: see ``data.missing``.
        item: column of the item's id.
    """

    item: Annotated[Column, AColumn()]


class AttributesFile(TextFile, section="data.attributes"):
    """Attributes of every client, for attacks that infer them; a row each.

    Args:
        path: the file, see ``data.path``.
        separator: see ``data.separator``.
        header: see ``data.header``.
        encoding: see ``data.encoding``.
        missing: see ``data.missing``.
        user: column of the client's id.
        columns: columns of the attributes; a value is a category.
    """

    user: Annotated[Column, AColumn()]
    columns: Annotated[tuple[Annotated[Column, AColumn()], ...], Filled()]


class RatingsFile(TextFile):
    """A file of ratings, or of interactions.

    Args:
        path, separator, header, encoding, missing: as of ``TextFile``.
        user: column of the client's id.
        item: column of the item's id.
        layout: ``"rows"``, one per rating; or ``"lists"``, lines of a client and all its items,
            where ``user`` is column 1, ``item`` column 2 and on, and there is nothing else.
        rating: column of the rating, a plain decimal number, or True and False (yes and no) for 1
            and 0; without one every row is an interaction (implicit feedback).
        missing_values: values that mean "not rated", such as ``[-1]`` or ``["NULL"]``: such rows
            are left out. A number is a rating, a text may stand in any column.
        time: column of the time of the rating, seconds (or milliseconds) since 1970, or a date in
            one of the usual spellings, UTC where it names no zone; only the order counts. Without
            one, times are unknown.
        dates: whether 01/02/2020 is written ``"day-first"`` or ``"month-first"``; ``"auto"`` goes
            by a number above 12, and refuses where there is none.
        ids: what ids are: ``"number"`` (64 bits, with sign), ``"text"``, or ``"auto"``, numbers
            where all are and text otherwise. Blanks around an id do not count; but in texts, 7.0 is
            the number 7.
        scale: levels of a rating, ``{ low = 0.5, high = 5, step = 0.5 }``, in stars. ``"auto"``
            takes the lowest and the highest rating of the file, and the largest step that all lie
            on; refused where half of the levels or more never occur.
        positive_from: turns ratings or counts into implicit feedback: rows from this value on are
            interactions, all others are left out. without it, ratings are kept.
        duplicates: the treatment of an item that a client rates twice: ``"refuse"``, keep the
            ``"first"`` or the ``"last"`` row of the file, or take the ``"mean"``, rounded to the
            nearest level (half up), at the latest time.
        catalogue: file of all items; without one there are those that are rated.
        attributes: file of the clients' attributes, for attribute inference.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    user: Annotated[Column, AColumn()]
    item: Annotated[Column, AColumn()]
    layout: Literal["rows", "lists"] = "rows"
    rating: Annotated[Column, AColumn()] | None = None
    missing_values: tuple[float | str, ...] = ()
    time: Annotated[Column, AColumn()] | None = None
    dates: Literal["auto", "day-first", "month-first"] = "auto"
    ids: Literal["auto", "number", "text"] = "auto"
    scale: Literal["auto"] | RatingScale = "auto"
    positive_from: float | None = None
    duplicates: Literal["refuse", "first", "last", "mean"] = "refuse"
    catalogue: CatalogueFile | None = None
    attributes: AttributesFile | None = None

    def _agree(self) -> None:
        if self.layout == "lists":
            for name, only in (("user", 1), ("item", 2), ("rating", None), ("time", None)):
                if getattr(self, name) != only:
                    problem = f"data.layout = 'lists' has user = 1 and item = 2 alone, {name} at "
                    raise self.refusal(name, problem + ("no column" if only is None else str(only)))
        if self.dates != "auto" and self.time is None:
            raise self.refusal("dates", "has no effect without data.time")
        if self.rating is None:
            for name in ("positive_from", "scale"):
                if getattr(self, name) not in (None, "auto"):
                    raise self.refusal(name, "has no effect without data.rating")
            if self.duplicates == "mean":
                raise self.refusal("duplicates", "there are no ratings to take the mean of")
        if self.positive_from is not None and self.scale != "auto":
            raise self.refusal("scale", "has no effect with data.positive_from")

    @property
    def gaps(self) -> frozenset[str]:
        """Texts whose rows are left out, in any column that is read."""
        return super().gaps | {text for text in self.missing_values if isinstance(text, str)}

    def is_gap(self, what: str, text: str) -> bool:
        """Whether a text of a column leaves its row out."""
        if text.strip() in self.gaps:
            return True
        value = number_of(text) if what == "rating" and self.missing_values else None
        return value is not None and float(value) in self.missing_values

    def clock(self) -> Clock:
        """The reader of the column of times."""
        return Clock(self.dates, gaps=self.gaps)

    @property
    def implicit(self) -> bool:
        """Whether a row states an interaction without a value."""
        return self.rating is None or self.positive_from is not None


def preset(table: Mapping[str, Any]) -> RatingsFile:
    """The settings of a catalogue's entry.

    Raises:
        ConfigError: a setting is invalid.
    """
    values = dict(table)
    for name, kind in (("scale", RatingScale), ("catalogue", CatalogueFile)):
        if isinstance(values.get(name), dict):
            values[name] = kind(**values[name])
    return RatingsFile(**values)
