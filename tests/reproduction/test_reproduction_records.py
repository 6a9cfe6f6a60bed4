"""Every table of every page is made again from the studies in ``docs/records``, to the last digit.

What is not is named on the page of all reproductions, with the reason, and nothing else is named.
"""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from audits.reproduction.papers import entries
from docs.study_records import pack
from secure_fedrec.studies.files import read_arrays, read_report, write_files
from tests.reproduction.page_rows import DOCS, PAGES, section_of, tables_of, teller

LEFT_OUT = "What the records leave out"


def left_out(paper: str) -> set[tuple[str, ...]]:
    """Tables of a paper, or some of their rows, that are not in its records, as the page has it."""
    page = section_of((DOCS / "reproduction.md").read_text(encoding="utf-8"), LEFT_OUT)
    lines = [line[1:-1].split("|") for line in page.splitlines() if line.startswith("|")]
    return {
        tuple(part.strip() for part in name.split(";"))
        for title, name, _ in lines
        if title.strip().lower() == paper
    }


def test_every_paper_has_a_page() -> None:
    assert set(PAGES) == set(entries())


@pytest.mark.parametrize("paper", PAGES)
def test_every_table_of_a_page_is_made_again_from_its_records(paper: str, tmp_path: Path) -> None:
    name, heading, rows_of = PAGES[paper]
    page = (DOCS / name).read_text(encoding="utf-8")
    tables = tables_of(page if heading is None else section_of(page, heading))
    named = left_out(paper)
    if not (DOCS / "records" / f"{paper}.zip").exists():
        assert named == {("every table",)}
        return
    made = set(rows_of(teller(paper, tmp_path)))
    outside = {}
    for table in tables:
        missing = [row for row in table.rows if row not in made]
        some = () if len(missing) == len(table.rows) else tuple(row[0] for row in missing)
        if missing:
            outside[(table.name, *some)] = missing
    assert {name: rows for name, rows in outside.items() if name not in named} == {}
    assert named == outside.keys(), "what is named is made, or is not on the page"
    assert tables


def test_records_hold_the_arrays_of_tables_and_no_others(tmp_path: Path) -> None:
    studies, report = tmp_path / "studies", {"format": 1, "figure": 0.5}
    for name in ("one", "other"):
        kept = {"vectors": np.arange(4.0), "state": np.ones(9)} if name == "one" else {}
        write_files(studies / f"{name}.json", report, kept)
    (studies / "begun.checkpoint").write_text("")
    for arrays, left in ((None, {"vectors", "state"}), (("vectors",), {"vectors"}), ((), set())):
        packed, again = tmp_path / "packed.zip", tmp_path / "again.zip"
        assert pack(studies, packed, arrays) == pack(studies, again, arrays) == 2 + bool(left)
        assert packed.read_bytes() == again.read_bytes()
        unpacked = tmp_path / f"unpacked {arrays}"
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(unpacked)
        for name in ("one", "other"):
            assert read_report(unpacked / f"{name}.json", 1, paper="no") == report
        assert not left or set(read_arrays(unpacked / "one.json")) == left
        assert len(list(unpacked.iterdir())) == 2 + bool(left)
