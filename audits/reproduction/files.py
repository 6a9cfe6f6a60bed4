"""The files of a reproduction: a paper's own numbers to read, results and drawings to write."""

import tomllib
from pathlib import Path
from typing import Any

from secure_fedrec.errors import ConfigError, DataError

_PAPERS = Path(__file__).parent.parent / "papers"


def paper_names() -> list[str]:
    """Papers that are reproduced, in order."""
    return sorted(path.stem for path in _PAPERS.glob("*.toml"))


def read_paper(name: str) -> dict[str, Any]:
    """The file of one paper.

    Raises:
        ConfigError: there is no such paper, or its file is not TOML.
    """
    known = paper_names()
    if name not in known:
        raise ConfigError("paper", name, "cannot be reproduced", known)
    try:
        return tomllib.loads((_PAPERS / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as damage:
        raise ConfigError("paper", name, f"its file is not TOML ({damage})") from damage


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


def write_drawing(path: Path, svg: str) -> None:
    """Write an inline drawing as a file of its own.

    Raises:
        DataError: it cannot be written.
    """
    write_text(path, svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")
