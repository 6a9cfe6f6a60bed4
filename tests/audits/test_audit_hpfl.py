"""HPFL audited through the real command: organisations, drafts in bags, masks, noise and mixes."""

import copy
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from audits.config.audit import parse_config
from audits.report import report_schema
from audits.run.build import build_federation, load_dataset
from audits.systems.hpfl.organisations import OrganisationTask
from secure_fedrec.engines import RecordedRun, RoundReport
from secure_fedrec.wire import NOBODY, Step, Transcript

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

FOLDER = os.environ.get("SECURE_FEDREC_DATA")  # before a fixture hides it
SERVER = {"name": "server", "corrupt": ["server"]}
SMALL: dict[str, Any] = {
    "title": "HPFL in small",
    "seed": 3,
    "attacks": ["attribute-counts", "drafts", "lone-rows", "clear-uploads"],
    "data": {"name": "synthetic", "clients": 5, "users": 8, "items": 14, "mean_records": 6.0},
    "algorithm": {
        "name": "hpfl",
        "rounds": 3,
        "user_drafts": 0.5,
        "gum": {"scale": 5.0, "start": "identity"},
        "training": {"epochs": 1},
    },
    "recording": {"payload_rounds": [1, 2]},
    "run": {"checkpoint_every": 2},
    "adversaries": [SERVER],
    "waivers": [
        {
            "adversary": "server",
            "attack": "lone-rows",
            "reason": "Five organisations: some are alone with an attribute.",
            "owner": "tests",
            "expires": "2099-12-31",
        }
    ],
    "gates": [
        {"metric": "lossless", "equals": True},
        {"metric": "mae", "max": 5.0},
        {
            "metric": "disclosed_share",
            "attack": "drafts",
            "adversary": "server",
            "expect": "leak",
            "least": 0.02,
            "most": 1.0,
            "reason": "A cluster of one is sent as well.",
        },
    ],
}
MASKS = [{"layer": "masking", "min_survivors": 4}]
MIXES = {"layer": "routing"}
NOISE = {"layer": "local-dp", "clip": 0.5, "noise_multiplier": 4.0, "adjacency": "zero-out"}


@pytest.fixture
def small() -> dict[str, Any]:
    return copy.deepcopy(SMALL)


def report_of(run: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    schema = report_schema()
    jsonschema.Draft202012Validator(schema).validate(report)
    return report


def checkpoint(run: Path) -> dict[str, tuple[str, bytes]]:
    with np.load(run / "checkpoint.npz") as content:
        return {name: (str(content[name].dtype), content[name].tobytes()) for name in content}


def test_drafts_tell_where_users_are(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, out, err = command("audit", write_config(small), "--out", run, "--quiet")
    assert code == 0, err
    assert "5 organisations, 14 items" in err
    report = report_of(run)
    counts, drafts, _, clear = report["findings"]
    assert (clear["attack"], clear["status"]) == ("clear-uploads", "not-applicable")
    assert counts["histogram_correlation"] is not None
    assert drafts["holder_accuracy_low"] > drafts["holder_chance"]
    assert drafts["disclosed_share"] > 0  # half as many clusters as users
    assert drafts["units"]["clients"] == 40
    assert report["utility"]["metric_names"] == ["accuracy", "mae", "rmse"]
    assert "mean score of the organisation" in report["utility"]["baselines"]
    assert report["protection"]["bags"]["layers"] == []
    assert "drafts" in report["verdict"]["summary"]
    assert "does not protect by itself" in out
    page = (run / "report.html").read_text(encoding="utf-8")
    for words in ("5 organisations, 14 items, ", "In bags", "40 users, ", "higher is better"):
        assert words in page
    assert "ratings to train" not in page

    code, out, err = command("attack", run / "transcript", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out) == report["findings"]


def test_masks_and_mixes_end_in_the_bits_of_the_plain_run(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    small |= {"gates": [], "attacks": []}
    runs: dict[str, dict[str, Any]] = {
        "plain": {},
        "masked": {"protection": MASKS, "bag_protection": [MIXES]},
        "encrypted": {"protection": [{"layer": "paillier", "min_survivors": 4}]},
    }
    found = {}
    for name, layers in runs.items():
        path = write_config(small | layers)
        assert command("train", path, "--out", tmp_path / name, "--quiet")[0] == 0
        found[name] = checkpoint(tmp_path / name)
    states = [name for name in found["plain"] if "meter" not in name and "run_id" not in name]
    assert {"state.table", "state.extras.user-centres", "state.vault.user_embeddings"} < set(states)
    for state in states:
        assert found["masked"][state] == found["encrypted"][state] == found["plain"][state]
    transcript = Transcript.open(tmp_path / "masked" / "transcript")
    view = transcript.view(parse_config(small).adversaries[0])
    drafts = view.messages(Step.BAG, 1, payload=True, bag="user-drafts")
    assert set(drafts.senders.ids.tolist()) == {NOBODY}


@pytest.mark.parametrize(
    ("execution", "basis"), [("simulated", "computed"), ("real", "measured in part")]
)
def test_a_masked_audit_checks_its_twin(
    command: Command,
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    execution: str,
    basis: str,
) -> None:
    masks = [MASKS[0] | {"execution": execution}]
    small |= {"protection": masks, "bag_protection": [MIXES]}
    code, _, err = command("audit", write_config(small), "--out", tmp_path / "run", "--quiet")
    assert code == 0, err
    report = report_of(tmp_path / "run")
    assert report["lossless"]["claimed"] is report["lossless"]["holds"] is True
    assert report["protection"]["execution"] == "simulated"
    assert report["protection"]["bags"]["layers"] == ["routing"]
    assert "under secure aggregation" in report["protection"]["system"]
    assert report["cost"]["protocol"]["basis"] == basis
    # Nobody is behind an anonymous draft.
    assert all(each.get("holder_accuracy") is None for each in report["findings"])


def test_noise_over_bags_is_priced_and_makes_no_claim_of_losslessness(
    command: Command, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    small |= {"protection": MASKS, "bag_protection": [NOISE, MIXES]}
    small["gates"] = [
        {"metric": "lossless", "equals": False},
        {"metric": "epsilon", "covers": "bags", "adversary": "server", "max": 100.0},
    ]
    code, out, err = command("audit", write_config(small), "--out", tmp_path / "run", "--quiet")
    assert code == 0, err
    report = report_of(tmp_path / "run")
    assert report["lossless"]["claimed"] is False
    (statement,) = report["protection"]["privacy"]
    assert 0 < statement["epsilon"] < 100
    assert "user-drafts" in statement["text"]
    assert f"privacy: {statement['text']}" in out
    assert "another run has other noise" in report["manifest"]["determinism"]
    assert "up to the stated epsilon" in report["protection"]["bags"]["hides"]


def test_a_run_interrupted_within_a_round_goes_on_to_the_same_bits(
    command: Command,
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet, broken = tmp_path / "quiet", tmp_path / "broken"
    path = write_config(small | {"protection": MASKS, "bag_protection": [MIXES]})
    assert command("train", path, "--out", quiet, "--quiet")[0] == 0
    whole = RecordedRun.run_round

    def interrupted(run: RecordedRun) -> RoundReport:
        report = whole(run)
        if run.completed == 3:  # trained and recorded, not yet checkpointed
            raise KeyboardInterrupt
        return report

    with monkeypatch.context() as patch:
        patch.setattr(RecordedRun, "run_round", interrupted)
        assert command("train", path, "--out", broken, "--quiet")[0] == 130
    assert checkpoint(broken) != checkpoint(quiet)
    assert command("train", path, "--out", broken, "--resume", "--quiet")[0] == 0
    assert checkpoint(broken) == checkpoint(quiet)
    digests = [Transcript.open(run / "transcript").digest() for run in (quiet, broken)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("components", "name", "bags"), [("public", "HPFL-K", False), ("private", "HPFL-R", True)]
)
def test_parts_of_hpfl_are_audited_by_their_own_names(
    command: Command,
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    components: str,
    name: str,
    bags: bool,
) -> None:
    small["algorithm"] |= {"components": components, "rounds": 1}
    config = parse_config(small)
    assert config.statement.name.startswith(f"{name},")
    assert ("drafts" in config.statement.leaves) == bags
    assert (config.bag_claim is not None) == bags
    code, _, err = command("train", write_config(small), "--out", tmp_path / "run", "--quiet")
    assert code == 0, err


@pytest.mark.parametrize("binary", [False, True])
def test_a_range_that_is_not_that_of_the_scores_is_refused(
    refusal: Callable[..., str],
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    binary: bool,
) -> None:
    small["data"]["binary"] = binary
    small["algorithm"]["gum"]["scale"] = 5.0 if binary else 4.0
    line = refusal("train", write_config(small), "--out", tmp_path / "run")
    ends, given, choices = ("0 to 1", "5.0", "1.0") if binary else ("1 to 5", "4.0", "1.0, 5.0")
    assert line.startswith(f"algorithm.gum.scale = {given}: scores go from {ends}; 1 maps them ")
    assert line.endswith(f"(choices: {choices})")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("link", ["sigmoid", "identity"])
def test_affine_images_of_scores_train_alike(small: dict[str, Any], link: str) -> None:
    small["algorithm"] |= {"rounds": 2, "gum": {"link": link}}
    config = parse_config(small)
    task = load_dataset(config, None).task(0)
    assert isinstance(task, OrganisationTask)
    figures = []
    for factor, shift in ((1.0, 0.0), (25.0, 0.0), (1.0, -3.0), (0.5, 7.0)):
        own = task.organisations
        changed = replace(task, organisations=own.on(factor * own.levels + shift))
        assert changed.trained.levels.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
        federation = build_federation(config, changed, priced=False)
        engine = federation.engine(changed.fresh())
        found = [engine.run_round().metrics for _ in range(2)][-1]
        assert found is not None
        figures.append({key: found[key] / factor for key in ("mae", "rmse")})
    assert all(each == pytest.approx(figures[0], rel=1e-6) for each in figures)


def test_right_and_wrong_answers_have_an_auc(
    command: Command, write_config: Write, small: dict[str, Any]
) -> None:
    small["data"]["binary"] = True
    small["algorithm"] |= {"gum": {}, "rounds": 1}
    code, out, err = command("train", write_config(small), "--quiet")
    assert code == 0, err
    assert {"accuracy", "auc", "mae", "rmse"} <= json.loads(out).keys()


def test_check_compares_tables_of_any_length(
    command: Command, write_config: Write, small: dict[str, Any]
) -> None:
    path = write_config(small | {"protection": MASKS, "bag_protection": [MIXES]})
    code, out, err = command("check", path, "--rounds", "2", "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert (outcome["lossless"], outcome["rounds"], outcome["checks"]) == (True, 2, [])
    path = write_config(small | {"protection": MASKS, "bag_protection": [NOISE]})
    code, out, _ = command("check", path, "--rounds", "2")
    assert code == 1
    assert out.startswith("not lossless: round 1, ")


def test_the_secrets_are_counts_of_training_records(small: dict[str, Any]) -> None:
    task = load_dataset(parse_config(small), None).task(0)
    assert isinstance(task, OrganisationTask)
    found = task.secrets()["secrets"]["histograms.attributes"]
    own = task.organisations
    for client in range(own.n_clients):
        items = own.train.of(client).items
        expected = [own.attributes[client][items, k].sum() for k in range(own.n_attributes)]
        assert found[client].tolist() == expected


@pytest.mark.data
def test_groups_of_users_follow_their_organisations() -> None:
    if FOLDER is None:
        pytest.skip("SECURE_FEDREC_DATA is not set")
    raw = {"data": {"name": "ml-100k-zip"}, "algorithm": {"name": "hpfl", "gum": {"scale": 5.0}}}
    task = load_dataset(parse_config(raw), Path(FOLDER)).task(0)
    found = task.secrets()["secrets"]
    assert found["histograms.attributes"].shape == (10, 19)
    assert next(name for name in found if name.startswith("attributes.")) == "attributes.gender"
    gender = found["attributes.gender"]
    assert len(gender) == 925
    # 273 women rate in ML-100K; the 18 Canadians who are left out have no area.
    assert 255 <= int((gender == 0).sum()) <= 273
