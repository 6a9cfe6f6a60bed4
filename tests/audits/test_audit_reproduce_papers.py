"""``reproduce``: papers register themselves; quick runs of those with studies of many files."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from audits import cli, command_line
from audits.reproduction.fed3cr.choice import Library
from audits.reproduction.fed3cr.paper import Needed, Place, StudySource
from audits.reproduction.fed3cr.paper import load_paper as load_fed3cr
from audits.reproduction.fed3cr.search import Setting, ordered
from audits.reproduction.feddmf import file_name
from audits.reproduction.feddmf import load_paper as load_feddmf
from audits.reproduction.fedrecpp import load_paper as load_fedrecpp
from audits.reproduction.numbers import in_columns
from audits.reproduction.papers import OPTIONS, Entry, entries, paper_names, run_of
from audits.reproduction.progress import Found, StudyFolder
from secure_fedrec.errors import ConfigError
from secure_fedrec.studies.fed3cr.methods import FAMILY, METHODS, build_method
from secure_fedrec.studies.fed3cr.study import WARM

RECORDS = Path(__file__).parents[2] / "docs" / "records" / "fed3cr.zip"


def run(out: Path, *words: str) -> tuple[dict[str, Any], str]:
    assert cli.main(["reproduce", *words, "--quiet", "--out", str(out)]) == 0
    name = words[0]
    return json.loads((out / f"{name}.json").read_text()), (out / f"{name}.txt").read_text()


def test_every_paper_has_a_package_and_a_file() -> None:
    assert list(entries()) == paper_names() == ["fed3cr", "feddmf", "fedrecpp", "furl", "hpfl"]
    for name in entries():
        assert callable(run_of(name))


def test_a_paper_has_no_option_that_the_command_lacks() -> None:
    assert {name for each in entries().values() for name in each.options} == OPTIONS.keys()
    with pytest.raises(ConfigError, match=r"reproduce\.options"):
        Entry(seeds="1", options=("figure", "drawing"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fedrecpp", "--protocol", "clean"], "is an option of fed3cr only"),
        (["furl", "--figure", "3"], "is an option of fed3cr and feddmf and fedrecpp only"),
        (["feddmf", "--table", "1"], "is not a value that is reproduced"),
        (["fed3cr", "--figure", "5"], "is not a value that is reproduced"),
        (["fed3cr", "--protocol", "fair"], "is not a value that is reproduced"),
        (["fedrecpp", "--data", "nf5k5k"], "is not a value that is reproduced"),
    ],
)
def test_bad_usage(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *words, "--quick", "--quiet", "--out", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("paper", ["fed3cr", "feddmf", "fedrecpp"])
def test_without_studies_there_is_nothing_to_tell(
    paper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", paper, "--no-run", "--quiet", "--out", str(tmp_path)]
    assert cli.main(words) == 2
    assert "holds no study" in capsys.readouterr().err


@pytest.mark.parametrize("paper", ["furl", "hpfl"])
def test_papers_that_share_a_folder_leave_each_other_alone(
    paper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found in a review: HPFL and FURL took others' studies for damaged ones of theirs."""
    other = command_line.parse(["reproduce", "fed3cr", "--out", str(tmp_path)])
    with ZipFile(RECORDS) as records:
        name = next(each for each in records.namelist() if each.endswith(".json"))
        records.extract(name, StudyFolder.options(other)["folder"])
    assert cli.main(["reproduce", paper, "--no-run", "--quiet", "--out", str(tmp_path)]) == 2
    assert f"holds no study of {paper.upper()}" in capsys.readouterr().err


def test_quick_fedrecpp(tmp_path: Path) -> None:
    result, text = run(tmp_path, "fedrecpp", "--quick")
    errors, costs = result["tables"]
    rows = {(row["method"], row["rho"]): row for row in errors["rows"]}
    assert rows["fedrec", 0]["paper"]["mae"] == 0.7418
    for rho in (1, 2, 3):
        assert rows["fedrec++", rho]["same_bits_as_no_virtual_ratings"] is True
        assert rows["fedrec", rho]["same_bits_as_no_virtual_ratings"] is False
        assert rows["fedrec++", rho]["ours"] == rows["fedrec", 0]["ours"]
    assert [row["denoisers"] for row in costs["rows"]] == ["0", "1", "n/4", "n/2"]
    assert [row["count"] for row in costs["rows"]] == [0, 1, 15, 30]
    assert len(result["points"][0]["points"]) == 3 * 7
    assert "NOT ITS DATA" in text
    assert (tmp_path / "fedrecpp-shares-ml-100k.svg").read_text().startswith("<svg xmlns")
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "studies-fedrecpp-quick").iterdir()
    }
    again, _ = run(tmp_path, "fedrecpp", "--quick", "--table", "2")
    assert again["tables"] == [errors]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_quick_fed3cr(tmp_path: Path) -> None:
    words = ["fed3cr", "--quick", "--table", "2", "--figure", "6", "--figure", "7"]
    few = ["--method", "pfedrec", "--method", "fed3cr", "--method", "fedrap"]
    result, text = run(tmp_path, *words, *few, "--protocol", "clean")
    (table,) = result["tables"]
    assert [row["method"] for row in table["rows"]] == ["pfedrec", "fedrap", "fed3cr"]
    assert set(table["oracles"]) == {"random", "popularity", "never drawn"}
    assert table["warning"] is None
    for row in table["rows"]:
        found = row["gain"]["hit"]
        assert found["low"] <= found["value"] <= found["high"]
        popularity = table["oracles"]["popularity"]["hit_rate_at_10"]
        # Popularity's ties are told as an expectation, float32 per client.
        gap = row["ours"]["hit_rate_at_10"] - popularity
        assert found["value"] == pytest.approx(gap, abs=1e-6)
        warm = table["oracles"]["popularity"][WARM]
        gap = row["ours"][WARM] - warm
        assert row["gain"]["warm"]["value"] == pytest.approx(gap, abs=1e-6)
        assert warm > popularity  # popularity never finds a cold item before a known one
    assert "warm HR less popularity" in text
    assert [each["figure"] for each in result["figures"]] == ["6", "7"]
    assert "Fed3CR - FedRAP: HR" in text
    for each in result["figures"]:
        assert Path(each["drawing"]).read_text().startswith("<svg xmlns")


def test_quick_fed3cr_ablation_and_warning(tmp_path: Path) -> None:
    words = ["fed3cr", "--quick", "--table", "3", "--table", "2", "--method", "fed3cr"]
    result, text = run(tmp_path, *words, "--protocol", "published")
    ablation = next(table for table in result["tables"] if table["number"] == 3)
    assert [row["row"] for row in ablation["rows"]] == [*(f"C{n}" for n in range(7)), "Fed3CR"]
    assert all(row["seeds"] == 1 for row in ablation["rows"])
    assert ablation["rows"][0]["over_c0"] is None
    assert "WARNING: protocol 'published' leaks" in text


def test_quick_fed3cr_transfers(tmp_path: Path) -> None:
    """ACE's row is that of table 3 without the losses: one study serves both."""
    words = ["fed3cr", "--quick", "--table", "4", "--table", "3", "--protocol", "clean"]
    result, text = run(tmp_path, *words)
    ablation, transfers = result["tables"]
    rows = {row["row"]: row for row in transfers["rows"]}
    assert list(rows) == ["Consensus transfer", "Unified transfer", "ACE"]
    (c1,) = (row for row in ablation["rows"] if row["row"] == "C1")
    assert rows["ACE"]["files"] == c1["files"]
    assert rows["ACE"]["ours"] == c1["ours"]
    assert rows["ACE"]["over_ace"] is None
    for name, transfer in (("Consensus transfer", "consensus"), ("Unified transfer", "unified")):
        assert rows[name]["setting"]["enhancement.transfer"] == transfer
        found = rows[name]["over_ace"]["hit"]
        gap = rows[name]["ours"]["hit_rate_at_10"] - rows["ACE"]["ours"]["hit_rate_at_10"]
        assert found["value"] == pytest.approx(gap, abs=1e-6)
    assert "Table 4, ml-100k (not in the paper), protocol clean, 3 rounds" in text


def test_quick_feddmf(tmp_path: Path) -> None:
    result, text = run(tmp_path, "feddmf", "--quick", "--figure", "5", "--figure", "8")
    bars, lines = result["figures"]
    assert "DMF on all data" in text
    assert bars["missing"] == lines["missing"] == 0
    assert {point["at"] for point in lines["points"]} == {0.1, 0.9}
    for figure in (bars, lines):
        for point in figure["points"]:
            assert len(point["organisations"]) == 2
            across = point["figures"]["sampled"]["across"]["tuned"]["mean"]
            of_each = [each["across"]["mean"] for each in point["organisations"]]
            assert across == pytest.approx(sum(of_each) / 2)
    against = {each["method"]: each for each in bars["against"]}
    central = next(p for p in bars["points"] if p["method"] == "DMF on all data")
    mine = next(p for p in bars["points"] if p["method"] == "FedDMF, summed, margin 0")
    popular = next(p for p in bars["points"] if p["method"] == "popularity")
    for kind in ("sampled", "all"):
        one, two, whole = (
            point["figures"][kind]["across"]["tuned"]["mean"] for point in (mine, popular, central)
        )
        told = against["FedDMF, summed, margin 0"]
        assert told["share_of_central"][f"{kind} pairs"] == pytest.approx(one / whole)
        assert told["popularity_share"][f"{kind} pairs"] == pytest.approx(two / whole)
    gaps = {point["method"]: point["less"] for point in lines["against"]}
    assert gaps.keys() == {
        f"FedDMF, exchanged, margin {margin:g}, users {share:g}"
        for margin in (0, 0.2)
        for share in (0.1, 0.9)
    }
    assert all(less.keys() == {"popularity"} for less in gaps.values())
    assert all(Path(path).read_text().startswith("<svg xmlns") for path in result["drawings"])


def test_every_pinned_setting_is_one() -> None:
    paper = load_fed3cr(quick=False)
    assert set(METHODS) >= {f"fed3cr-over-{name}" for name in paper.figure8["methods"]}
    assert not {"fed3cr-over-fed3cr", "fed3cr-over-perfedrec", "fed3cr-over-gpfedrec"} & {*METHODS}
    for method in METHODS:
        if method.removeprefix("fed3cr-over-") in FAMILY:
            settings = [paper.pinned(Place(name, "published"), method) for name in paper.data]
            for setting in (*settings, *paper.carried(method)):
                build_method(method, dict(setting), rounds=1, n_items=4)
    for row, parts in paper.parts.items():
        kept = dict(paper.with_parts((), row))
        whole = build_method("fed3cr", kept, rounds=1, n_items=4)
        found = whole.knowledge()["enhancement"]
        has = [found["adaptive"], found["consistency"] > 0, found["complementarity"] > 0]
        assert has == list(parts)
    for row, transfer in paper.transfers.items():
        kept = dict(paper.with_transfer((("enhancement.consistency", 0.7),), row))
        found = build_method("fed3cr", kept, rounds=1, n_items=4).knowledge()["enhancement"]
        assert found.get("transfer", "adaptive") == transfer
        assert found["consistency"] == found["complementarity"] == 0
    assert paper.with_transfer((), "ACE") == paper.with_parts((), "C1")


def test_studies_of_other_sets_are_few() -> None:
    paper = load_fed3cr(quick=False)
    assert [paper.tuned(Place(name, "clean")) for name in ("ml-100k", "ml-1m")] == [True, False]
    assert not paper.tuned(Place("ml-100k", "published"))
    assert [paper.candidates(name) for name in ("lastfm-2k", "douban-book", "ml-1m")] == [2, 2, 1]
    assert paper.repetitions(Place("ml-100k", "clean")) == (1, 2, 3)
    assert paper.rounds(Place("ml-100k", "clean")) == 40
    assert paper.rounds(Place("ml-1m", "clean")) == 30


class Asked:
    """Studies that are made up: what was asked for, and what they came to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.needed: list[Needed] = []
        self.diverging: set[tuple[Setting, int]] = set()
        self.paper = load_fed3cr(quick=False)
        self.library = Library(StudySource(paper=self.paper, folder=folder), None)
        self._folder = folder
        monkeypatch.setattr("audits.reproduction.fed3cr.choice.find_studies", self._studied)

    def _studied(self, needed: Iterable[Needed], _: StudySource) -> dict[Needed, Found]:
        found = list(needed)
        self.needed.extend(found)
        return {each: Found(self._report(each), self._folder) for each in found}

    def _report(self, each: Needed) -> dict[str, Any]:
        if (each.setting, each.seed) in self.diverging:
            return {"diverged": "round 1"}
        rate = dict(each.setting).get("item_learning_rate", 1.0)
        merit = 1 / (1 + abs(math.log10(rate / 32000.0)))  # far from where the search begins
        # The best round lies beyond the usual ones, wherever training ends before it.
        best = 5 * self.paper.rounds(each.place, method=each.method) // 4
        names = ("validation_hit_rate_at_10", "validation_ndcg_at_10")
        rounds = [{"quality": dict.fromkeys(names, merit)}] * each.rounds
        return {"rounds": rounds, "chosen": min(best, each.rounds)}

    def of(self, place: Place, method: str = "fedmf") -> list[Needed]:
        return [each for each in self.needed if (each.place, each.method) == (place, method)]


HOME, AWAY = Place("ml-100k", "clean"), Place("lastfm-2k", "clean")


@pytest.mark.parametrize("diverging", [False, True])
def test_a_search_finds_finalists_that_are_trained_to_their_best_round(
    diverging: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Asked(monkeypatch, tmp_path)
    library, space = asked.library, asked.paper.space("fedmf")
    start = dict(space.setting(tuple(axis.begin() for axis in space.axes)))
    best = ordered({**start, "item_learning_rate": 32000.0})
    if diverging:  # on a seed that chooses nothing
        asked.diverging = {(best, 3)}
    library.fetch_methods([HOME], {HOME: ["fedmf"]})
    trained = asked.of(HOME)
    assert len(trained) == len(set(trained))
    usual = asked.paper.rounds(HOME, method="fedmf")
    searched = [each for each in trained if each.seed == 1 and each.rounds == usual]
    assert len(searched) <= asked.paper.budget
    assert trained[: len(searched)] == searched
    chosen, tuning = library.best(HOME, "fedmf"), library.tuning(HOME, "fedmf")
    assert chosen is not None
    assert tuning is not None
    assert sorted(chosen.found) == [1, 2, 3]
    if diverging:
        assert chosen.setting != best
        assert not {each for each in trained if each.setting == best and each.rounds > usual}
    else:
        assert chosen.setting == best
        assert tuning.edges == []
    assert {len(each.report["rounds"]) for each in chosen.found.values()} == {2 * usual}
    # Five eighths of these are not at the end.
    assert {each.rounds for each in trained} == {usual, 2 * usual}
    assert tuning.studies == len(searched)


def test_on_another_set_the_next_setting_is_tried_where_all_diverge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for diverging in (0, 1, 2, 3, 100):
        asked = Asked(monkeypatch, tmp_path)
        carried = asked.paper.carried("fedncf")
        asked.diverging = {(each, 1) for each in carried[:diverging]}
        asked.library.fetch_methods([AWAY], {AWAY: ["fedncf"]})
        tried = [each.setting for each in asked.of(AWAY, "fedncf")]
        count = min(max(2, diverging + 1), len(carried))
        assert tried == carried[:count]
        assert asked.library.tuning(AWAY, "fedncf") is None
        chosen = asked.library.best(AWAY, "fedncf")
        assert (chosen is None) == (diverging == 100)
        assert asked.of(HOME, "fedncf") == []


def test_on_another_set_a_method_without_settings_has_the_finalists_of_its_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, method = Asked(monkeypatch, tmp_path), "fed3cr-over-fedmf"
    assert not asked.paper.carried(method)
    asked.library.fetch_methods([AWAY], {AWAY: [method]})
    searched = [each for each in asked.needed if each.place == HOME and each.method == method]
    assert 1 < len(searched) <= asked.paper.budget
    tried = [each.setting for each in asked.needed if each.place == AWAY and each.method == method]
    assert len(tried) == asked.paper.candidates(AWAY.data)
    assert set(tried) <= {each.setting for each in searched}


def test_files_of_different_studies_have_different_names() -> None:
    fedrecpp, feddmf = load_fedrecpp(quick=False), load_feddmf(quick=False)
    entries_ = [each for name in fedrecpp.data for each in fedrecpp.figure_entries(name)]
    assert len({each.stem for each in entries_}) == len(set(entries_)) == 2 * 3 * 7
    for figure in feddmf.figures:
        studies = feddmf.studies(figure, 3)
        assert len({file_name(each) for each in studies}) == len(studies)


def test_columns() -> None:
    lines = in_columns(["", "one"], [["a", "1.0"], ["long", "10.00"]])
    assert lines == ["        one", "a       1.0", "long  10.00"]
