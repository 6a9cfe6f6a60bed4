"""What all reproductions do alike: read what is asked for, tell a result and draw it."""

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
        figures: numbers, as words: a figure may have parts.
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
    """What ``--table`` and ``--figure`` ask for; all of it where neither is given.

    Args:
        arguments: of the command.
        tables: that are reproduced.
        figures: likewise.
        usual: figures where nothing is asked for; None for all.

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
        ConfigError: so many are not known, or none is asked for.
    """
    count = default if asked is None else asked
    if not 1 <= count <= len(known):
        raise ConfigError("--seeds", count, f"must be 1 to {len(known)}")
    return tuple(known[:count])


def chosen(option: str, asked: Sequence[T] | None, known: Iterable[T]) -> list[T]:
    """What an option asks for, in the order of what is known; all where it asks for nothing.

    Raises:
        ConfigError: one of the values is none that a study reproduces.
    """
    choices = tuple(known)
    for value in asked or ():
        if value not in choices:
            raise ConfigError(option, value, "is not a value that is reproduced", choices)
    return [value for value in choices if not asked or value in asked]


class Result:
    """What a reproduction says: JSON values, lines of text and files of drawings.

    Args:
        out: folder of the drawings.
        values: what it begins with.
        stand_in: what is said of the data before all; empty for nothing.
    """

    def __init__(self, out: Path, values: dict[str, Any], stand_in: str = "") -> None:
        self._out, self.values = out, values
        self.lines = [stand_in, ""] if stand_in else []

    def tell(self, key: str, values: Mapping[str, Any], lines: Sequence[str]) -> None:
        """One table or figure more in the list of that key, and its lines."""
        self.values[key].append(values)
        self.lines += [*lines, ""]

    def draw(self, key: str, stem: str, svg: str) -> None:
        """Write a drawing and list its file under that key."""
        self.values[key].append(write_drawing(self._out / f"{stem}.svg", svg))

    def ended(self, reports: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
        """Values and lines, what training took last."""
        told = f"{len(reports)} studies, {seconds_of(reports):.0f} s of training"
        return self.values, [*self.lines, told]


def seconds_of(reports: Iterable[Mapping[str, Any]]) -> Any:
    """What the training of studies took."""
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
