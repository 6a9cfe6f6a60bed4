"""The pages of reproductions say what the studies in ``docs/records`` say, to the last digit."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from audits import cli

DOCS = Path(__file__).parents[2] / "docs"
HIT, NDCG = "hit_rate_at_10", "ndcg_at_10"


def told(tmp_path: Path, paper: str, *words: str) -> dict[str, Any]:
    """What the command says of the records, with nothing run."""
    studies = tmp_path / "studies"
    with zipfile.ZipFile(DOCS / "records" / f"{paper}.zip") as packed:
        packed.extractall(studies)
    given = ["--no-run", "--quiet", "--results", str(studies), "--out", str(tmp_path)]
    assert cli.main(["reproduce", paper, *words, *given]) == 0
    result: dict[str, Any] = json.loads((tmp_path / f"{paper}.json").read_text())
    return result


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def span(found: Mapping[str, float]) -> str:
    return f"{100 * found['value']:+.2f} [{100 * found['low']:+.2f}, {100 * found['high']:+.2f}]"


def row_of(row: Mapping[str, Any]) -> str:
    """A method's line in the tables of the page."""
    ours = row["ours"]
    cells = [row["name"], percent(ours[HIT]), percent(ours[NDCG]), span(row["gain"]["hit"])]
    cells += [percent(ours["warm_hit_rate_at_10"]), percent(ours["full_hit_rate_at_10"])]
    return f"| {' | '.join([*cells, str(row['seeds'])])} |"


@pytest.mark.parametrize(("protocol", "methods"), [("clean", 7), ("published", 4)])
def test_the_tables_of_fed3cr_are_those_of_its_records(
    protocol: str, methods: int, tmp_path: Path
) -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    result, found = told(tmp_path, "fed3cr", "--protocol", protocol, "--table", "2"), 0
    for table in result["tables"]:
        for row in (each for each in table["rows"] if each["seeds"]):
            assert row_of(row) in page, (table["data"], row["name"])
            found += 1
        for rule in table["oracles"].values():
            assert f"{percent(rule[HIT])} | {percent(rule[NDCG])}" in page
    assert found >= methods
