"""Common parts of reproductions: read the options, report a result and draw it."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from secure_fedrec.errors import ConfigError, DataError

T = TypeVar("T")


class Parts(NamedTuple):
    """Which tables and figures are wanted.

    Attributes:
        tables: numbers.
        figures: numbers as strings, since a figure may have parts.
    """

    tables: tuple[int, ...]
    figures: tuple[str, ...]


def wanted_parts(
    arguments: argparse.Namespace,
    *,
    tables: Sequence[int],
    figures: Sequence[str],
    usual: Sequence[str] | None = None,
) -> Parts:
    """The tables and figures of ``--table`` and ``--figure``; all if neither is given.

    Args:
        arguments: of the command.
        tables: that are reproduced.
        figures: likewise.
        usual: figures that are made by default; None for all.

    Raises:
        ConfigError: there is no such table or figure.
    """
    chosen("--table", arguments.table, tables)
    chosen("--figure", arguments.figure, figures)
    if not arguments.table and not arguments.figure:
        return Parts(tuple(tables), tuple(figures if usual is None else usual))
    return Parts(tuple(arguments.table or ()), tuple(arguments.figure or ()))


def first_seeds(known: Sequence[int], asked: int | None, *, default: int) -> tuple[int, ...]:
    """The first seeds of a paper's file.

    Args:
        known: all of them.
        asked: how many are wanted (``--seeds``); None for the default.
        default: how many there are by default.

    Raises:
        ConfigError: there are fewer seeds, or the number is below 1.
    """
    count = default if asked is None else asked
    if not 1 <= count <= len(known):
        raise ConfigError("--seeds", count, f"must be 1 to {len(known)}")
    return tuple(known[:count])


def chosen(option: str, asked: Sequence[T] | None, known: Iterable[T]) -> list[T]:
    """The values of an option, in the order of the known values; all if it is not given.

    Raises:
        ConfigError: a value is not one that is reproduced.
    """
    choices = tuple(known)
    for value in asked or ():
        if value not in choices:
            raise ConfigError(option, value, "is not a value that is reproduced", choices)
    return [value for value in choices if not asked or value in asked]


class Result:
    """Result of a reproduction: JSON values, lines of text and files of drawings.

    Args:
        out: folder of the drawings.
        values: what it begins with.
        stand_in: a first line about the data; empty for none.
    """

    def __init__(self, out: Path, values: dict[str, Any], stand_in: str = "") -> None:
        self._out, self.values = out, values
        self.lines = [stand_in, ""] if stand_in else []

    def tell(self, key: str, values: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Add a table or figure to the list of that key, and its lines."""
        self.values[key].append(values)
        self.lines += [*lines, ""]

    def draw(self, key: str, stem: str, svg: str) -> None:
        """Write a drawing and list its file under that key."""
        self.values[key].append(write_drawing(self._out / f"{stem}.svg", svg))

    def ended(self, reports: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
        """Values and lines, with the training time as the last line."""
        told = f"{len(reports)} studies, {seconds_of(reports):.0f} s of training"
        return self.values, [*self.lines, told]


def seconds_of(reports: Iterable[Mapping[str, Any]]) -> Any:
    """A line on the training time of studies."""
    return sum(report["seconds"] for report in reports)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders that it needs.

    Raises:
        DataError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as refused:
        raise DataError(path, f"cannot be written ({refused.strerror or refused})") from refused


def write_drawing(path: Path, svg: str) -> str:
    """Write an inline drawing as a file of its own; the path as a word.

    Raises:
        DataError: it cannot be written.
    """
    write_text(path, svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")
    return str(path)
