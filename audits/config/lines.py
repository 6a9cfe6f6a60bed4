"""The line of a setting in a configuration file, so that a finding can be shown at its line."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secure_fedrec.errors import ConfigError

_LONGEST = 400
"""Most lines of one statement; keys after a longer statement do not get a line."""


def source_of(path: Path) -> dict[str, Any]:
    """What a report stores about an audit's configuration file.

    Args:
        path: path of a configuration that was read.

    Returns:
        ``path``, relative to the working directory if the file is in it, else only its name;
        ``lines``, see ``key_lines``, empty of a file that is not TOML.
    """
    here, place = Path.cwd().resolve(), path.resolve()
    shown = place.relative_to(here).as_posix() if place.is_relative_to(here) else place.name
    text = path.read_text(encoding="utf-8") if path.suffix != ".json" else ""
    return {"path": shown, "lines": key_lines(text)}


def key_lines(text: str) -> dict[str, int]:
    """The line of every table and key of a TOML document.

    Args:
        text: a document that ``tomllib`` reads.

    Returns:
        1-based line by dotted key; an entry of a list of tables has its number from 0 in brackets:
        ``gates[2]`` is where it begins, ``gates[2].max`` where that key stands.
    """
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    section = ""
    for line, statement, parsed in _statements(text):
        paths = list(_paths(parsed))
        if not statement.lstrip().startswith("["):
            for path in paths:
                found.setdefault(f"{section}.{path}" if section else path, line)
            continue
        section = paths[-1] if paths else ""
        if statement.lstrip().startswith("[["):
            counts[section] = counts.get(section, -1) + 1
        section = _numbered(section, counts)
        found.setdefault(section, line)
    return found


def line_of(key: str, lines: Mapping[str, int], *, otherwise: int = 1) -> int:
    """The line of a key, or of the nearest enclosing table with a line, or ``otherwise``."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return otherwise


def locate(refused: ConfigError, path: Path) -> None:
    """Add to an error the line of its key in a TOML file, or of the table that lacks the key."""
    table, _, rest = refused.key.partition(".")
    numbered = "" if refused.entry is None else f"[{refused.entry}]"
    key = f"{table}{numbered}.{rest}" if rest else f"{table}{numbered}"
    line = line_of(key, key_lines(path.read_text(encoding="utf-8")), otherwise=0)
    if line:
        refused.at(f"{path.name}, line {line}")


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Line, text and value of every statement: the fewest lines that are TOML by themselves."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    start = 0
    while start < len(lines):
        for end in range(start + 1, min(start + _LONGEST, len(lines)) + 1):
            statement = "\n".join(lines[start:end])
            try:
                parsed = tomllib.loads(statement)
            except (ValueError, RecursionError):
                continue
            yield start + 1, statement, parsed
            start = end
            break
        else:
            return


def _paths(tree: Mapping[str, Any]) -> Iterator[str]:
    """Dotted keys of a tree, inner tables after the tables that they are in."""
    for key, value in tree.items():
        yield key
        inner = value[0] if isinstance(value, list) and value == [{}] else value
        if isinstance(inner, dict):
            yield from (f"{key}.{path}" for path in _paths(inner))


def _numbered(section: str, counts: Mapping[str, int]) -> str:
    """A dotted key with the number of the latest entry after every list of tables in it."""
    steps, path = [], ""
    for step in section.split("."):
        path = f"{path}.{step}" if path else step
        steps.append(f"{step}[{counts[path]}]" if path in counts else step)
    return ".".join(steps)
