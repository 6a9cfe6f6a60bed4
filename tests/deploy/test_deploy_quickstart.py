"""The Flower example, plain and protected: how few lines differ, and that training does not."""

import difflib
import sys
from collections.abc import Callable, Iterator
from importlib import import_module  # noqa: TID251 - the apps are no packages of ours
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import audits
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.engines.flower.recorded_mod import RecordedMod
from secure_fedrec.engines.flower.recorded_strategy import RecordedStrategy
from secure_fedrec.errors import MisfitError
from secure_fedrec.recording import Recorder, Recording, validate
from tests.deploy.grid import MemoryGrid, context_of
from tests.deploy.keys import give_keys
from tests.deploy.recordings import contents

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-quickstart"
CLIENTS = 4
MOST_CHANGED_LINES = 20
ROUNDS = 2
MOST_APART = 2e-6
"""Each round rounds a value by 2^-25 at most, and means of float32 differ by their order."""


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    for switch, value in SWITCHES.items():
        monkeypatch.setenv(switch, value)


@pytest.fixture
def app_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """A module of one of the two apps, which have the same names, loaded anew."""

    def load(which: str, module: str) -> Any:
        forget()
        monkeypatch.syspath_prepend(EXAMPLE / which)
        return import_module(f"quickstart.{module}")

    def forget() -> None:
        for name in [each for each in sys.modules if each.partition(".")[0] == "quickstart"]:
            del sys.modules[name]

    yield load
    forget()


def test_protecting_the_app_takes_few_lines() -> None:
    """Lines that are new or other; ``site.py`` is new, and takes the place of what Flower runs."""
    changed = 0
    before, after = (files_of(EXAMPLE / which) for which in ("plain", "protected"))
    assert after.keys() - before.keys() == {Path("site.py")}
    assert before.keys() <= after.keys()
    for file, lines in after.items():
        diff = difflib.unified_diff(before.get(file, []), lines, n=0, lineterm="")
        added = [line[1:] for line in diff if line[:1] == "+" and line[:3] != "+++"]
        changed += len([line for line in added if line.strip()])
    assert 5 < changed <= MOST_CHANGED_LINES


def files_of(folder: Path) -> dict[Path, list[str]]:
    found = [*folder.rglob("*.py"), *folder.rglob("*.toml")]
    return {path.relative_to(folder): path.read_text().splitlines() for path in found}


def test_the_model_is_the_plain_one_within_the_rings_rounding(
    tmp_path: Path, app_of: Callable[[str, str], Any]
) -> None:
    """Every round rounds each value once, and training makes little of that."""
    give_keys(tmp_path, CLIENTS)
    run: dict[str, Any] = {
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "learning-rate": 0.2,
        "keys": str(tmp_path / "server"),
    }
    models = {}
    for which in ("plain", "protected"):
        app: ClientApp = app_of(which, "client_app").app
        nodes = range(CLIENTS)
        contexts = {n: context_of(n, tmp_path / str(n), run, CLIENTS) for n in nodes}
        grid = MemoryGrid(dict.fromkeys(nodes, app), contexts)
        config = {**run, "model": str(tmp_path / which)}
        server = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
        app_of(which, "server_app").app(grid, server)
        models[which] = torch.load(tmp_path / which, weights_only=True)
    for name, plain in models["plain"].items():
        assert models["protected"][name].dtype == plain.dtype
        assert (models["protected"][name] - plain).abs().max() <= MOST_APART
    accuracies = {which: accuracy_of(app_of, model) for which, model in models.items()}
    assert accuracies["plain"] == accuracies["protected"] > 0.85


def accuracy_of(app_of: Callable[[str, str], Any], model: Any) -> float:
    task = app_of("plain", "task")
    net = task.Net()
    net.load_state_dict(model)
    return float(task.accuracy(net, task.load_data(0, 1)))


def test_a_recorded_app_trains_as_before_and_its_server_sees_labels(
    tmp_path: Path, app_of: Callable[[str, str], Any]
) -> None:
    """The same model but for the order of a mean; of the app's own files one differs."""
    run: dict[str, Any] = {"rounds": ROUNDS, "clients": CLIENTS, "learning-rate": 0.2}
    models = {}
    for which in ("plain", "recorded"):
        plain = app_of(which, "client_app")
        app: ClientApp = plain.app
        if which == "recorded":  # and its clients record as well
            app = ClientApp(mods=[RecordedMod(tmp_path / "pieces")])
            app.train()(plain.train)
            app.evaluate()(plain.evaluate)
        nodes = range(CLIENTS)
        contexts = {n: context_of(n, tmp_path / str(n), run, CLIENTS) for n in nodes}
        grid = MemoryGrid(dict.fromkeys(nodes, app), contexts)
        config = {**run, "model": str(tmp_path / which), "recording": str(tmp_path / "seen")}
        server = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
        app_of(which, "server_app").app(grid, server)
        models[which] = torch.load(tmp_path / which, weights_only=True)
    for name, plain in models["plain"].items():
        assert (models["recorded"][name] - plain).abs().max() <= MOST_APART
    before, after = (files_of(EXAMPLE / which) for which in ("plain", "recorded"))
    differing = {str(path) for path in after if after[path] != before.get(path)}
    assert differing == {"pyproject.toml", "quickstart/server_app.py"}
    digits = app_of("plain", "task").load_data
    join = run_path(str(EXAMPLE / "joined.py"))["join"]
    join(tmp_path / "pieces", CLIENTS, tmp_path / "joined")
    joined = Recording.open(tmp_path / "joined")
    majority = [int(digits(n, CLIENTS)[1].mode().values) for n in range(CLIENTS)]
    recording = Recording.open(tmp_path / "seen")
    assert joined.transcript.public == recording.transcript.public
    # Its clients have their own numbers there, and those in which they came at the server.
    assert contents(joined, named=False) == contents(recording, named=False)
    recording.secrets.secrets["labels.majority"] = np.array(majority)
    assert validate(tmp_path / "seen").messages == ROUNDS * CLIENTS
    found = audits.audit(recording, adversaries="server", attacks="output-bias")
    (finding,) = found.report["findings"]
    assert finding["status"] == "measured", finding["reason"]
    assert "metrics of evaluation" in " ".join(each["text"] for each in found.report["not_tried"])
    assert found.verdict.exit_code == 3, "no gates, and few clients"


def test_a_server_that_reads_what_is_not_recorded_is_told(
    tmp_path: Path, app_of: Callable[[str, str], Any]
) -> None:
    """Metrics that have no place in the recording are refused, by name."""
    app: ClientApp = app_of("plain", "client_app").app
    run = {"rounds": 1, "clients": CLIENTS, "learning-rate": 0.2}
    contexts = {n: context_of(n, tmp_path / str(n), run, CLIENTS) for n in range(CLIENTS)}
    model = app_of("plain", "task").initial_model().state_dict()
    for arrays, left_out, said in (
        (model, ["metrics of evaluation"], "metrics.train_loss is not an array of the recorder"),
        ({**model, "metrics.train_loss": ()}, [], "are not recorded"),
    ):
        recorder = Recorder(
            n_clients=CLIENTS, arrays=arrays, weighted=True, send_models=True, leave_out=left_out
        )
        strategy = RecordedStrategy(FedAvg(), recorder)
        grid = MemoryGrid(dict.fromkeys(range(CLIENTS), app), contexts)
        with pytest.raises(MisfitError, match=said):
            strategy.start(grid, ArrayRecord(model), num_rounds=1, timeout=60)
