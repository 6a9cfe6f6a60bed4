"""Finds what the settings of a text file do not state: separator, header, places of columns."""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from secure_fedrec.data.files.decimals import number_of
from secure_fedrec.data.files.faults import (
    Shape,
    fields_of,
    first_repeated,
    lines,
    shown,
    split,
)
from secure_fedrec.data.files.kinds import is_name
from secure_fedrec.data.files.settings import BLANKS, Column, TextFile
from secure_fedrec.data.files.times import spelling_of
from secure_fedrec.errors import ConfigError, DataError

SEPARATORS: Final = ("\t", "::", ";", "|", ",", BLANKS)
"""Separators that are tried; with equal results the first is taken, or blanks if they give more
columns.
"""

_LOOKED_AT: Final = 50
_SIGNS: Final = 2**24
_NOTES: Final = (
    (
        re.compile(r"\"?sep=.{1,4}?\"?$", re.IGNORECASE),
        "is a note of a spreadsheet, not a row: remove the line; the separator is found, or named "
        "by "
        "data.separator",
    ),
    (
        re.compile(r"[#%](\s|$)"),
        "is a comment, not a row: remove such lines, grep -v '^[#%]' FILE > ratings.txt",
    ),
    (
        re.compile(r"\[\s*(\{|$)"),
        "begins one JSON list: write an object per line, jq -c '.[]' FILE > ratings.jsonl",
    ),
    (
        re.compile(r"[0-9]+:$"),
        "is a line of an item and its ratings follow: write a row per rating, "
        'awk \'/:$/ { item = $0; sub(":", "", item); next } { print item "," $0 }\' FILE',
    ),
)
"""First lines that are not a row of a table, and what to do."""


def shape_of(path: Path, file: TextFile, asked: Mapping[str, Column]) -> Shape:
    """Find out how a file's lines are made, from its first ones.

    Args:
        path: where it is.
        file: its settings.
        asked: what is read, and from which column.

    Raises:
        DataError: it cannot be read, is empty, cannot be guessed, or lacks a column.
        ConfigError: the settings do not fit it.
    """
    first = first_lines(path, file)
    if not first:
        raise DataError(path, "is empty")
    if not first[0].strip():
        raise DataError(path, "is an empty line", line=1)
    for pattern, problem in _NOTES:
        if pattern.match(first[0].strip()):
            raise DataError(path, f"{shown(first[0].strip())} {problem}", line=1)
    separator = separator_of(path, first, file, single=len(asked) == 1)
    rows = [fields_of(path, 1, first[0], separator)]
    if len(first) > 1:
        rows.append(fields_of(path, 2, first[1], separator))
    named = any(isinstance(column, str) for column in asked.values())
    header = _has_header(path, file, rows, named=named) if file.header == "auto" else file.header
    if named and not header:
        raise ConfigError(file.key("header"), file.header, "columns are asked for by name")
    if header and len(first) == 1:
        raise DataError(path, "holds a header and nothing else", line=1)
    names = tuple(map(_bare, rows[0])) if header else None
    if names is not None and (twice := first_repeated(names)) is not None:
        raise DataError(path, f"the header names {shown(twice)} twice", line=1)
    wanted = positions(path, file, asked, names, width=len(rows[0]), line=1)
    return Shape(
        file=file,
        separator=separator,
        width=len(rows[0]),
        names=names,
        wanted=wanted,
    )


def _bare(name: str) -> str:
    """A name without surrounding blanks, and without quotes that were left because of blanks."""
    name = name.strip()
    quoted = len(name) > 2 and name[0] == name[-1] == '"'
    return name[1:-1].strip() if quoted else name


def first_lines(path: Path, file: TextFile, most: int = _LOOKED_AT) -> list[str]:
    """The first lines of a file, fewer where they are long."""
    found, signs = [], 0
    for text in itertools.islice(lines(path, file), most):
        found.append(text)
        signs += len(text)
        if signs > _SIGNS:
            break
    return found


def positions(
    path: Path,
    file: TextFile,
    asked: Mapping[str, Column],
    names: tuple[str, ...] | None,
    *,
    width: int,
    line: int | None,
) -> dict[str, int]:
    """Where the wanted columns are, from 0.

    Args:
        path: the file.
        file: its settings.
        asked: what is read, and from which column.
        names: names of the columns, where they have any.
        width: number of columns.
        line: line of the header, or of the first row; None in a file without lines.

    Raises:
        DataError: there is no such column; names all of them.
        ConfigError: two are one.
    """
    if problems := misnamed(file, asked, names, width=width):
        raise DataError(path, "; ".join(problems), line=line)
    found: dict[str, int] = {}
    for what, column in asked.items():
        place = column - 1 if isinstance(column, int) else (names or ()).index(column)
        if place in found.values():
            problem = f"column {place + 1} of {path} is asked for twice"
            raise ConfigError(file.key(what), column, problem)
        found[what] = place
    return found


def misnamed(
    file: TextFile,
    asked: Mapping[str, Column],
    names: tuple[str, ...] | None,
    *,
    width: int,
) -> list[str]:
    """What is wrong with wanted columns that are not there, as clauses; see ``positions``."""
    problems = []
    known = names or ()
    strange = [
        f"{column!r} ({file.key(what)})"
        for what, column in asked.items()
        if isinstance(column, str) and column not in known
    ]
    far = [
        f"{column} ({file.key(what)})"
        for what, column in asked.items()
        if isinstance(column, int) and column > width
    ]
    if strange:
        problems.append(f"has no column {', '.join(strange)}, only {', '.join(map(shown, known))}")
    if far:
        problems.append(f"has {width} columns, not {', '.join(far)}")
    return problems


def separator_of(path: Path, first: list[str], file: TextFile, *, single: bool = False) -> str:
    """The separator: as set, or the one that splits most lines into equally many columns.

    Args:
        path: the file.
        first: its first lines.
        file: its settings.
        single: whether a single column is wanted, so that lines may have only one.

    Raises:
        ConfigError: the one that is set does not occur.
        DataError: all separators fail to split the lines.
    """
    if file.separator not in ("auto", BLANKS):
        if file.separator not in first[0]:
            raise ConfigError(
                file.key("separator"), file.separator, f"does not occur in line 1 of {path}"
            )
        return file.separator
    if file.separator == BLANKS:
        return BLANKS
    best, most, parted = None, (0, 0), 0
    for separator in SEPARATORS:
        widths = Counter(_width(text, separator) for text in first)
        width, often = max(widths.items(), key=lambda found: (found[1], found[0]))
        if separator == BLANKS:
            # Names contain blanks, and lines that are split at blanks may have any number of
            # columns.
            lies = sum(count for each, count in widths.items() if each > 1) > parted
            lies = lies or (best == "\t" and _only_blanks(first))
            if lies and max(widths) > 1:
                best = separator
        # The separator that gives the most lines the same number of columns wins: one inside some
        # names splits few lines.
        elif width > 1 and (often, width) > most:
            best, most = separator, (often, width)
            parted = sum(count for each, count in widths.items() if each > 1)
    if best is None and single:
        return ","
    if best is None:
        problem = (
            f"none of {', '.join(map(repr, SEPARATORS))} parts its lines: name data.separator, "
            f"{file.advice('separator', 'SIGN')}"
        )
        raise DataError(path, problem, line=1)
    return best


def _only_blanks(first: list[str]) -> bool:
    """Whether tabs are just blanks: a column between them is always empty, or holds several values.

    These are several numbers, since names contain blanks.
    """
    rows = [text.split("\t") for text in first if text]
    if any(not any(each.strip() for each in column) for column in zip(*rows, strict=False)):
        return True
    finer = [text.split() for text in first if text]
    numbers = all(is_number(each) for row in finer for each in row)
    return numbers and len(finer[0]) > len(rows[0]) and len(set(map(len, finer))) == 1


def _width(text: str, separator: str) -> int:
    try:
        return len(split(text, separator))
    except csv.Error:
        return 0


def is_number(text: str) -> bool:
    """Whether a text is a number, a boolean or a date, and not a name, as "No" may be."""
    if text.strip().lower() in ("yes", "no"):
        return False
    return number_of(text) is not None or spelling_of(text) is not None or _is_float(text)


def _is_float(text: str) -> bool:
    try:
        float(text.strip())
    except ValueError:
        return False
    return True


def _has_header(path: Path, file: TextFile, rows: list[list[str]], *, named: bool) -> bool:
    known, numbers = sum(map(is_name, rows[0])), any(map(is_number, rows[0]))
    if named or known > numbers:
        return True
    if numbers:
        return False
    if len(rows) == 1 or any(map(is_number, rows[1])):
        return len(rows) > 1
    problem = (
        "may be a header or a row: say header = true or header = false, "
        f"{file.advice('header', 'true')} or {file.advice('header', 'false')}"
    )
    raise DataError(path, problem, line=1)
