"""``reproduce``: the paper's numbers beside ours, and where ours come from."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits import cli
from audits.reproduction.hpfl import paper as made
from audits.reproduction.hpfl.paper import (
    Needed,
    PaperTable,
    StudySource,
    find_studies,
    load_paper,
    needed_study,
)
from audits.reproduction.hpfl.tables import as_lines, compare_table, needed_studies
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import Found
from audits.reproduction.projection import embed
from audits.systems.hpfl.organisations import organisation_rules
from secure_fedrec.data import SyntheticOrganisationsConfig, generate_organisations
from secure_fedrec.errors import ConfigError, DataError, DivergedError
from secure_fedrec.evaluation import Rule
from secure_fedrec.models.gum.model import STARTS
from secure_fedrec.studies.hpfl import table_entry
from secure_fedrec.studies.hpfl.settings import METHODS

TABLE = PaperTable(
    number=2,
    title="Accuracy",
    data="ml-100k-zip",
    paper_name="MovieLens",
    measures=("rmse", "doa"),
    rows={"hpfl": (0.978, 0.699), "fedavg": (0.993, None), "ncf": (0.988, 0.505)},
    compared=load_paper().tables[0].compared,
)


def report(rmse: float, **ranking: float) -> Found:
    return Found({"test": {"rmse": rmse}, "ranking": {"test": ranking}}, Path("none"))


@pytest.fixture
def measured() -> dict[Needed, Found]:
    rmse = {"hpfl": (0.97, 0.99), "fedavg": (1.00, 1.01), "ncf": (0.93, 0.95)}
    return {
        needed_study("ml-100k-zip", method, seed, "xavier"): report(
            values[seed - 1], **({} if method == "ncf" else {"doa": 0.6})
        )
        for method, values in rmse.items()
        for seed in (1, 2)
    }


def test_trivial_rules_stand_in_the_table(measured: dict[Needed, Found]) -> None:
    rules = [{"user mean": Rule(figures={"rmse": value}, local=True)} for value in (1.0, 1.1)]
    table = compare_table(TABLE, measured, (1, 2), "xavier", rules)
    row = table["rows"][-1]
    assert (row["method"], row["seeds"]) == ("user mean", 2)
    assert row["paper"] == {"rmse": None, "doa": None}
    assert row["ours"]["rmse"]["mean"] == pytest.approx(1.05)
    assert row["ours"]["doa"]["mean"] is None
    assert any(re.match(r"user mean +- \| 1\.050", line) for line in as_lines(table))
    # A table of measures that no rule has is left as it is.
    other = replace(TABLE, measures=("doa",), rows={"hpfl": (0.699,)})
    assert [
        row["method"] for row in compare_table(other, measured, (1, 2), "xavier", rules)["rows"]
    ] == ["hpfl"]


def test_rules_of_organisations_use_their_own_splits() -> None:
    own = generate_organisations(
        SyntheticOrganisationsConfig(clients=3, users=15, items=40, binary=False, seed=1)
    )
    rules = organisation_rules(own)
    train, test = own.pooled().train, own.pooled().test
    overall = np.full(len(test), train.scores.mean())
    assert rules["global mean"].figures["rmse"] == pytest.approx(
        np.sqrt(np.mean((overall - test.scores) ** 2))
    )
    within = np.concatenate(
        [
            own.train.of(client).scores.mean() - own.test.of(client).scores
            for client in range(own.n_clients)
        ]
    )
    mean = rules["mean score of the organisation"]
    assert mean.local
    assert mean.figures["rmse"] == pytest.approx(np.sqrt(np.mean(within**2)))
    assert not rules["user mean + item bias"].local


def test_means_and_paired_intervals(measured: dict[Needed, Found]) -> None:
    table = compare_table(TABLE, measured, (1, 2), "xavier")
    rows = {row["method"]: row for row in table["rows"]}
    assert rows["hpfl"]["paper"] == {"rmse": 0.978, "doa": 0.699}
    assert rows["hpfl"]["ours"]["rmse"]["mean"] == pytest.approx(0.98)
    assert rows["hpfl"]["ours"]["rmse"]["deviation"] == pytest.approx(0.01 * 2**0.5)
    assert rows["fedavg"]["paper"]["doa"] is None
    assert rows["ncf"]["ours"]["doa"]["mean"] is None
    (against,) = table["differences"]
    assert (against["method"], against["other"]) == ("hpfl", "fedavg")
    gap = against["measures"]["rmse"]
    # Differences -0.03 and -0.02: mean -0.025, deviation 0.00707, t(1) at 97.5 % is 12.706.
    assert gap["mean"] == pytest.approx(-0.025)
    assert gap["high"] - gap["mean"] == pytest.approx(12.7062 * 0.0070711 / 2**0.5, rel=1e-4)


def test_one_seed_has_no_interval(measured: dict[Needed, Found]) -> None:
    table = compare_table(TABLE, measured, (1,), "xavier")
    assert table["differences"][0]["measures"]["rmse"]["low"] is None
    assert table["rows"][0]["ours"]["rmse"]["deviation"] is None


def test_text_shows_both(measured: dict[Needed, Found]) -> None:
    text = "\n".join(as_lines(compare_table(TABLE, measured, (1, 2), "xavier")))
    assert "0.978 | 0.980" in text
    assert "- | 0.600" in text  # not printed in the paper
    assert "0.505 | -" in text  # no such measure here
    assert "hpfl - fedavg: rmse −0.0250 [−0.0885, +0.0385]" in text


def test_a_study_that_there_is_not_leaves_a_gap(measured: dict[Needed, Found]) -> None:
    del measured[needed_study("ml-100k-zip", "fedavg", 1, "xavier")]
    for seed in (1, 2):
        del measured[needed_study("ml-100k-zip", "ncf", seed, "xavier")]
    table = compare_table(TABLE, measured, (1, 2), "xavier")
    rows = {row["method"]: row for row in table["rows"]}
    assert [rows[name]["seeds"] for name in ("hpfl", "fedavg", "ncf")] == [2, 1, 0]
    assert rows["fedavg"]["ours"]["rmse"] == {
        "mean": pytest.approx(1.01),
        "deviation": None,
        "values": [None, 1.01],
    }
    (against,) = table["differences"]  # of the one seed that both have
    assert against["measures"]["rmse"] == {"mean": pytest.approx(-0.02), "low": None, "high": None}
    assert against["seeds"] == 1
    text = "\n".join(as_lines(table))
    assert "hpfl - fedavg (1): rmse −0.0200" in text
    assert "of fewer where a number says so" in text
    assert "fedavg (1) " in text
    assert "ncf (0) " in text
    assert "0.988 | -" in text
    without = {each: found for each, found in measured.items() if each.method == "hpfl"}
    assert compare_table(TABLE, without, (1, 2), "xavier")["differences"] == []


def test_numbers_are_those_of_the_paper() -> None:
    """Spot checks, and the claims that the paper makes in words."""
    paper = load_paper()
    assert {table.number for table in paper.tables} == {2, 3, 4, 5}
    by = {(table.number, table.data): table for table in paper.tables}
    assert by[2, "assist2009"].rows["hpfl"] == (0.726, 0.742, 0.431)
    assert by[2, "ml-100k-zip"].rows["fedsgd"] == (0.341, 0.933, 1.111)
    assert by[4, "ml-100k-zip"].rows["hpfl"] == (0.699, 0.910)
    assert by[5, "assist2009"].rows["hpfl-r"] == (30.292,)
    assert set(paper.figure_methods) <= set(METHODS)
    for table in paper.tables:
        assert set(table.rows) <= set(METHODS)
        assert all(len(row) == len(table.measures) for row in table.rows.values())
        assert len(table.compared) == len(set(table.compared)) == 17
        assert {method for pair in table.compared for method in pair} <= set(METHODS)


def test_tables_are_selected() -> None:
    paper = load_paper()
    starts = STARTS
    assert [table.data for table in paper.select((3,))] == ["assist2009"]
    assert len(needed_studies(paper.select((5,)), (1, 2), starts[:1])) == 2 * 5 * 2
    assert len(needed_studies(paper.select((5,)), (1, 2), starts)) == 2 * 2 * 5 * 2
    # Table 3 needs nothing that table 2 has not run.
    both = needed_studies(paper.select((2, 3)), (1,), starts)
    assert set(both) == set(needed_studies(paper.select((2,)), (1,), starts))
    # A network with a start of its own is run once.
    networks = [each for each in both if each.method in {"ncd", "ncf"}]
    assert [each.start for each in networks] == ["own"] * 2
    chosen = paper.select((2, 5), data=["ml-100k-zip"], methods=["hpfl", "fedsgd"])
    assert [(table.number, list(table.rows)) for table in chosen] == [
        (2, ["fedsgd", "hpfl"]),
        (5, ["hpfl"]),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["fedrec"],
        ["hpfl", "--table", "9"],
        ["hpfl", "--seeds", "6"],
        ["hpfl", "--seeds", "0"],
        ["hpfl", "--quick", "--form", "own"],
        ["hpfl", "--quick", "--start", "own"],
        ["hpfl", "--quick", "--start", "published"],
        ["hpfl", "--quick", "--method", "fedx"],
        ["hpfl", "--quick", "--data", "ml-1m"],
        ["hpfl", "--quick", "--table", "5", "--method", "ncf"],
        ["hpfl", "--quick", "--variants"],
        ["hpfl", "--variants", "--method", "hpfl"],
        ["furl", "--quick", "--start", "xavier"],
        ["furl", "--quick", "--variants"],
        ["hpfl", "--quick", "--task", "stickers"],
        ["hpfl", "--quick", "--no-run"],
        ["fed3cr", "--quick", "--table", "3", "--method", "fedmf"],
        ["fed3cr", "--quick", "--figure", "6", "--method", "pfedrec", "--method", "lightgcn"],
    ],
)
def test_bad_usage(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", *words, "--out", str(tmp_path), "--quiet"]) == 2
    assert "secure-fedrec:" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_a_file_in_the_place_of_the_folder_is_found_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by attacking: it was found when all studies had been run."""
    (tmp_path / "out").touch()
    words = ["reproduce", "hpfl", "--quick", "--results", str(tmp_path)]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "--out" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_missing_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "hpfl", "--table", "4", "--data-dir", str(tmp_path), "--quiet"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "secure-fedrec data get ml-100k" in capsys.readouterr().err


def test_measures_of_other_records_are_ours_alone(measured: dict[Needed, Found]) -> None:
    table = replace(TABLE, rows={"hpfl": (0.978, 0.699)}, ours=("validation.rmse", "train.doa"))
    place = needed_study("ml-100k-zip", "hpfl", 1, "xavier")
    measured[place] = Found(
        {
            "test": {"rmse": 0.5},
            "validation": {"rmse": 0.4},
            "ranking": {"test": {"doa": 0.6}, "train": {"doa": 0.7}},
        },
        Path("none"),
    )
    (row,) = compare_table(table, measured, (1,), "xavier")["rows"]
    assert {name: ours["mean"] for name, ours in row["ours"].items()} == {
        "rmse": 0.5,
        "doa": 0.6,
        "validation.rmse": 0.4,
        "train.doa": 0.7,
    }
    assert row["paper"]["train.doa"] is None


def test_variants_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One setting each on the data and grids of the paper's file, under both starts."""
    ran: list[Needed] = []

    def run(needed: Needed, source: StudySource, on_round: Any) -> Found:
        assert len(source.config(needed).settings) == 1
        ran.append(needed)
        reached = {"test": {"auc": len(ran) / 100}, "validation": {"auc": 0.5}}
        return Found(reached, Path("none"))

    monkeypatch.setattr(made, "_run", run)
    words = ["reproduce", "hpfl", "--variants", "--quiet", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    rows = load_paper().variants.rows
    assert len(ran) == len(set(ran)) == 2 * len(rows)
    assert {each.start for each in ran} == {"xavier", "identity"}
    result = json.loads((tmp_path / "hpfl-variants.json").read_text())
    assert [each["variant"] for each in result["variants"]] == list(rows)
    place = list(rows).index("HPFL as printed")
    printed = result["variants"][place]["auc"]
    assert {start: one["test"] for start, (one,) in printed.items()} == {
        "xavier": (place + 1) / 100,
        "identity": (place + 1 + len(rows)) / 100,
    }
    text = capsys.readouterr().out
    assert re.search(r"HPFL as printed +0\.0400 \(0\.5000\) +0\.1600 \(0\.5000\)\n", text)
    monkeypatch.setattr(made, "_run", None)
    assert cli.main([*words, "--no-run"]) == 2


def test_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(DataError, match=r"one.json: is not a study"):
        find_studies(
            [needed_study("ml-100k-zip", "hpfl", 1, "xavier")], StudySource(folder=tmp_path)
        )


def test_embedding_keeps_neighbours_and_is_the_same_again() -> None:
    generator = np.random.default_rng(1)
    points = np.concatenate([generator.normal(size=(20, 5)) + 20 * side for side in (0, 1)])
    plane = embed(points, seed=0)
    np.testing.assert_array_equal(plane, embed(points, seed=0))
    distances = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert np.all((np.argmin(distances, axis=1) < 20) == (np.arange(40) < 20))


def test_paper_file_is_plain_numbers() -> None:
    raw = tomllib.loads((Path(cli.__file__).parent / "papers" / "hpfl.toml").read_text())
    assert raw["seeds"] == [1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="cannot be reproduced"):
        read_paper("nobody")


def test_a_method_that_diverges_is_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = table_entry.run_study

    def diverges(organisations: Any, config: Any, **options: Any) -> Any:
        if config.method == "fedatt":
            raise DivergedError("study.grid", config.grid, "every setting of fedatt diverged")
        return run(organisations, config, **options)

    monkeypatch.setattr(made, "run_study", diverges)
    source = StudySource(folder=tmp_path, quick=True, progress=False)
    needed = [needed_study("ml-100k-zip", name, 1, "xavier") for name in ("fedatt", "fedsgd")]
    assert list(find_studies(needed, source)) == needed[1:]
    told = "left out, fedatt on ml-100k-zip from xavier, seed 1: every setting of fedatt diverged"
    assert told in capsys.readouterr().err
