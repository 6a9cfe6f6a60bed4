"""Audits of item-table methods: a protocol that leaks is said in every report, as measured."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audits.item_tables import RankingData, RankingTask
from audits.report import render_html, report_schema
from audits.report.markdown import render_markdown
from audits.report.reading import read_report
from audits.system import Wanted
from audits.systems import SYSTEMS, system_named
from secure_fedrec.algorithms.item_tables import FedMFConfig
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.engines.local_engine import CohortConfig

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

SMALL: dict[str, Any] = {"name": "synthetic", "clients": 60, "items": 150, "mean_ratings": 12.0}
WORDS = "leaks: after 6 rounds the rule 'was never a training negative' finds"


PLUGGED = tuple(name for name in SYSTEMS if name.startswith("fed3cr_over_"))
STEPS = {"fedmf": {"item_learning_rate": 60.0}, "fedncf": {"item_learning_rate": 60.0}}


def config(protocol: str) -> dict[str, Any]:
    return {
        "title": "An item table",
        "seed": 2,
        "data": {**SMALL, "protocol": protocol},
        "algorithm": {"name": "fedmf", "rank": 4, "rounds": 6},
        "recording": {"payload_rounds": [1]},
        "attacks": ["never-touched"],
        "adversaries": [{"name": "server", "corrupt": ["server"]}],
        "gates": [{"metric": "lossless", "equals": True}],
    }


@pytest.mark.parametrize("protocol", ["clean", "published"])
def test_a_report_warns_of_a_protocol_that_leaks(
    protocol: str, write_config: Write, command: Command, tmp_path: Path
) -> None:
    leaks, out = protocol == "published", tmp_path / "run"
    _, told, _ = command("audit", write_config(config(protocol)), "--out", out, "--quiet")
    report = read_report(out)
    jsonschema.validate(report, report_schema())
    warning = report["utility"]["warning"]
    assert (warning is not None) == leaks
    if leaks:
        assert WORDS in warning
        rule = report["utility"]["baselines"]["never drawn"]["hit_rate_at_10"]
        assert f"{rule:.1%} of the test items" in warning
    page = (out / "report.html").read_text(encoding="utf-8")
    for text in (told, page, render_markdown(report)):
        assert ("was never a training negative" in text) == leaks
        assert ("WARNING" in text or "Warning" in text) == leaks


def test_a_report_of_an_earlier_release_has_no_warning_and_is_read(
    write_config: Write, command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command("audit", write_config(config("clean")), "--out", out, "--quiet")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    del report["utility"]["warning"]
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    assert "Warning" not in render_html(read_report(out))


def test_the_warning_follows_the_measurement_and_not_the_name() -> None:
    system = system_named("fedmf")
    tasks = []
    for protocol in ("published", "clean"):
        data, settings = RankingData(**SMALL, protocol=protocol), FedMFConfig(rounds=6)
        task = system.load(Wanted(data, settings, 2, None, CohortConfig())).task(0)
        assert isinstance(task, RankingTask)
        tasks.append(task)
    assert [task.facts.warning is None for task in tasks] == [False, True]
    published, clean = tasks
    sound = replace(published, case=replace(published.case, kept_out=Ragged.empty(60)))
    leaking = replace(clean, case=replace(clean.case, kept_out=published.case.kept_out))
    assert sound.facts.warning is None
    assert leaking.facts.warning is not None
    assert "protocol 'clean' leaks" in leaking.facts.warning


def audited(name: str, write_config: Write, command: Command, out: Path, **more: Any) -> Any:
    """A small audit of a system by every attack; its report."""
    raw = config("clean")
    steps = STEPS.get(name.rpartition("_")[2], {})
    raw |= {
        "algorithm": {"name": name, "rank": 4, "rounds": 3, **steps},
        "attacks": ["all"],
        **more,
    }
    code, _, err = command("audit", write_config(raw), "--out", out, "--quiet")
    assert code != 2, err
    return read_report(out)


@pytest.mark.parametrize("name", ["perfedrec", "gpfedrec"])
def test_servers_that_mix_single_tables_are_audited(
    name: str, write_config: Write, command: Command, tmp_path: Path
) -> None:
    report = audited(name, write_config, command, tmp_path / "run")
    assert report["lossless"]["holds"] is True
    found = {each["attack"]: each for each in report["findings"]}
    assert found["signed-rows"]["status"] == "measured"
    assert found["signed-rows"]["auc"] > 0.99
    assert found["drafts"]["status"] == "not-applicable"
    assert report["remedies"] == []  # no stack that it bears hides anything
    assert "under the client's name, for a bag" in report["protection"]["algorithm"]["leaves"]


@pytest.mark.parametrize("name", ["perfedrec", "gpfedrec"])
@pytest.mark.parametrize(
    "layers",
    [
        {"protection": [{"layer": "masking"}]},
        {"protection": [{"layer": "paillier"}]},
        {"bag_protection": [{"layer": "routing"}]},
    ],
)
def test_servers_that_mix_single_tables_refuse_to_have_them_hidden(
    name: str, layers: dict[str, Any], write_config: Write, command: Command, tmp_path: Path
) -> None:
    raw = config("clean") | {"algorithm": {"name": name, "rank": 4, "rounds": 1}} | layers
    code, _, err = command("audit", write_config(raw), "--out", tmp_path / "run", "--quiet")
    assert code == 2
    assert f"do not stack over {name}: its server compares single clients' item tables" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", PLUGGED)
def test_a_plug_in_is_audited_and_its_generator_tells_the_prototype(
    name: str, write_config: Write, command: Command, tmp_path: Path
) -> None:
    """Under masking the same claim is of random words, and as good as any other vector."""
    cosines = []
    for number, layers in enumerate(([], [{"layer": "masking"}])):
        out = tmp_path / str(number)
        report = audited(
            name, write_config, command, out, protection=layers, attacks=["dense-layer"]
        )
        assert report["lossless"]["holds"] is True
        found = {each["attack"]: each for each in report["findings"]}["dense-layer"]
        assert found["status"] == "measured"
        cosines.append(found["vector_cosine"])
    assert cosines[0] > 0.6  # FedRAP's ten epochs a round take the quotient apart
    assert abs(cosines[1]) < 0.3
