"""What clients of a Flower app record piece by piece is what a recorded strategy records."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import audits
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.engines.flower.recorded_mod import RecordedMod, join_pieces
from secure_fedrec.engines.flower.recorded_strategy import RecordedStrategy
from secure_fedrec.errors import ConfigError, FedRecError, MisfitError, TranscriptError
from secure_fedrec.recording import OTHER_ROWS, SENT_AS_THEY_ARE, Recorder, Recording
from tests.deploy.grid import MemoryGrid, as_flower_starts, context_of
from tests.deploy.recordings import contents

CLIENTS, ROUNDS = 4, 3
MODEL = {"weight": np.zeros((3, 4), dtype=np.float32), "bias": np.zeros(3, dtype=np.float32)}
LOCAL = {"optimizer": "sgd", "learning_rate": 0.5, "batch_size": 8, "epochs": 1}


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    as_flower_starts(monkeypatch)


def app_with(mod: RecordedMod) -> ClientApp:
    """An app whose clients train to their own labels, and change what they were given."""
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content: Any = message.content
        model = {name: each.numpy() for name, each in content["arrays"].items()}
        node = int(context.node_config["partition-id"])
        rng = np.random.default_rng(100 * node + content["config"]["server-round"])
        model["weight"] = model["weight"] + rng.normal(size=(3, 4)).astype(np.float32)
        model["bias"] = model["bias"] + np.float32(np.arange(3) == node % 3)
        content["arrays"]["bias"] = Array(np.full(3, 9.0, dtype=np.float32))
        told: dict[str, Any] = {"num-examples": 8 + node, "loss": 0.1 * node}
        arrays = ArrayRecord({name: Array(each) for name, each in model.items()})
        return Message(RecordDict({"a": arrays, "m": MetricRecord(told)}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        told = MetricRecord({"num-examples": 8, "accuracy": 0.5})
        return Message(RecordDict({"m": told}), reply_to=message)

    return app


def recorder(**changed: Any) -> Recorder:
    told: dict[str, Any] = {
        "n_clients": CLIENTS,
        "arrays": {**MODEL, "metrics.loss": ()},
        "algorithm": {"name": "digits", "local": LOCAL},
        "rows": OTHER_ROWS,
        "sums": SENT_AS_THEY_ARE,
        "weighted": True,
        "send_models": True,
        "leave_out": ["metrics of evaluation"],
    }
    return Recorder(**{**told, **changed})


def run(
    app: ClientApp,
    folder: Path,
    *,
    evaluates: bool = True,
    refuses: Callable[[Message], bool] = lambda _: False,
    nodes: tuple[int, ...] = tuple(range(CLIENTS)),
) -> Recording:
    """Rounds of a strategy that records as well; answers that are refused do not arrive."""
    contexts = {n: context_of(place, folder, {}, CLIENTS) for place, n in enumerate(nodes)}
    for node, context in contexts.items():
        context.node_id = node
    grid = MemoryGrid(dict.fromkeys(nodes, app), contexts)
    grid.back = lambda message: [] if refuses(message) else [message]
    taken = recorder()
    strategy = RecordedStrategy(
        FedAvg(fraction_evaluate=float(evaluates), min_available_nodes=CLIENTS),
        taken,
        client_of=lambda reply: nodes.index(reply.metadata.src_node_id),
    )
    begun = ArrayRecord({name: Array(each) for name, each in MODEL.items()})
    strategy.start(grid, begun, num_rounds=ROUNDS, timeout=60)
    return taken.close()


@pytest.mark.parametrize("nodes", [(0, 1, 2, 3), (7, 3, 2**63, 5)], ids=["small", "large"])
def test_pieces_join_to_the_recording_of_a_strategy(tmp_path: Path, nodes: Any) -> None:
    """To the bit, with what is public; and an audit of either finds the same."""
    pieces = tmp_path / "pieces"
    theirs = run(app_with(RecordedMod(pieces)), tmp_path, nodes=nodes)
    joined = recorder()
    assert join_pieces(pieces, joined) == nodes
    ours = joined.close()
    assert ours.transcript.public == theirs.transcript.public
    assert contents(ours) == contents(theirs)
    assert {kind for _, kind, _, _ in contents(ours)} == {"model", "upload", "result"}
    findings = []
    for recording in (theirs, ours):
        recording.secrets.secrets["labels.majority"] = np.arange(CLIENTS) % 3
        report = audits.audit(recording, adversaries="server", attacks="output-bias").report
        findings.append((report["findings"], report["verdict"], report["utility"]))
    assert findings[0] == findings[1]
    assert all(file.stat().st_mode & 0o77 == 0 for file in pieces.glob("*/*.npz"))


def test_each_client_may_have_a_folder_of_its_own(tmp_path: Path) -> None:
    """Named in its SuperNode's configuration; joined from wherever the folders are."""
    pieces = tmp_path / "pieces"
    run(app_with(RecordedMod(pieces)), tmp_path)
    apart = []
    for node in range(CLIENTS):
        apart.append(tmp_path / f"host-{node}")
        shutil.copytree(pieces / f"node-{node}", apart[-1] / f"node-{node}")
    together, separate, direct = recorder(), recorder(), recorder()
    join_pieces(pieces, together)
    join_pieces(apart, separate)
    join_pieces([pieces / f"node-{node}" for node in range(CLIENTS)], direct)
    whole = contents(together.close())
    assert whole == contents(separate.close()) == contents(direct.close())
    context = context_of(0, tmp_path, {}, CLIENTS)
    with pytest.raises(ConfigError, match=r"node-config\.secure-fedrec-pieces"):
        RecordedMod()(Message(RecordDict(), 0, "train"), context, lambda m, _: m)
    context.node_config["secure-fedrec-pieces"] = str(tmp_path / "named")
    app = app_with(RecordedMod())
    records = RecordDict()
    records["arrays"] = ArrayRecord({name: Array(each) for name, each in MODEL.items()})
    records["config"] = ConfigRecord({"server-round": 1})
    app(Message(records, 0, "train"), context)
    assert len(list((tmp_path / "named" / "node-0").glob("piece-*.npz"))) == 1


def test_a_model_after_the_last_round_is_stated_where_nobody_evaluates(tmp_path: Path) -> None:
    pieces = tmp_path / "pieces"
    theirs = contents(run(app_with(RecordedMod(pieces)), tmp_path, evaluates=False))
    without, stated = recorder(leave_out=()), recorder(leave_out=())
    join_pieces(pieces, without)
    last = (ROUNDS, "result", 0, "table")
    assert contents(without.close()).keys() == theirs.keys() - {last}
    after = {"weight": np.ones((3, 4)), "bias": np.zeros(3)}
    join_pieces(pieces, stated, final=after)
    assert sum(contents(stated.close())[last][1][0]) == 12


def test_what_did_not_arrive_was_sent_all_the_same(tmp_path: Path) -> None:
    """A server that timed out has not read it; clients cannot know."""
    pieces = tmp_path / "pieces"

    def lost(message: Message) -> bool:
        trains = message.metadata.message_type == "train"
        return trains and message.metadata.src_node_id == 2

    theirs = run(app_with(RecordedMod(pieces)), tmp_path, refuses=lost)
    joined = recorder()
    join_pieces(pieces, joined)
    senders = [contents(each)[1, "upload", 0, "senders"][1] for each in (theirs, joined.close())]
    assert senders == [[0, 1, 3], [0, 1, 2, 3]]


def test_what_a_recording_does_not_hold_is_refused(tmp_path: Path) -> None:
    pieces = tmp_path / "pieces"
    run(app_with(RecordedMod(pieces)), tmp_path)
    for told, said in (
        ({"arrays": MODEL}, "metrics.loss is not an array of the recorder"),
        ({"leave_out": ()}, "replies of type 'evaluate' are not recorded"),
        ({"arrays": {**MODEL, "metrics.loss": (), "head": (2,)}}, "head is missing"),
        ({"n_clients": 3}, "party 3"),
    ):
        with pytest.raises(MisfitError, match=said):
            join_pieces(pieces, recorder(**told))
    with pytest.raises(MisfitError, match="two nodes the same number"):
        join_pieces(pieces, recorder(), client_of=lambda _: 0)
    with pytest.raises(MisfitError, match="one node two"):
        join_pieces(pieces, recorder(), client_of=lambda piece: piece.round)
    with pytest.raises(MisfitError, match="in round 1 clients were sent different models"):
        join_pieces(pieces, recorder(), round_of=lambda _: 1)
    first, *others = sorted(pieces.glob("node-0/piece-*"))
    for path in others:
        shutil.copy(first, path)
    with pytest.raises(MisfitError, match="client 0 answers twice in round 1"):
        join_pieces(pieces, recorder())
    with pytest.raises(TranscriptError, match="does not name a round"):
        join_pieces(pieces, recorder(), round_of=lambda _: 0)


def altered(path: Path, **facts: Any) -> None:
    """Other facts in a file."""
    columns = read_npz(path)
    told = {**json.loads(columns["facts"].tobytes()), **facts}
    columns["facts"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    write_npz(path, columns)


def renamed(node: Path, names: Any) -> None:
    """Other names in all models that a node was sent."""
    for path in node.glob("model-*"):
        altered(path, names=names)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda node: (node / "piece-000002.npz").unlink(), "lacks piece-000002"),
        (lambda node: (node / "piece-000001.npz").write_bytes(b"PK"), "is damaged"),
        (lambda node: altered(node / "piece-000001.npz", run=2), "of 2 runs"),
        (
            lambda node: altered(node / "piece-000001.npz", round="1"),
            "does not hold the facts of a piece",
        ),
        (
            lambda node: altered(node / "piece-000001.npz", replied=1),
            "does not hold the facts of a piece",
        ),
        (
            lambda node: altered(node / "piece-000001.npz", more=1),
            "does not hold the facts of a piece",
        ),
        (lambda node: altered(node / "piece-000001.npz", names=["a"] * 9), "is damaged"),
        (lambda node: altered(node / "piece-000001.npz", model="../x"), "by its digest"),
        (lambda node: altered(node / "piece-000001.npz", model="0" * 64), "different models"),
        (lambda node: altered(node / "piece-000001.npz", metrics={"loss": "x"}), "not numbers"),
        (lambda node: altered(node / "piece-000001.npz", metrics={"loss": 1}), "a weight"),
        (lambda node: [each.unlink() for each in node.glob("model-*")], "is damaged"),
        (lambda node: renamed(node, ["weight"]), "not the model"),
        (lambda node: renamed(node, 3), "not the model"),
        (lambda node: write_npz(node / "piece-000001.npz", {"x": np.ones(1)}), "is damaged"),
        (lambda node: [each.unlink() for each in node.parent.glob("*/piece-*")], "no pieces"),
    ],
)
def test_pieces_that_are_damaged_are_refused(
    damage: Callable[[Path], Any], said: str, tmp_path: Path
) -> None:
    pieces = tmp_path / "pieces"
    run(app_with(RecordedMod(pieces)), tmp_path)
    damage(pieces / "node-0")
    with pytest.raises(FedRecError, match=said):
        join_pieces(pieces, recorder())


def test_a_client_that_fails_leaves_no_upload(tmp_path: Path) -> None:
    pieces, seen = tmp_path / "pieces", []
    mod = RecordedMod(pieces)

    def fails(message: Message, context: Context) -> Message:
        raise ValueError("no data")

    context = context_of(0, tmp_path, {}, CLIENTS)
    records = RecordDict({"arrays": ArrayRecord({"weight": Array(MODEL["weight"])})})
    asked = Message(records, 0, "train", group_id="1")
    for _ in range(2):
        with pytest.raises(ValueError, match="no data"):
            mod(asked, context, fails)
        seen.append(sorted(path.name[:6] for path in (pieces / "node-0").iterdir()))
    assert seen == [["model-"], ["model-"]]
    failure = Error(0, "no data")
    mod(asked, context, lambda message, _: Message(failure, reply_to=message))
    taken = recorder(arrays={"weight": MODEL["weight"]})
    assert join_pieces(pieces, taken) == (0,)
    assert {kind for _, kind, _, _ in contents(taken.close())} == {"model"}
