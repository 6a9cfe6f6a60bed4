"""How a file of ratings is to be read: settings, with the meaning of every key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from secure_fedrec.data.ratings import RatingScale
from secure_fedrec.settings import Filled, Refused, Settings

PARQUET: Final = (".parquet", ".pq")
"""Names that end so are read as Parquet, all others as text."""

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
        """Refuse what could not part two columns."""
        plain = value.isascii() and not any(
            each.isalnum() or each in "\"'.+-\r\n\0\x1f" for each in value
        )
        if value != "auto" and not (1 <= len(value) <= 4 and plain):
            problem = "must be 'auto', or one to four signs other than letters, digits and quotes"
            raise Refused(value, problem)


class TextFile(Settings, section="data"):
    r"""A file with a row per line.

    Args:
        path: the file, relative to the configuration's folder, or to ``--data-dir`` where that is
            given. A name that ends in ``.gz`` is unpacked, one in ``.parquet`` or ``.pq`` read as
            Parquet (extra ``file``), any other as text.
        separator: what parts two columns, one to four signs (``","``, ``"\t"``, ``"::"``, ``";"``,
            ``"|"``). ``"auto"`` looks at the first lines.
        header: whether the first line names the columns. ``"auto"`` takes it for one if columns are
            asked for by name, or if it has text where the next line has a number.
        encoding: of the text, ``"utf-8"`` (a byte-order mark is skipped) or ``"latin-1"``.

    Raises:
        ConfigError: a field is out of range.
    """

    path: Annotated[str, Filled()]
    separator: Annotated[str, ASeparator()] = "auto"
    header: Literal["auto"] | bool = "auto"
    encoding: Literal["utf-8", "latin-1"] = "utf-8"

    @property
    def parquet(self) -> bool:
        """Whether it is read as Parquet."""
        return self.path.lower().endswith(PARQUET)


class CatalogueFile(TextFile, section="data.catalogue"):
    """The items that there are, rated or not; a row each.

    Args:
        path: the file, see ``data.path``.
        separator: see ``data.separator``.
        header: see ``data.header``.
        encoding: see ``data.encoding``.
        item: column of the item's id.
    """

    item: Annotated[Column, AColumn()]


class AttributesFile(TextFile, section="data.attributes"):
    """What is known of every client, for attacks that infer it; a row each.

    Args:
        path: the file, see ``data.path``.
        separator: see ``data.separator``.
        header: see ``data.header``.
        encoding: see ``data.encoding``.
        user: column of the client's id.
        columns: columns of the attributes; a value is a category.
    """

    user: Annotated[Column, AColumn()]
    columns: Annotated[tuple[Annotated[Column, AColumn()], ...], Filled()]


class RatingsFile(TextFile):
    """A file of ratings, or of interactions.

    Args:
        path, separator, header, encoding: as of ``TextFile``.
        user: column of the client's id.
        item: column of the item's id.
        rating: column of the rating, a plain decimal number; without one every row is an
            interaction (implicit feedback).
        time: column of the time of the rating, whole seconds (or milliseconds) since 1970, or a
            date such as 2020-01-31 or 2020-01-31T10:00:00Z, UTC where it names no zone; only the
            order counts. Without one nothing is known of it.
        ids: what ids are: ``"number"`` (64 bits, with sign), ``"text"``, or ``"auto"``, numbers
            where all are and text otherwise. Blanks around an id do not count.
        scale: levels of a rating, ``{ low = 0.5, high = 5, step = 0.5 }``, in stars. ``"auto"``
            takes the lowest and the highest rating of the file, and the largest step that all lie
            on; refused where half of the levels or more never occur.
        positive_from: turns ratings or counts into implicit feedback: rows from this value on are
            interactions, all others are left out. without it, ratings are kept.
        duplicates: what is done where a client rates an item twice: ``"refuse"``, keep the
            ``"first"`` or the ``"last"`` row of the file, or take the ``"mean"``, rounded to the
            nearest level (half up), at the latest time.
        catalogue: file of all items; without one there are those that are rated.
        attributes: file of the clients' attributes, for attribute inference.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    user: Annotated[Column, AColumn()]
    item: Annotated[Column, AColumn()]
    rating: Annotated[Column, AColumn()] | None = None
    time: Annotated[Column, AColumn()] | None = None
    ids: Literal["auto", "number", "text"] = "auto"
    scale: Literal["auto"] | RatingScale = "auto"
    positive_from: float | None = None
    duplicates: Literal["refuse", "first", "last", "mean"] = "refuse"
    catalogue: CatalogueFile | None = None
    attributes: AttributesFile | None = None

    def _agree(self) -> None:
        if self.rating is None:
            for name in ("positive_from", "scale"):
                if getattr(self, name) not in (None, "auto"):
                    raise self.refusal(name, "has no effect without data.rating")
            if self.duplicates == "mean":
                raise self.refusal("duplicates", "there are no ratings to take the mean of")
        if self.positive_from is not None and self.scale != "auto":
            raise self.refusal("scale", "has no effect with data.positive_from")

    @property
    def implicit(self) -> bool:
        """Whether all there is to a row is that it happened."""
        return self.rating is None or self.positive_from is not None


def preset(table: Mapping[str, Any]) -> RatingsFile:
    """The settings of a catalogue's entry.

    Raises:
        ConfigError: they are wrong.
    """
    values = dict(table)
    for name, kind in (("scale", RatingScale), ("catalogue", CatalogueFile)):
        if isinstance(values.get(name), dict):
            values[name] = kind(**values[name])
    return RatingsFile(**values)
