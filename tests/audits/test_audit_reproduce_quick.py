"""``reproduce --quick``: its files, and which studies of a run before serve again."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from audits import cli
from audits.reproduction.hpfl import paper as made
from audits.reproduction.hpfl.paper import (
    Needed,
    StudySource,
    find_studies,
    needed_study,
)
from audits.reproduction.progress import Found
from secure_fedrec.errors import DataError
from secure_fedrec.studies.files import write_files


def report(rmse: float, **ranking: float) -> Found:
    return Found({"test": {"rmse": rmse}, "ranking": {"test": ranking}}, Path("none"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduced")
    words = ["reproduce", "hpfl", "--table", "5", "--quick", "--quiet"]
    assert cli.main([*words, "--out", str(out)]) == 0
    return out


def test_quick_run_fills_the_table(quick: Path) -> None:
    result = json.loads((quick / "hpfl.json").read_text())
    assert [(table["data"], table["start"]) for table in result["tables"]] == [
        (data, start) for data in ("assist2009", "ml-100k-zip") for start in ("xavier", "identity")
    ]
    assert result["starts"] == ["xavier", "identity"]
    text = (quick / "hpfl.txt").read_text()
    for start in ("xavier", "identity"):
        assert text.count(f"start: {start}; paper | ours") == 2
    for table in result["tables"]:
        assert "NOT ITS DATA" in table["paper_data"]
        ours = {row["method"]: row["ours"]["simi"]["mean"] for row in table["rows"]}
        assert all(value > 0 for value in ours.values())
        # Sharing attribute vectors makes them more alike, as the paper finds.
        assert max(ours["hpfl-k"], ours["hpfl"]) < ours["hpfl-r"]
    assert "1.397 | " in text


def test_quick_run_says_what_was_chosen(quick: Path) -> None:
    result = json.loads((quick / "hpfl.json").read_text())
    tuning = {(each["data"], each["method"], each["start"]): each for each in result["tuning"]}
    assert len(tuning) == 2 * 5 * 2
    (chosen,) = tuning["ml-100k-zip", "hpfl", "xavier"]["chosen"]
    assert (chosen["learning_rate"], chosen["epochs"], chosen["rounds"]) == (3e-3, 2, 3)
    assert 1 <= chosen["round"] <= 3
    assert chosen["edge"] is None  # one rate has no edge
    text = (quick / "hpfl.txt").read_text()
    assert f"ml-100k-zip, xavier, hpfl, 3 rounds: 0.003 x 2 ({chosen['round']})" in text


def test_quick_run_compares_the_starts(quick: Path) -> None:
    result = json.loads((quick / "hpfl.json").read_text())
    simi = {
        (table["data"], table["start"], row["method"]): row["ours"]["simi"]["mean"]
        for table in result["tables"]
        for row in table["rows"]
    }
    for effect in result["starts_compared"]:
        assert len(effect["differences"]) == 5
        for each in effect["differences"]:
            places = [(effect["data"], start, each["method"]) for start in ("xavier", "identity")]
            assert each["measures"]["simi"]["mean"] == pytest.approx(
                simi[places[0]] - simi[places[1]]
            )
    assert "ml-100k-zip, hpfl, xavier - identity: simi " in (quick / "hpfl.txt").read_text()


def test_quick_run_draws_the_users(quick: Path) -> None:
    result = json.loads((quick / "hpfl.json").read_text())
    assert len(result["figures"]) == 4
    drawn = Path(result["figures"][0]).read_text()
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    for method in ("distributed", "hpfl-k", "hpfl-r", "hpfl"):
        assert re.search(rf">{method}<", drawn)


def test_finished_studies_are_not_run_again(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(made, "run_study", None)
    words = ["reproduce", "hpfl", "--table", "5", "--quick", "--quiet", "--json"]
    some = ["--start", "identity", "--data", "assist2009", "--method", "hpfl"]
    results = ["--results", str(quick / "studies-hpfl-quick")]
    assert cli.main([*words, *some, *results, "--out", str(tmp_path)]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert (table["number"], table["start"]) == (5, "identity")
    assert [row["method"] for row in table["rows"]] == ["hpfl"]


def test_nothing_is_run_where_that_is_not_wanted(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(made, "run_study", None)
    results = tmp_path / "studies-hpfl-quick"
    results.mkdir()
    (kept,) = (quick / "studies-hpfl-quick").glob("ml-100k-zip-*-identity-hpfl-1.json")
    for each in (kept, kept.with_suffix(".npz")):
        (results / each.name).write_bytes(each.read_bytes())
    words = ["reproduce", "hpfl", "--table", "5", "--quick", "--no-run", "--quiet"]
    assert cli.main([*words, "--out", str(tmp_path)]) == 0
    assert "distributed (0) " in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.svg")] == [
        "characteristics-ml-100k-zip-identity.svg"
    ]
    assert cli.main([*words, "--out", str(tmp_path / "none")]) == 2
    assert "holds no study of HPFL" in capsys.readouterr().err


def test_results_of_other_settings_do_not_count(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Needed] = []

    def run(needed: Needed, source: StudySource, on_round: Any) -> Found:
        ran.append(needed)
        return report(1.0)

    monkeypatch.setattr(made, "_run", run)
    wanted = [needed_study("ml-100k-zip", "hpfl", 1, "xavier")]
    folder = quick / "studies-hpfl-quick"
    find_studies(wanted, StudySource(folder=folder, quick=True, progress=False))
    assert not ran
    find_studies(wanted, StudySource(folder=folder, quick=True, progress=False, form="published"))
    find_studies(wanted, StudySource(folder=folder, progress=False))
    other = [Needed("ml-100k-zip", "hpfl", 2, "xavier")]
    find_studies(other, StudySource(folder=folder, quick=True, progress=False))
    assert ran == [*wanted * 2, *other]


def test_what_another_process_made_meanwhile_is_read(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "run_study", None)
    folder = quick / "studies-hpfl-quick"
    (path,) = folder.glob("ml-100k-zip-*-xavier-hpfl-1.json")
    wanted = needed_study("ml-100k-zip", "hpfl", 1, "xavier")
    source = StudySource(folder=folder, quick=True, progress=False)
    assert made._run(wanted, source, print).path == path
    before = path.read_bytes()
    with pytest.raises(DataError, match="is of a study with other settings"):
        made._run(wanted, StudySource(folder=folder, progress=False), print)
    assert path.read_bytes() == before


def test_a_study_of_one_start_is_not_that_of_the_other(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Needed] = []

    def run(needed: Needed, source: StudySource, on_round: Any) -> Found:
        ran.append(needed)
        return report(1.0)

    monkeypatch.setattr(made, "_run", run)
    (kept,) = (quick / "studies-hpfl-quick").glob("ml-100k-zip-*-identity-hpfl-1.json")
    (tmp_path / "one.json").write_bytes(kept.read_bytes())
    source = StudySource(folder=tmp_path, quick=True, progress=False)
    wanted = [needed_study("ml-100k-zip", "hpfl", 1, start) for start in ("xavier", "identity")]
    find_studies(wanted, source)
    assert ran == wanted[:1]
    stored = json.loads(kept.read_text())
    del stored["sha256"]
    for broken in ({**stored, "start": "own"}, {k: v for k, v in stored.items() if k != "start"}):
        write_files(tmp_path / "one.json", broken, {})  # a digest of its own, so its content counts
        with pytest.raises(DataError, match=r"one.json: is not a study of HPFL"):
            find_studies(wanted, source)
