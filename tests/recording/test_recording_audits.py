"""Audits of recordings made elsewhere: from Python, from the command line, and what is refused."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import audits
from audits.cli import main
from audits.report import report_schema
from secure_fedrec.errors import ConfigError
from secure_fedrec.recording import OTHER_ROWS, SENT_HIDDEN, Recorder, Recording, RowTraits
from tests.recording.federations import ITEM_ROWS, matrix_factorization, ratings_of, start
from tests.recording.federations import SERVER as WHO

GATE = {"metric": "precision_gain", "attack": "direct", "adversary": "server", "max": 0.05}
SERVER = {"name": "server", "corrupt": ["server"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("made-elsewhere")
    users, vectors = start(60, 90, rank=5, seed=1)
    settings: dict[str, Any] = {"rounds": 2, "rate": 0.5, "decay": 0.9, "pull": 0.01}
    recording = matrix_factorization(ratings_of(60, 90, seed=2), users, vectors, **settings)
    recording.save(found / "seen", truth=found / "truth.npz")
    return found


def test_an_audit_from_python_has_report_gates_and_frame(folder: Path, tmp_path: Path) -> None:
    """A recording in, a verdict out: the report follows the schema of our own runs."""
    recording = Recording.open(folder / "seen", truth=folder / "truth.npz")
    result = audits.audit(recording, gates={"adversaries": [SERVER], "gates": [GATE]})
    assert not result.holds
    assert result.verdict.exit_code == 1
    jsonschema.validate(dict(result.report), report_schema())
    assert result.to_frame().query("attack == 'lattice'")["severity"].eq("critical").all()
    written = result.save(tmp_path / "kept", formats=("html", "sarif", "junit", "md"))
    assert {path.name for path in written.values()} >= {"report.json", "report.sarif"}
    told = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert told["verdict"]["outcome"] == "fail"
    assert "direct" in result._repr_html_()


def test_the_command_judges_by_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same verdict, and its line in the file of gates."""
    gates = tmp_path / "gates.toml"
    gates.write_text(
        'title = "Mine"\n[[adversaries]]\nname = "server"\ncorrupt = ["server"]\n'
        '[[gates]]\nmetric = "precision_gain"\nattack = "direct"\nadversary = "server"\n'
        "max = 0.05\n"
    )
    words = ["attack", str(folder / "seen"), "--truth", str(folder / "truth.npz"), "--quiet"]
    assert main([*words, "--gates", str(gates), "--out", str(tmp_path / "out")]) == 1
    assert "verdict: fail" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["title"] == "Mine"
    assert report["source"]["path"].endswith("gates.toml")
    assert main([*words, "--adversary", "server", "--attack", "direct"]) == 3
    assert main(["transcript", "validate", str(folder / "seen"), "--json"]) == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nobody looks": ({}, "adversaries"),
    "training": ({"adversaries": [SERVER], "algorithm": {"name": "pmf"}}, "algorithm"),
    "exactness": (
        {"adversaries": [SERVER], "gates": [{"metric": "lossless", "equals": True}]},
        "gates.metric",
    ),
    "utility": ({"adversaries": [SERVER], "gates": [{"metric": "rmse", "max": 1}]}, "gates.metric"),
    "a client that there is not": (
        {"adversaries": [{"name": "c", "corrupt": ["client:60"]}]},
        "adversaries.corrupt",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_recording_cannot_be_asked_is_refused(folder: Path, case: str) -> None:
    """Each by its key."""
    asked, key = REFUSED[case]
    recording = Recording.open(folder / "seen", truth=folder / "truth.npz")
    with pytest.raises(ConfigError) as refused:
        audits.audit(recording, gates=asked)
    assert refused.value.key == key


def test_arguments_of_configurations_and_recordings_are_not_mixed(folder: Path) -> None:
    """Neither takes the other's."""
    recording = Recording.open(folder / "seen")
    with pytest.raises(ConfigError, match="not to a recording"):
        audits.audit(recording, adversaries="server", overrides={"seed": 2})
    with pytest.raises(ConfigError, match="applies to a recording"):
        audits.audit("quickstart", gates={"adversaries": [SERVER]})


def test_a_recording_without_truth_has_no_pass(folder: Path) -> None:
    """What cannot be judged is undecided."""
    recording = Recording.open(folder / "seen")
    result = audits.audit(recording, gates={"adversaries": [SERVER], "gates": [GATE]})
    assert result.verdict.exit_code == 3


def test_hidden_uploads_and_a_sum_alone() -> None:
    """Uploads that the server cannot read: what sums tell is found, and lone rows name clients."""
    stars = ratings_of(40, 30, seed=4, share=0.3)
    stars[:, :4] = 0
    stars[7, :4] = 5, 3, 4, 2
    rng = np.random.default_rng(0)
    users, vectors = rng.uniform(-0.1, 0.1, (40, 5)), rng.uniform(-0.1, 0.1, (30, 5))
    recorder = Recorder(
        n_clients=40,
        arrays={"V": vectors},
        items="V",
        data={"rating_levels": [1, 2, 3, 4, 5]},
        algorithm={"name": "pmf", "regularization": 0.01, "biases": False},
        rows=ITEM_ROWS,
        sums=SENT_HIDDEN,
    )
    with recorder.round(1, {"V": vectors}) as taken:
        total, counts = np.zeros_like(vectors), np.zeros(30, dtype=int)
        for client in range(40):
            items = np.flatnonzero(stars[client])
            errors = stars[client, items] - vectors[items] @ users[client]
            total[items] += -errors[:, None] * users[client] + 0.01 * vectors[items]
            counts[items] += 1
            taken.upload(client, None)
        taken.aggregate({"V": total}, counts=counts)
        taken.result({"V": vectors - total / np.maximum(counts, 1)[:, None]})
    recorder.private(1, users)
    clients, items = np.nonzero(stars)
    recorder.truth(ratings=(clients, items, stars[clients, items]))
    result = audits.audit(
        recorder.close(), gates={"adversaries": [SERVER]}, attacks=["sum-decoding", "direct"]
    )
    found = {each["attack"]: each for each in result.report["findings"]}
    told = found["sum-decoding"]
    assert told["status"] == "measured", told["reason"]
    assert told["details"].get("clients_exposed", told.get("clients_exposed")) >= 1
    assert found["direct"]["severity"] in (None, "info")


def test_a_model_without_items_has_no_item_attacks() -> None:
    """Parameters alone: attacks on items say why they do not apply, and nothing passes."""
    rng = np.random.default_rng(1)
    recorder = Recorder(
        n_clients=30,
        arrays={"fc.weight": (4, 3), "fc.bias": (4,)},
        algorithm={"name": "classifier"},
        rows=OTHER_ROWS,
        sums=SENT_HIDDEN,
    )
    model = {"fc.weight": np.zeros((4, 3)), "fc.bias": np.zeros(4)}
    with recorder.round(1, model) as taken:
        for client in range(30):
            taken.upload(client, None)
        taken.aggregate({"fc.weight": rng.normal(size=(4, 3)), "fc.bias": np.zeros(4)})
    recorder.truth(secrets={"labels.majority": rng.integers(0, 4, 30)})
    result = audits.audit(recorder.close(), adversaries="server")
    assert result.verdict.exit_code == 3
    assert any("aggregate" in reason for reason in result.verdict.reasons)


def test_sums_of_items_beside_other_arrays_are_read_by_every_attack() -> None:
    """A view of one block has that block's rows of the public table, and no others."""
    rng = np.random.default_rng(3)
    shapes = {"V": (30, 4), "bias": (30,)}
    liked = rng.random((25, 30)) < 0.3
    recorder = Recorder(
        n_clients=25,
        arrays=shapes,
        items="V",
        data={"negatives": 1},
        algorithm={"name": "mine", "biases": True},
        rows=RowTraits(rows="items", row_sets="drawn", form="scored"),
        sums=SENT_HIDDEN,
    )
    model = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    with recorder.round(1, model) as taken:
        for client in range(25):
            taken.upload(client, None)
        taken.aggregate({name: rng.normal(size=shape) for name, shape in shapes.items()})
        taken.result(model)
    clients, items = np.nonzero(liked)
    recorder.truth(ratings=(clients, items, np.ones(len(items))))
    recording = recorder.close()
    view = recording.transcript.view(WHO)
    for kind, name in (("items", "V"), ("flat", "bias")):
        block = view.of_block(kind)
        assert block is not None
        assert (
            block.table(1).reshape(-1)[: model[name].size].tolist() == model[name].ravel().tolist()
        )
    result = audits.audit(recording, adversaries="server")
    assert [each["attack"] for each in result.report["findings"] if each["raised"]] == []
