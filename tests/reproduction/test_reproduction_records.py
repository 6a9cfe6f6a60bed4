"""The pages of reproductions say what the studies in ``docs/records`` say, to the last digit."""

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from audits import cli
from audits.reproduction.columns import number, with_interval
from audits.reproduction.fed3cr.paper import load_paper
from audits.reproduction.fed3cr.tables import percent
from tests.reproduction.fed3cr_page import HIT, NDCG, along_of, row_of, span, varied_of

DOCS = Path(__file__).parents[2] / "docs"
FEDDMF_FIGURES = (("5", 10), ("organisations", 24))
"""Figures of FedDMF's page, and how many points of each its records have."""


def told(tmp_path: Path, paper: str, *words: str) -> dict[str, Any]:
    """What the command says of the records, with nothing run."""
    studies = tmp_path / "studies"
    with zipfile.ZipFile(DOCS / "records" / f"{paper}.zip") as packed:
        packed.extractall(studies)
    given = ["--no-run", "--quiet", "--results", str(studies), "--out", str(tmp_path)]
    assert cli.main(["reproduce", paper, *words, *given]) == 0
    result: dict[str, Any] = json.loads((tmp_path / f"{paper}.json").read_text())
    return result


@pytest.mark.parametrize(("protocol", "methods"), [("clean", 36), ("published", 24)])
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


def test_searches_of_fed3cr_had_one_budget_and_say_where_they_ended(tmp_path: Path) -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    words = ("--protocol", "clean", "--data", "ml-100k", "--table", "2")
    (table,) = told(tmp_path, "fed3cr", *words)["tables"]
    budget = load_paper(quick=False).budget
    for row in table["rows"]:
        assert 0 < row["tuning"]["studies"] <= budget
        for keys in row["tuning"]["along"]:
            assert along_of(row, keys) in page, (row["name"], keys)


def part_of(row: Mapping[str, Any]) -> str:
    """A line of the tables of ablations: which parts there are, and what is found with them."""
    ours, over = row["ours"], row["over_c0"]
    cells = [row["row"], *("yes" if part else "" for part in row["parts"])]
    cells += [percent(ours[HIT]), percent(ours[NDCG]), span(over["hit"]) if over else ""]
    cells += [percent(ours["full_hit_rate_at_10"]), percent(row["last"][HIT])]
    cells.append("/".join(map(str, row["chosen"])))
    if printed := row["paper"]:
        cells += [f"{printed[name]:.2f}" for name in (HIT, NDCG)]
    return f"| {' | '.join(cells)} |"


def test_the_ablations_of_fed3cr_are_those_of_its_records(tmp_path: Path) -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    words = ("--protocol", "published", "--table", "3", "--seeds", "1")
    result, found = told(tmp_path, "fed3cr", *words), 0
    for table in result["tables"]:
        if all(row["seeds"] for row in table["rows"]):  # a few parts alone answer nothing
            for row in table["rows"]:
                assert part_of(row) in page, (table["data"], row["row"])
                found += 1
    assert found >= 24


@pytest.mark.parametrize(("protocol", "rows"), [("published", 1)])
def test_ideas_with_other_constants_are_those_of_the_records(
    protocol: str, rows: int, tmp_path: Path
) -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    words = ("--protocol", protocol, "--data", "ml-100k", "--figure", "sensitivity", "--seeds", "1")
    (figure,) = told(tmp_path, "fed3cr", *words)["figures"]
    for row in figure["rows"]:
        assert varied_of(row) in page, (row["idea"], row["value"])
    assert len(figure["rows"]) >= rows


def transfer_of(row: Mapping[str, Any]) -> str:
    """A line of the tables of transfers."""
    ours, over = row["ours"], row["over_ace"]
    cells = [row["row"], percent(ours[HIT]), percent(ours[NDCG]), span(over["hit"]) if over else ""]
    cells += [percent(ours["full_hit_rate_at_10"]), percent(row["last"][HIT])]
    return f"| {' | '.join([*cells, '/'.join(map(str, row['chosen']))])} |"


def test_the_transfers_and_views_of_fed3cr_are_those_of_its_records(tmp_path: Path) -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    words = ("--protocol", "published", "--data", "ml-100k", "--table", "4", "--seeds", "1")
    result = told(tmp_path, "fed3cr", *words, "--figure", "6", "--figure", "7")
    (table,) = result["tables"]
    for row in table["rows"]:
        assert transfer_of(row) in page, row["row"]
    assert len(table["rows"]) == 3
    overlap, correlation = result["figures"]
    assert f"{overlap['FedRAP']:.4f} in FedRAP, {overlap['Fed3CR']:.4f} in Fed3CR" in page
    both = f"{correlation['FedRAP']:.4f} and {correlation['Fed3CR']:.4f}"
    assert f"two tables of client 22: {both}" in page


def test_the_curves_beside_public_codes_are_those_of_the_records() -> None:
    page = (DOCS / "reproduction-fed3cr.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(DOCS / "records" / "fed3cr.zip") as packed:
        for method, seeds, shown in (
            ("pfedrec", (1, 2, 3, 4, 5), (5, 10, 20, 50, 100)),
            ("fedrap", (1,), (1, 2, 30, 40, 100)),
        ):
            names = [f"ml-100k-published-{method}-rounds100-seed{seed}.json" for seed in seeds]
            studies = [json.loads(packed.read(name))["rounds"] for name in names]
            for round_ in shown:
                each = [rounds[round_ - 1]["quality"] for rounds in studies]
                hit, ndcg = (
                    percent(sum(one[name] for one in each) / len(each)) for name in (HIT, NDCG)
                )
                row = rf"^\| {round_} \| [\d.-]+ \| {hit} \| [\d.-]+ \| {ndcg} \|$"
                assert re.search(row, page, re.MULTILINE), (method, round_, hit, ndcg)


def bar_of(point: Mapping[str, Any], against: Mapping[str, Any], varied: str | None) -> str:
    """A method's line in the tables of FedDMF's page."""
    name = point["method"] if varied is None else f"{point['at']:g}, {point['method']}"
    across, whole = (point["figures"][kind]["across"] for kind in ("sampled", "all"))
    shown = [across[each] for each in ("tuned", "printed", "auc")]
    shown += [point["figures"]["sampled"]["within"]["tuned"], whole["tuned"]]
    cells = [name, *(number(each["mean"], 4) for each in shown)]
    less = against.get("less", {})
    others = ("DMF on all data", "FedAvg", "popularity")
    cells += [with_interval(less[other], 4) if other in less else "" for other in others]
    return f"| {' | '.join([*cells, str(len(point['seeds']))])} |"


@pytest.mark.parametrize(("figure", "points"), FEDDMF_FIGURES)
def test_the_tables_of_feddmf_are_those_of_its_records(
    figure: str, points: int, tmp_path: Path
) -> None:
    page = (DOCS / "reproduction-feddmf.md").read_text(encoding="utf-8")
    (result,) = told(tmp_path, "feddmf", "--figure", figure)["figures"]
    varied = result["varied"]
    against = {each["method"]: each for each in result["against"]}
    for point in result["points"]:
        name = point["method"] + ("" if varied is None else f", {varied} {point['at']:g}")
        assert bar_of(point, against.get(name, {}), varied) in page
    assert len(result["points"]) == points
