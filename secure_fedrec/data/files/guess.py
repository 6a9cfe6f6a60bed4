"""Guesses the roles of columns that settings do not state, by names and contents.

Likely roles are taken; if the contents make a role unlikely, an error asks, with the options that
answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from secure_fedrec.data.files.choice import choose
from secure_fedrec.data.files.contents import Contents, Unlikely, unlike_ids
from secure_fedrec.data.files.decimals import number_of
from secure_fedrec.data.files.faults import fields_of, lines, shown, split
from secure_fedrec.data.files.jsonlines import first_objects, is_json_lines, names_of, text_of
from secure_fedrec.data.files.kinds import ROLES, named_so
from secure_fedrec.data.files.lists import lists_items
from secure_fedrec.data.files.parquet import head as parquet_head
from secure_fedrec.data.files.settings import Column, RatingsFile, TextFile
from secure_fedrec.data.files.shape import first_lines, is_number, misnamed, shape_of
from secure_fedrec.data.files.values import comma_hint
from secure_fedrec.errors import DataError

_LOOKED_AT: Final = 1000
_CELLS: Final = 6
"""Fewest columns of numbers, besides the first, that look like items."""
_CELL: Final = 10**8
"""A number above any rating."""
_SAID: Final = 20
"""Most columns of a file that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """How a file is read, as far as its first lines tell.

    Args:
        file: the settings.
        names: names of its columns; None without a header.
        width: number of its columns.
        taken: decisions that were not stated and that a user may not expect, as sentences.
    """

    file: RatingsFile
    names: tuple[str, ...] | None
    width: int
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The beginning of a file.

    Args:
        path: the file.
        file: its settings, with separator and header where it has lines of columns.
        names: names of its columns; None without a header.
        rows: the first ones, of one width.
        ragged: all first lines, parted.
        gaps: texts for missing values.
    """

    path: Path
    file: TextFile
    names: tuple[str, ...] | None
    rows: Sequence[Sequence[str]]
    ragged: Sequence[Sequence[str]] = ()
    gaps: frozenset[str] = frozenset()

    @property
    def line(self) -> int:
        """Of the first row."""
        return 1 if self.names is None else 2

    @property
    def width(self) -> int:
        return len(self.names or self.rows[0])

    def columns(self) -> list[Contents]:
        texts = zip(*self.rows, strict=True) if self.rows else ((),) * self.width
        trimmed = ([text.strip() for text in column] for column in texts)
        return [Contents(["" if text in self.gaps else text for text in each]) for each in trimmed]


def guess(path: Path, told: Mapping[str, Any]) -> Guess:
    """Find out how a file is read.

    Args:
        path: the file.
        told: settings of ``RatingsFile`` that are known.

    Raises:
        DataError: it is not sound, or it cannot be told which columns are users and items.
        ConfigError: it is Parquet, and pyarrow is not installed; or what is told does not fit.
    """
    known = {each.name for each in fields(TextFile)}
    if any(isinstance(told.get(what), str) for what in ROLES):
        told = {"header": True, **told}
    head = _head(path, TextFile(path=path.name, **{k: told[k] for k in known & told.keys()}))
    missing = told.get("missing_values", ())
    head = replace(head, gaps=frozenset(each for each in missing if isinstance(each, str)))
    kept = {name: getattr(head.file, name) for name in ("separator", "header")}
    named = {what: told[what] for what in ROLES if what in told}
    listed = told.get("layout") == "lists" or ("layout" not in told and not named and _lists(head))
    if listed:
        said = () if "layout" in told else (_LISTED,)
        given = {**kept, "layout": "lists", "user": 1, "item": 2, **told}
        file = RatingsFile(path=path.name, **given)
        return Guess(file=file, names=None, width=head.width, taken=said)
    if not {"user", "item"} <= named.keys():
        _require_rows(head)
    if head.names is None:
        found, taken = _by_place(head, named), list[str]()
        if not {"user", "item"} & named.keys():
            taken.append(_by_their_place(head, found))
    else:
        found, taken = _by_name(head, named)
    return Guess(
        file=RatingsFile(path=path.name, **{**kept, **found, **told}),
        names=head.names,
        width=head.width,
        taken=tuple(taken),
    )


_LISTED: Final = (
    "every line as a client and its items, since no two begin alike (--set data.layout=rows if "
    "each is a rating)"
)


def _head(path: Path, file: TextFile) -> _Head:
    if file.parquet:
        names, rows = parquet_head(path, file, _LOOKED_AT)
        return _Head(path=path, file=file, names=names, rows=rows)
    if is_json_lines(path, file):
        first = first_objects(path, file)
        names = names_of(first)
        rows = [[text_of(each.get(name)) or "" for name in names] for each in first]
        return _Head(path=path, file=file, names=names, rows=rows)
    shape = shape_of(path, file, {})
    texts = first_lines(path, file, _LOOKED_AT)[shape.first_line - 1 :]
    numbered = enumerate(texts, start=shape.first_line)
    ragged = [fields_of(path, line, text, shape.separator) for line, text in numbered]
    return _Head(
        path=path,
        file=replace(file, separator=shape.separator, header=shape.names is not None),
        names=shape.names,
        rows=[row for row in ragged if len(row) == shape.width],
        ragged=ragged,
    )


def _lists(head: _Head) -> bool:
    """Whether every line is a client and its items, and each client begins one line only."""
    if head.names is not None or not lists_items(head.ragged):
        return False
    seen: set[str] = set()
    for text in lines(head.path, head.file):
        client = split(text, head.file.separator)[0] if text.strip() else ""
        if client in seen:
            return False
        seen.add(client)
    return True


def _require_rows(head: _Head) -> None:
    """Refuse a table of users by items, whose cells are the ratings.

    Raises:
        DataError: the file looks like such a table.
    """
    cells = list(head.rows[0][1:]) if head.rows else []
    written = [number_of(cell) for cell in cells if cell.strip()]
    small = all(each is not None and abs(each) < _CELL for each in written)
    known = any(named_so(what, head.names or ()) for what in ROLES if what != "user")
    if len(cells) >= _CELLS and small and not known:
        problem = (
            f"has {len(cells) + 1} columns of numbers: this looks like a table of users by items. "
            "Write a row per rating instead, user,item,rating; or, if rows are, say which column "
            "is what: --set data.user=COLUMN --set data.item=COLUMN --set data.rating=COLUMN"
        )
        raise DataError(head.path, problem, line=head.line)


def _by_name(head: _Head, named: Mapping[str, Column]) -> tuple[dict[str, Any], list[str]]:
    """Columns by their names in the header, if their contents agree."""
    names = head.names or ()
    found, taken = dict(named), []
    contents = dict(zip(names, head.columns(), strict=True))
    for what in ROLES:
        used = set(found.values())
        free = [name for at, name in enumerate(names, start=1) if not {at, name} & used]
        if what not in found:
            best, said = choose(head.path, head.file, what, free, contents)
            found.update({} if best is None else {what: best})
            taken += said
    if len(names) == 2 and not {"user", "item"} <= found.keys():
        for what, name in zip(("user", "item"), names, strict=True):
            found.setdefault(what, name)
        taken.append(_by_their_place(head, found))
    _require_known(head, named, found)
    rating = found.get("rating")
    if isinstance(rating, str):
        first = next(iter(contents[rating].written), "0")
        if not is_number(first) and comma_hint(first):
            problem = f"rating column {rating!a}: {first!a} is not a number" + comma_hint(first)
            raise DataError(head.path, problem, line=2)
    return found, taken


def _by_their_place(head: _Head, found: Mapping[str, Column]) -> str:
    """The sentence about clients and items that are distinguished only by their places."""
    user, item = found["user"], found["item"]
    swapped = f"{head.file.advice('user', item)} {head.file.advice('item', user)}"
    columns = " and ".join(shown(at) if isinstance(at, str) else str(at) for at in (user, item))
    return f"columns {columns} as clients and items by their places ({swapped} swaps them)"


def _require_known(head: _Head, named: Mapping[str, Column], found: Mapping[str, Column]) -> None:
    """Refuse a header that does not say what users and items are.

    Raises:
        DataError: names every column that is not there.
    """
    names = head.names or ()
    said = ", ".join(map(shown, names[:_SAID])) + (", ..." if len(names) > _SAID else "")
    problems = misnamed(head.file, named, names, width=len(names))
    if unknown := [what for what in ("user", "item") if what not in found]:
        keys = " ".join(f"--set data.{what}=NAME" for what in unknown)
        problem = (
            f"none of its columns is known to be the {' or the '.join(unknown)}: {said}; say {keys}"
        )
        beside = [f"data.{what}" for what in ("rating", "time") if what not in found]
        if beside:
            problem += f", and likewise {' and '.join(beside)} if there are such columns"
        problems.append(problem)
    if problems:
        raise DataError(head.path, "; ".join(problems), line=1)


def _by_place(head: _Head, named: Mapping[str, Column]) -> dict[str, Any]:
    """Columns of a file without a header: user, item, then a rating and a time, if they look so.

    Raises:
        DataError: what stands in the first two is unlikely; or in what may be ratings.
    """
    columns = head.columns()
    found: dict[str, Any] = dict(named)
    if problems := misnamed(head.file, named, None, width=head.width):
        raise DataError(head.path, "; ".join(problems), line=1)
    free = [place for place in range(len(columns)) if place + 1 not in found.values()]
    if "time" not in found and (times := [place for place in free if columns[place].times]):
        found["time"] = times[0] + 1
    unlikely = unlike_ids(columns)
    ids = [place for place in free if place not in unlikely]
    wanted = [what for what in ("user", "item") if what not in found]
    usual = (free if len(wanted) == 2 else ids)[: len(wanted)]
    if ids[: len(wanted)] != usual or len(usual) < len(wanted):
        proposed = {what: place + 1 for what, place in zip(wanted, ids, strict=False)}
        _ask(head, unlikely, {**proposed, **found}, wanted, columns)
    found.update({what: place + 1 for what, place in zip(wanted, usual, strict=False)})
    _require_points(head, columns, [place for place in free if place + 1 not in found.values()])
    if "rating" not in found:
        may, sure = _ratings(columns, unlikely, found)
        if sure:
            found["rating"] = may[0] + 1
        elif may and wanted:
            said = " and ".join(f"{place + 1} ({columns[place].examples})" for place in may)
            each = " or ".join(head.file.advice("rating", place + 1) for place in may)
            problem = (
                f"column {said} may be ratings, but not for sure: say {each}, or "
                f"{head.file.advice('rating', 'null')} where there are none"
            )
            raise DataError(head.path, problem, line=head.line)
    return found


def _ratings(
    columns: Sequence[Contents], unlikely: Mapping[int, Unlikely], found: Mapping[str, Column]
) -> tuple[list[int], bool]:
    """The columns that may be ratings by their contents, and whether the place suggests it as well.

    Those are numbers that are not times, coordinates, row numbers or constants; the place suggests
    it if there is only one, next to clients, items and times.
    """
    left = [
        place
        for place in range(len(columns))
        if place + 1 not in found.values()
        and (place not in unlikely or unlikely[place].rating)
        and not columns[place].constant
    ]
    may = [place for place in left if columns[place].numeric]
    return may, len(may) == 1 and may[0] == left[0]


def _require_points(head: _Head, columns: Sequence[Contents], places: Iterable[int]) -> None:
    """Refuse decimal commas.

    Raises:
        DataError: a column has them.
    """
    for place in places:
        first = next(iter(columns[place].written), "")
        if hint := comma_hint(first):
            problem = f"column {place + 1}: {shown(first)} is not a number{hint}"
            raise DataError(head.path, problem, line=head.line)


def _ask(
    head: _Head,
    unlikely: Mapping[int, Unlikely],
    proposed: dict[str, Any],
    wanted: Sequence[str],
    columns: Sequence[Contents],
) -> None:
    """Ask for the roles of columns.

    Raises:
        DataError: with the columns that are unlikely, and what the others may be.
    """
    last = max((proposed[what] for what in wanted if what in proposed), default=len(columns))
    before = [place for place in sorted(unlikely) if place < last]
    why = "; ".join(f"column {place + 1} {unlikely[place].reason}" for place in before)
    if not set(wanted) <= proposed.keys():
        keys = " ".join(f"--set data.{what}=COLUMN" for what in wanted)
        problem = f"does not have two columns that look like clients and items; {why}; say {keys}"
        raise DataError(head.path, problem, line=head.line)
    may, sure = _ratings(columns, unlikely, proposed)
    if sure:
        proposed.setdefault("rating", may[0] + 1)
    problem = f"{why}. If the other columns are right, say {_keys(head, proposed)}"
    raise DataError(head.path, problem, line=head.line)


def _keys(head: _Head, found: Mapping[str, Column | None]) -> str:
    given = {what: found[what] for what in ROLES if what in found}
    return " ".join(
        head.file.advice(what, "null" if at is None else at) for what, at in given.items()
    )
