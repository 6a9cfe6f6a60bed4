"""FURL audited through the real command: what stays home, what is told of it, and the same bits."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attacks.suite import FAMILIES
from audits.config.audit import parse_config
from audits.gates.verdict import UNSOLVED
from audits.report import report_schema
from audits.run.build import build_federation, load_dataset
from audits.systems.furl.checks import SplitCase, check_split
from audits.systems.furl.interactions import InteractionTask
from audits.systems.furl.texts import TextTask
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.data.user_texts import CODES
from secure_fedrec.engines import RecordedRun, RoundReport
from secure_fedrec.wire import Transcript

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

SERVER = {"name": "server", "corrupt": ["server"]}
NCF: dict[str, Any] = {
    "title": "FURL in small",
    "seed": 3,
    "attacks": list(FAMILIES["split"]),
    "data": {"name": "synthetic", "clients": 24, "items": 60, "mean_ratings": 8.0},
    "algorithm": {
        "name": "furl",
        "rounds": 3,
        "dim": 6,
        "hidden": [12],
        "deviation": 0.0,
        "local": {"learning_rate": 4.0},
    },
    "recording": {"payload_rounds": [1, 3]},
    "run": {"checkpoint_every": 2, "evaluate_every": 2},
    "adversaries": [SERVER],
    "gates": [
        {"metric": "lossless", "equals": True},
        {
            "metric": "reidentified_share",
            "attack": "dense-layer",
            "adversary": "server",
            "expect": "leak",
            "least": 0.8,
            "most": 1.0,
            "reason": "A layer's change is a multiple of the user vector.",
        },
        {
            "metric": "precision",
            "attack": "signed-rows",
            "adversary": "server",
            "expect": "leak",
            "least": 0.9,
            "reason": "Signs tell rated items.",
        },
    ],
}
TEXTS: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "stickers", "users": 24, "messages": 10, "length": 12},
    "algorithm": {
        "name": "furl",
        "rounds": 2,
        "user_dim": 3,
        "character_dim": 4,
        "hidden": 4,
        "mlp": 6,
        "local": {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 4},
    },
    "cohort": {"clients_per_round": 12},
    "recording": {"payload_rounds": [1]},
}
MASKS = [{"layer": "masking", "min_survivors": 12}]
CIPHERTEXTS = [{"layer": "paillier", "min_survivors": 12}]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def ncf() -> dict[str, Any]:
    return copy.deepcopy(NCF)


def report_of(run: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    schema = report_schema()
    jsonschema.Draft202012Validator(schema).validate(report)
    return report


def checkpoint(run: Path) -> dict[str, tuple[str, bytes]]:
    with np.load(run / "checkpoint.npz") as content:
        return {name: (str(content[name].dtype), content[name].tobytes()) for name in content}


def test_one_upload_gives_away_what_stayed_home(
    command: Command, write_config: Write, ncf: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, out, err = command("audit", write_config(ncf), "--out", run, "--quiet")
    assert (code, err.count("\n")) == (0, 1), err
    assert "24 clients, 60 items" in err
    assert "training interactions" in err
    report = report_of(run)
    assert report["verdict"]["outcome"] == "leaks as documented"
    assert "2 document a leak" in report["verdict"]["summary"]
    found = {each["attack"]: each for each in report["findings"]}
    dense, signed = found["dense-layer"], found["signed-rows"]
    assert dense["reidentified_share"] > 0.9
    assert dense["severity"] == "critical"
    assert "private vectors" in dense["sentence"]
    assert signed["precision"] > 0.9
    assert report["lossless"] | {"statement": ""} == {
        "claimed": True,
        "holds": True,
        "rounds_compared": 3,
        "statement": "",
        "first_difference": None,
    }
    assert report["utility"]["metric_names"] == ["hit_rate_at_10", "ndcg_at_10"]
    assert [row["round"] for row in report["utility"]["rounds"]] == [2, 3]
    assert "items by popularity" in report["utility"]["baselines"]
    assert report["data"]["nouns"]["examples"] == "interactions"
    assert report["protection"]["system"].startswith("FURL")
    assert report["capped_clients"]["statement"] == "No layer adds virtual ratings."
    theorem = "preserves quality, not privacy"
    assert theorem in report["protection"]["algorithm"]["remark"]
    assert theorem in out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert theorem in page
    assert "24 clients, 60 items, " in page
    assert "Hit rate at 10" in page
    assert "on held-out ratings" not in page

    code, out, err = command("attack", run / "transcript", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out) == report["findings"]


def test_under_masks_the_same_attacks_find_nothing(
    command: Command, write_config: Write, ncf: dict[str, Any], tmp_path: Path
) -> None:
    ncf |= {"protection": MASKS, "gates": [{"metric": "lossless", "equals": True}]}
    command("audit", write_config(ncf), "--out", tmp_path / "run", "--quiet")
    report = report_of(tmp_path / "run")
    assert report["gates"][0]["outcome"] == "pass"
    assert report["protection"]["system"].startswith("FURL under secure aggregation")
    found = {each["attack"]: each for each in report["findings"]}
    dense, signed = found["dense-layer"], found["signed-rows"]
    assert dense["reidentified_share_low"] <= dense["reidentified_chance"]
    assert dense["severity"] in {"info", "low"}
    assert signed["auc"] is None or signed["auc_low"] < 0.6


@pytest.mark.parametrize("raw", [NCF, TEXTS], ids=["interactions", "texts"])
def test_protected_rounds_end_in_the_bits_of_plain_ones(
    command: Command, write_config: Write, tmp_path: Path, raw: dict[str, Any]
) -> None:
    raw = copy.deepcopy(raw) | {"gates": [], "attacks": []}
    kept = {}
    for name, layers in {"plain": [], "masks": MASKS, "ciphertexts": CIPHERTEXTS}.items():
        path = write_config(raw | {"protection": layers})
        assert command("train", path, "--out", tmp_path / name, "--quiet")[0] == 0
        kept[name] = checkpoint(tmp_path / name)
    for state in ("table", "vault.private_parameters", "history.digests"):
        bits = {name: found[f"state.{state}"] for name, found in kept.items()}
        assert bits["masks"] == bits["ciphertexts"] == bits["plain"]
    with np.load(tmp_path / "plain" / "checkpoint.npz") as content:
        digests = content["state.history.digests"].tolist()
    assert len(set(digests)) == raw["algorithm"]["rounds"]  # every round learnt something


def test_a_run_interrupted_within_a_round_goes_on_to_the_same_bits(
    command: Command,
    write_config: Write,
    ncf: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ncf["algorithm"]["local"] = {"optimizer": "momentum", "keep_state": True, "batch_size": 8}
    quiet, broken = tmp_path / "quiet", tmp_path / "broken"
    path = write_config(ncf | {"gates": []})
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
    code, lines, _ = command("train", path, "--out", broken, "--resume", "--quiet")
    assert code == 0
    assert [json.loads(line)["round"] for line in lines.splitlines()] == [3]
    assert checkpoint(broken) == checkpoint(quiet)
    digests = [Transcript.open(run / "transcript").digest() for run in (quiet, broken)]
    assert digests[0] == digests[1]


def test_texts_are_audited_by_the_labels_and_characters_of_their_writers(
    command: Command, write_config: Write, tmp_path: Path
) -> None:
    raw = copy.deepcopy(TEXTS) | {
        "attacks": ["output-bias", "touched-rows"],
        "adversaries": [SERVER],
        "run": {"check_lossless": False},
    }
    command("audit", write_config(raw), "--out", tmp_path / "run", "--quiet")
    report = report_of(tmp_path / "run")
    labels, rows = report["findings"]
    assert labels["label_accuracy"] is not None
    assert rows["set_exact_share"] > 0.9
    assert report["utility"]["metric_names"] == ["auc", "accuracy"]
    assert "every client's most frequent answer" in report["utility"]["baselines"]
    assert report["data"]["nouns"] == {
        "clients": "clients",
        "items": "answers",
        "examples": "messages",
    }


@pytest.mark.parametrize("everybody", [[], [2]], ids=["cohort", "everybody"])
def test_a_round_of_everybody_after_rounds_of_cohorts(
    command: Command, write_config: Write, tmp_path: Path, everybody: list[int]
) -> None:
    """What is told in that round is of all clients; the plain twin follows the same schedule."""
    raw = copy.deepcopy(TEXTS) | {
        "attacks": list(FAMILIES["split"]),
        "adversaries": [SERVER],
        "gates": [
            {"metric": "lossless", "equals": True},
            {
                "metric": "reidentified_clients",
                "attack": "dense-layer",
                "adversary": "server",
                "max": 0,
            },
        ],
    }
    raw["cohort"]["everybody_in"] = everybody
    raw["recording"]["payload_rounds"] = [2]
    code, *_ = command("audit", write_config(raw), "--out", tmp_path / "run", "--quiet")
    assert code == 3
    reasons = json.loads((tmp_path / "run" / "report.json").read_text())["verdict"]["reasons"]
    # Of a round of everybody the gate holds, and what no price bounds is left to say; of a cohort,
    # twelve clients are too few to judge by.
    assert all(UNSOLVED in each for each in reasons) == bool(everybody)
    found = {each["attack"]: each for each in report_of(tmp_path / "run")["findings"]}
    rows = found["touched-rows"]
    assert rows["units"]["clients"] == (24 if everybody else 12)


def test_the_secrets_of_texts_are_those_of_the_training_part() -> None:
    config = parse_config(TEXTS)
    task = load_dataset(config, None).task(0)
    assert isinstance(task, TextTask)
    found, texts = task.secrets()["secrets"], task.texts
    for user in range(texts.n_users):
        rows = [row for row in texts.rows("train") if texts.users[row] == user]
        used = {int(code) for row in rows for code in texts.text[row][: texts.length[row]]}
        assert set(np.flatnonzero(found["sets.classes"][user])) == set(texts.label[rows])
        assert set(np.flatnonzero(found["sets.character_embedding.weight"][user])) == used
    assert found["sets.character_embedding.weight"].shape == (texts.n_users, CODES)
    assert np.array_equal(found["labels.majority"], texts.majority_labels())


@pytest.mark.parametrize("configuration", ["global-fl", "user-only-fl"])
def test_other_configurations_of_the_paper_run(
    command: Command, write_config: Write, tmp_path: Path, configuration: str
) -> None:
    raw = copy.deepcopy(TEXTS)
    raw["algorithm"] |= {"configuration": configuration, "rounds": 1}
    config = parse_config(raw)
    assert command("train", write_config(raw), "--out", tmp_path / "run", "--quiet")[0] == 0
    public = Transcript.open(tmp_path / "run" / "transcript").public
    private = [each["name"] for each in public["algorithm"]["private"]]
    if configuration == "global-fl":
        assert private == []
        assert config.statement.remark is None
        assert "private_input" not in public
    else:
        assert private == ["user_embedding.weight"]
        assert public["private_input"] == {"layer": "hidden.weight", "first": 0}
        secrets = load_dataset(config, None).task(0).secrets()["secrets"]
        assert "sets.character_embedding.weight" not in secrets


def test_where_the_private_vector_enters_is_where_the_model_reads_it() -> None:
    for raw, change in ((NCF, 0), (TEXTS, 8)):
        config = parse_config(raw)
        task = load_dataset(config, None).task(0)
        federation = build_federation(config, task)
        algorithm, problem, _ = federation.fresh()
        place = problem.knowledge["private_input"]
        assert place["first"] == change
        case = task.split_case() if isinstance(task, TextTask | InteractionTask) else None
        assert case is not None
        weight = case.build().get_parameter(place["layer"])
        size = algorithm.public_knowledge()["private"][0]["stop"]
        assert place["first"] + size <= weight.shape[1]


@pytest.mark.parametrize("raw", [NCF, TEXTS], ids=["interactions", "texts"])
def test_check_tries_the_theorem_on_the_configured_model(
    command: Command, write_config: Write, raw: dict[str, Any]
) -> None:
    path = write_config(raw)
    code, out, err = command("check", path, "--rounds", "2", "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert outcome["lossless"] is True
    assert [(each["name"], each["holds"]) for each in outcome["checks"]] == [
        ("split-personalization", True),
        ("split-equals-unsplit", True),
        ("split-equals-unsplit", True),
    ]
    code, out, _ = command("check", path, "--rounds", "2")
    assert out.startswith("lossless: 2 rounds equal the plain twin, bit for bit\n")
    assert "split personalization: holds" in out
    assert out.count("everything shipped, bit for bit") == 2
    assert "preserves quality, not privacy" in out


def test_a_model_whose_users_read_each_other_is_refuted() -> None:
    class Linked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user_embedding = nn.Embedding(3, 2)
            self.output = nn.Linear(2, 1)

    def loss(model: nn.Module, user: int, batch: Batch) -> Tensor:
        assert isinstance(model, Linked)
        own = model.output(model.user_embedding.weight[user]) - batch["ratings"]
        result: Tensor = (own**2).mean() + model.user_embedding.weight.norm()
        return result

    rng = np.random.default_rng(5)
    found = check_split(
        SplitCase(
            build=Linked,
            loss=loss,
            private=("user_embedding.weight",),
            data=[{"ratings": rng.normal(size=(4, 1)).astype(np.float32)} for _ in range(3)],
            training=LocalTrainingConfig(),
        ),
        rounds=2,
        seed=1,
    )
    assert [each.holds for each in found] == [False, False, False]
    assert "constraint (1)" in found[0].text
    assert found[1].facts["first_difference"] is not None
