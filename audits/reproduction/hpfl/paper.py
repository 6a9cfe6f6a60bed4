"""HPFL's numbers, as they were printed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audits.reproduction.files import read_paper
from audits.reproduction.seeds import require_reproduced
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Settings
from secure_fedrec.studies.hpfl.settings import METHODS

_NOT_PRINTED = "-"


class PaperTable(Settings):
    """The part of a table that is about one data set.

    Args:
        number: of the table in the paper.
        title: what it shows.
        data: name of the data set here.
        paper_name: what the paper calls it, and what is different about ours.
        measures: names of the columns.
        ours: further measures, which the paper does not have: names, those of other records than
            the test records with their part in front ("train.doa").
        rows: method to one number per measure; None where the paper has none.
        compared: methods that are compared seed by seed, one less the other.
    """

    number: int
    title: str
    data: str
    paper_name: str
    measures: tuple[str, ...]
    rows: Mapping[str, tuple[Any, ...]]
    ours: tuple[str, ...] = ()
    compared: tuple[tuple[str, str], ...] = ()

    def _agree(self) -> None:
        printed = {
            method: tuple(None if cell == _NOT_PRINTED else cell for cell in cells)
            for method, cells in self.rows.items()
        }
        object.__setattr__(self, "rows", printed)

    @property
    def every_measure(self) -> tuple[str, ...]:
        """The paper's measures, then ours."""
        return (*self.measures, *self.ours)

    def only(self, methods: Sequence[str] | None) -> "PaperTable":
        """The rows of some methods; None for all."""
        rows = {name: row for name, row in self.rows.items() if not methods or name in methods}
        return replace(self, rows=rows)


class Variants(Settings):
    """Variants of HPFL, one setting each, that no table of the paper has.

    Args:
        data: name of the data set.
        measure: what they are compared by.
        rows: what a variant is, to (method, grid).
    """

    data: str
    measure: str
    rows: Mapping[str, tuple[str, str]]


class Paper(Settings):
    """A paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        figure_methods: methods whose users' characteristics are drawn.
        tables: in its order.
        variants: beside them.
    """

    title: str
    seeds: tuple[int, ...]
    figure_methods: tuple[str, ...]
    tables: tuple[PaperTable, ...]
    variants: Variants

    def select(
        self,
        numbers: Sequence[int] | None = None,
        *,
        data: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
    ) -> tuple[PaperTable, ...]:
        """Some of the tables, and of their rows; None for all.

        Raises:
            ConfigError: there is no such table, data set or method, or no table has all of these.
        """
        require_reproduced("--table", numbers, sorted({table.number for table in self.tables}))
        require_reproduced("--data", data, sorted({table.data for table in self.tables}))
        require_reproduced("--method", methods, METHODS)
        chosen = [
            table.only(methods)
            for table in self.tables
            if (not numbers or table.number in numbers) and (not data or table.data in data)
        ]
        filled = tuple(table for table in chosen if table.rows)
        if not filled:
            raise ConfigError("--method", methods, "is in no table that was asked for")
        return filled


def load_paper() -> Paper:
    """Read the paper's numbers."""
    raw = read_paper("hpfl")
    compared = raw.pop("compared")
    tables = [
        PaperTable(**head, data=part.pop("name"), compared=compared, **part)
        for head in raw["tables"]
        for part in head.pop("data")
    ]
    variants = Variants(**raw["variants"])
    return Paper(**{**raw, "tables": tables, "variants": variants})
