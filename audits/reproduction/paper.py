"""A paper's numbers, as they were printed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secure_fedrec.errors import ConfigError

__all__ = ["Paper", "PaperTable", "load_paper"]

_PAPERS = Path(__file__).parent.parent / "papers"
_NOT_PRINTED = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """The part of a table that is about one data set.

    Args:
        number: of the table in the paper.
        title: what it shows.
        data: name of the data set here.
        paper_name: what the paper calls it, and what is different about ours.
        measures: names of the columns.
        rows: method to one number per measure; None where the paper has none.
    """

    number: int
    title: str
    data: str
    paper_name: str
    measures: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        figure_methods: methods whose users' characteristics are drawn.
        tables: in its order.
    """

    title: str
    seeds: tuple[int, ...]
    figure_methods: tuple[str, ...]
    tables: tuple[PaperTable, ...]

    def select(self, numbers: tuple[int, ...] | None) -> tuple[PaperTable, ...]:
        """Some of the tables; None for all.

        Raises:
            ConfigError: there is no table of that number.
        """
        known = sorted({table.number for table in self.tables})
        for number in numbers or ():
            if number not in known:
                raise ConfigError("--table", number, "is none that is reproduced", known)
        return tuple(t for t in self.tables if numbers is None or t.number in numbers)


def load_paper(name: str) -> Paper:
    """Read the numbers of one paper.

    Raises:
        ConfigError: there is no such paper.
    """
    known = sorted(path.stem for path in _PAPERS.glob("*.toml"))
    if name not in known:
        raise ConfigError("paper", name, "cannot be reproduced", known)
    raw = tomllib.loads((_PAPERS / f"{name}.toml").read_text(encoding="utf-8"))
    tables = [
        PaperTable(
            number=table["number"],
            title=table["title"],
            data=part["name"],
            paper_name=part["paper_name"],
            measures=tuple(part["measures"]),
            rows={
                method: tuple(None if cell == _NOT_PRINTED else cell for cell in cells)
                for method, cells in part["rows"].items()
            },
        )
        for table in raw["tables"]
        for part in table["data"]
    ]
    return Paper(
        title=raw["title"],
        seeds=tuple(raw["seeds"]),
        figure_methods=tuple(raw["figure_methods"]),
        tables=tuple(tables),
    )
