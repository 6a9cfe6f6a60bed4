"""A whole audit through the real command: exit code, report, page, and what they never hold."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pytest
from markupsafe import escape

from attacks import SUITE
from audits import cli
from audits.report import report_schema

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]


class Ended(NamedTuple):
    """A finished command and its run folder."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> Any:
        """The content of ``report.json``."""
        return json.loads((self.folder / "report.json").read_text(encoding="utf-8"))

    @property
    def page(self) -> str:
        """The source of ``report.html``."""
        return (self.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["audit", "--out", str(folder), "--quiet"])
    return Ended(code, out.getvalue(), err.getvalue(), folder)


def schema_problems(report: object) -> list[str]:
    schema = report_schema()
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(report)]


LEAK = "leaks as documented"


def test_the_quickstart_leaks_as_documented_and_nowhere_passes(quickstart: Ended) -> None:
    assert quickstart.code == 0
    verdict = quickstart.report["verdict"]
    assert (verdict["outcome"], verdict["exit_code"]) == (LEAK, 0)
    documented = {gate["name"]: gate["documented"] for gate in quickstart.report["gates"]}
    outcomes = {gate["name"]: gate["outcome"] for gate in quickstart.report["gates"]}
    leaks = {name: why for name, why in documented.items() if why is not None}
    assert len(leaks) >= 4
    assert outcomes == {name: LEAK if name in leaks else "pass" for name in outcomes}
    assert verdict["reasons"] == [f"{name}: {why}" for name, why in leaks.items()]
    assert f"FedRec++: {LEAK}; 2 of 13 gates hold, 11 document a leak;" in verdict["summary"]
    assert verdict["summary"] in quickstart.out
    for name, why in leaks.items():
        assert f"  gate {LEAK} {name} ({why})\n" in quickstart.out
    assert f"\nverdict: {LEAK} (exit code 0)\nreport: " in quickstart.out
    page = quickstart.page
    assert f"<title>{LEAK.upper()}: " in page
    mark = '<i aria-hidden="true">!</i>'
    assert f'<p class="verdict leak"><strong>{mark} {LEAK.capitalize()}</strong>' in page
    told = page.count(f"{mark} {LEAK.capitalize()}</span>")
    gates = [gate for gate in quickstart.report["gates"] if gate["name"] in leaks]
    attacks = {(gate["adversary"], gate["attack"]) for gate in gates}
    assert told == len(leaks) + len(attacks) + 2  # and two adversaries
    assert 'class="verdict pass"' not in page
    assert all(str(escape(why)) in page for why in leaks.values())
    assert quickstart.out.endswith(f"report: {quickstart.folder / 'report.html'}\n")
    assert quickstart.err.count("\n") == 1  # the announcement
    assert "projected transcript" in quickstart.err


def test_the_report_follows_its_schema(quickstart: Ended, recorded: Path) -> None:
    assert schema_problems(quickstart.report) == []
    fallen = json.loads((recorded / "report.json").read_text(encoding="utf-8"))
    assert schema_problems(fallen) == []


def test_every_attack_of_every_adversary_is_a_finding(quickstart: Ended) -> None:
    report = quickstart.report
    adversaries = [a["name"] for a in report["configuration"]["adversaries"]]
    pairs = [(finding["adversary"], finding["attack"]) for finding in report["findings"]]
    assert pairs == [(adversary, attack) for adversary in adversaries for attack in SUITE]
    for finding in report["findings"]:
        assert set(finding) >= {
            *("attack", "adversary", "auc", "auc_low", "auc_high"),
            *("tpr_at_1pct_fpr", "advantage"),
        }
        if finding["status"] == "measured":
            if finding["auc"] is not None:
                assert finding["auc_low"] <= finding["auc"] <= finding["auc_high"]
            assert finding["null_control"] is None or finding["null_control"]["passed"]
            assert finding["positive_control"]["passed"]
        else:
            assert finding["reason"]
            assert finding["auc"] is None
            (note,) = (
                each
                for each in report["not_tested"]
                if each.endswith(f": {finding['reason']}")
                and finding["attack"] in re.split(r", | \(", each)
                and finding["adversary"] in re.split(r"[ ,)]+", each.partition("adversary:")[2])
            )
            assert len(note) < 200
    found = {(f["adversary"], f["attack"]): f for f in report["findings"]}
    assert found["server", "lattice"]["rating_accuracy"] > 0.99
    assert found["server+denoisers", "collusion-linkage"]["linked_share"] > 0.99
    assert found["server", "collusion-linkage"]["status"] == "not-applicable"


def test_every_attack_has_its_card(quickstart: Ended) -> None:
    cards = quickstart.report["attack_cards"]
    assert list(cards) == list(SUITE)
    for name, card in cards.items():
        assert all(card.values())
        assert card["game"] == SUITE[name].card.game


def test_clients_whose_virtual_ratings_are_capped_are_listed(quickstart: Ended) -> None:
    with np.load(quickstart.folder / "truth" / "ratings.npz") as truth:
        rated = np.diff(truth["indptr"])
    expected = int(np.sum(rated > 400 - rated))  # rho = 1
    capped = quickstart.report["capped_clients"]
    assert capped["count"] == len(capped["examples"]) == expected > 0
    assert all(re.fullmatch("[0-9a-f]{12}", digest) for digest in capped["examples"])
    assert capped["statement"].startswith(f"{expected} clients")


def test_losslessness_and_cost_are_those_of_the_run(quickstart: Ended) -> None:
    report = quickstart.report
    assert report["lossless"] | {"statement": ""} == {
        "claimed": True,
        "holds": True,
        "rounds_compared": 40,
        "statement": "",
        "first_difference": None,
    }
    roles = {role["role"]: role for role in report["cost"]["roles"]}
    assert {name: role["parties"] for name, role in roles.items()} == {
        "ordinary client": 180,
        "denoiser": 60,
        "server": 1,
    }
    sent = sum(role["bytes_up_per_round"] * role["parties"] for role in roles.values())
    assert sent > 0
    files = (quickstart.folder / "transcript" / "rounds").glob("*/*.npz")
    assert report["cost"]["transcript_bytes"] == sum(file.stat().st_size for file in files)
    utility = report["utility"]
    assert [entry["round"] for entry in utility["rounds"]] == list(range(1, 41))
    assert utility["final"]["rmse"] == utility["rounds"][-1]["rmse"] == utility["mean"]["rmse"]


def test_the_page_needs_nothing_but_itself(quickstart: Ended) -> None:
    page = quickstart.page
    assert page.startswith("<!doctype html>")
    assert re.findall(r"<(?:link|img|iframe|object|embed|base|form)\b", page) == []
    assert re.findall(r"\s(?:src|srcset|action|onload|onclick)=", page) == []
    assert all(target.startswith("#") for target in re.findall(r'\bhref="([^"]*)"', page))
    assert "<script" not in page
    assert "default-src 'none'" in page
    for finding in quickstart.report["findings"]:
        assert finding["attack"] in page


def test_a_report_names_no_folder_and_no_user(
    command: Command, write_config: Write, small: dict[str, Any], ml_100k: Path, tmp_path: Path
) -> None:
    small["data"] = {"name": "ml-100k"}
    folder = tmp_path / "run"
    code, out, err = command(
        *("audit", write_config(small), f"--out={folder}", "--data-dir", ml_100k.parent)
    )
    assert code == 1
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["manifest"]["command"] == (
        "secure-fedrec audit config.toml --out=run --data-dir data"
    )
    assert report["data"] == report["data"] | {"name": "ml-100k", "clients": 30, "items": 40}
    users = re.findall(r"^\d+", (ml_100k / "u.user").read_text(), flags=re.MULTILINE)
    assert len(users) == 30
    shared = [folder / "report.json", folder / "report.html", folder / "config.json"]
    shared.append(folder / "transcript" / "transcript.json")
    for text in [out, err, *(path.read_text(encoding="utf-8") for path in shared)]:
        assert not any(user in text for user in users)
    for path in shared:
        text = path.read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert str(Path.home()) not in text


def test_the_files_with_the_truth_are_for_their_owner_alone(recorded: Path) -> None:
    assert (recorded / "truth").stat().st_mode & 0o077 == 0
    assert (recorded / "checkpoint.npz").stat().st_mode & 0o077 == 0


def test_fallen_gates_are_named_on_stderr(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    small["gates"] = [
        {"metric": "lossless", "equals": True},
        {"metric": "rating_accuracy", "attack": "lattice", "adversary": "server", "max": 0.5},
        {"metric": "auc", "attack": "intersection", "adversary": "server", "max": 0.6},
        {
            "metric": "linked_share",
            "attack": "collusion-linkage",
            "adversary": "server+denoisers",
            "max": 0.05,
        },
    ]
    code, out, err = command("audit", write_config(small), "--out", tmp_path / "run", "--quiet")
    assert code == 1
    named = [line for line in err.splitlines() if line.startswith("  fail: ")]
    assert [line.split(": ")[1] for line in named[:3]] == [
        "server/lattice",
        "server/intersection",
        "server+denoisers/collusion-linkage",
    ]
    assert "rating_accuracy <= 0.5: rating_accuracy is 0.96" in named[0]
    assert all("no gate judges it" in line for line in named[3:])
    assert re.search(
        r"FedRec\+\+: 1 of 4 gates hold, 3 fell, \d+ things are open beside them; the model is no "
        "better than a trivial rule",
        out,
    )


@pytest.mark.parametrize(
    ("gates", "why"),
    [
        ([], "the configuration has no gates"),
        (
            [
                {
                    "metric": "linked_share",
                    "attack": "collusion-linkage",
                    "adversary": "server",
                    "max": 0.5,
                }
            ],
            "server/collusion-linkage: linked_share <= 0.5: not applicable: ",
        ),
        ([{"metric": "lossless", "equals": True}], "no plain run was made"),
    ],
)
def test_an_audit_that_could_not_tell_exits_with_3(
    command: Command,
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    gates: list[dict[str, Any]],
    why: str,
) -> None:
    small |= {"gates": gates, "attacks": ["collusion-linkage"]}
    small["run"]["check_lossless"] = False
    words = ("audit", write_config(small), "--out", tmp_path / "run", "--quiet", "--json")
    code, out, _ = command(*words)
    verdict = json.loads(out)["verdict"]
    assert (code, verdict["outcome"], verdict["exit_code"]) == (3, "inconclusive", 3)
    assert any(why in reason for reason in verdict["reasons"])


def test_json_is_all_there_is_on_stdout(recorded: Path, command: Command, tmp_path: Path) -> None:
    config = recorded.parent / "config.toml"
    code, out, _ = command("audit", config, "--out", tmp_path / "run", "--json")
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert code == 1
    keys = ("verdict", "gates", "findings", "utility", "lossless", "protection", "cost")
    assert json.loads(out) == {key: report[key] for key in keys}


def test_utility_averages_over_the_folds_asked_for(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    small["data"] |= {"fold": 4, "utility_folds": 3}
    small |= {"attacks": [], "adversaries": [], "gates": [{"metric": "mae", "max": 5.0}]}
    words = ("audit", write_config(small), "--out", tmp_path / "run", "--quiet", "--json")
    code, out, _ = command(*words)
    assert code == 3  # every gate holds, but no attack ran
    utility = json.loads(out)["utility"]
    assert [fold["fold"] for fold in utility["folds"]] == [4, 0, 1]
    for metric in ("mae", "rmse"):
        figures = [fold[metric] for fold in utility["folds"]]
        assert utility["mean"][metric] == pytest.approx(np.mean(figures), rel=1e-12)
        assert utility["sd"][metric] == pytest.approx(np.std(figures, ddof=1), rel=1e-12)
        assert len(set(figures)) == 3
