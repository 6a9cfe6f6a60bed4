"""HPFL's numbers, as they were printed."""

from collections.abc import Mapping
from dataclasses import dataclass

from audits.reproduction.files import read_paper
from secure_fedrec.errors import ConfigError

__all__ = ["Paper", "PaperTable", "load_paper"]

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


def load_paper() -> Paper:
    """Read the paper's numbers."""
    raw = read_paper("hpfl")
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
