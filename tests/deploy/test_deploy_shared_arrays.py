"""Which arrays of a model hosts share: BatchNorm, a client's own layers, terms that do not fit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from torch import nn
from torch.nn.functional import cross_entropy

from secure_fedrec.engines.distributed import Keys, MeanCoordinator
from secure_fedrec.engines.flower.mod import ProtectedMod
from secure_fedrec.engines.flower.strategy import ProtectedStrategy
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.means import MaskedMean, NoisedMean, ProtectedMean, trained
from tests.deploy.grid import MemoryGrid, as_flower_starts, context_of
from tests.deploy.keys import give_keys
from tests.deploy.mean_sites import MODEL, Sites, task_of

OWN_LAYERS = Path(__file__).parents[2] / "examples" / "flower-quickstart" / "own_layers.py"
CLIENTS, STEPS = 4, 20
STATISTICS = ("*", "*.running_mean", "*.running_var")
MASKED = MaskedMean(clip=4.0, max_weight=1000, corrupt=0.25, dropout=0.25, keeps_state=True)
NOISED = NoisedMean(
    clip=4.0, noise_multiplier=0.02, rounds=20, corrupt=0.25, dropout=0.25, keeps_state=True
)


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    as_flower_starts(monkeypatch)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    give_keys(tmp_path, CLIENTS)
    return tmp_path


def data_of(client: int, count: int = 120) -> tuple[Any, Any]:
    """Points of three classes, neither centred nor scaled: what a norm is for."""
    drawn, rule = (torch.Generator().manual_seed(seed) for seed in (client, 99))
    points = 5 * torch.randn(count, 8, generator=drawn) + 2
    scores = (points - 2) @ torch.randn(8, 3, generator=rule)
    return points, scores.argmax(dim=1)


def net(norm: type[nn.Module]) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16, bias=False), norm(16), nn.ReLU(), nn.Linear(16, 3))
    model.register_buffer("steps", torch.tensor(0))
    return model


def fit(model: Any, client: int) -> int:
    """Some steps on a client's own points; how many points."""
    points, classes = data_of(client)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        batch = torch.arange(30 * step, 30 * step + 30) % len(points)
        optimizer.zero_grad()
        loss: Any = cross_entropy(model(points[batch]), classes[batch])
        loss.backward()
        optimizer.step()
        model.steps += 1
    return len(points)


@torch.no_grad()
def loss_of(model: Any) -> float:
    """On points of nobody's, normed by their own statistics."""
    points, classes = data_of(1000, 500)
    return float(cross_entropy(model.train()(points), classes))


def app_of(terms: ProtectedMean, norm: type[nn.Module]) -> ClientApp:
    """An app that sends all that its model holds, and keeps layers as the example does."""
    own: dict[str, Any] = {}
    exec(OWN_LAYERS.read_text(), own)  # noqa: S102  the example's own
    app = ClientApp(mods=[ProtectedMod(terms)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = net(norm)
        own["load_received"](model, message, context)
        count = fit(model, int(context.node_config["partition-id"]))
        own["keep_own"](model, terms, context)
        metrics = MetricRecord({"num-examples": count})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


@dataclass
class Ran:
    """A run that is over: the server's model, its rounds, and the nodes."""

    arrays: Mapping[str, np.ndarray]
    clients: list[list[int]]
    grid: MemoryGrid
    norm: type[nn.Module]

    @property
    def model(self) -> Any:
        found = net(self.norm)
        found.load_state_dict({name: torch.tensor(each) for name, each in self.arrays.items()})
        return found

    def own(self, client: int) -> Mapping[str, np.ndarray]:
        kept = self.grid.contexts[client].state.array_records["own"]
        return {name: array.numpy() for name, array in kept.items()}


def ran(
    keys: Path,
    terms: ProtectedMean,
    norm: type[nn.Module],
    rounds: int,
    inside: type[Strategy] = FedAvg,
) -> Ran:
    grid = MemoryGrid(
        {n: app_of(terms, norm) for n in range(CLIENTS)},
        {n: context_of(n, keys / str(n), {}, CLIENTS) for n in range(CLIENTS)},
    )
    options: Any = {"min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
    strategy = ProtectedStrategy(inside(**options), terms, keys / "server")
    result = strategy.start(grid, ArrayRecord(net(norm).state_dict()), num_rounds=rounds)
    return Ran(
        arrays={name: array.numpy() for name, array in result.arrays.items()},
        clients=[report.clients.tolist() for report in strategy.reports],
        grid=grid,
        norm=norm,
    )


def begun(norm: type[nn.Module]) -> dict[str, np.ndarray]:
    return {name: each.numpy() for name, each in net(norm).state_dict().items()}


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize("inside", [FedAvg, FedAdam])
def test_the_server_has_what_is_not_shared_as_it_began(keys: Path, inside: type[Strategy]) -> None:
    """Over rounds too: Flower's own mean makes floats of whole numbers, and floats are shared.

    Counters move by 20 a round, and by the clip of 4 no client is lost.
    """
    found = ran(keys, MASKED, nn.BatchNorm1d, 2, inside)
    assert found.clients == [[*range(CLIENTS)]] * 2
    home = MASKED.select(begun(nn.BatchNorm1d)).home
    assert home == ("1.num_batches_tracked", "1.running_mean", "1.running_var", "steps")
    for name, before in begun(nn.BatchNorm1d).items():
        assert np.array_equal(found.arrays[name], before) == (name in home)
        if name in home:
            assert found.arrays[name].dtype == before.dtype
    # A client's app has its own.
    assert found.own(1)["1.num_batches_tracked"] == found.own(1)["steps"] == 2 * STEPS
    assert not np.array_equal(found.own(1)["1.running_mean"], found.own(2)["1.running_mean"])


def test_batch_norm_under_noise_learns_as_layer_norm_does(keys: Path, tmp_path: Path) -> None:
    """Statistics in the sum would take its clip: they move further than all that is trained."""
    losses = {}
    with_statistics = replace(NOISED, shared=STATISTICS)
    kinds = {"layer": (NOISED, nn.LayerNorm), "batch": (NOISED, nn.BatchNorm1d)}
    kinds["statistics"] = (with_statistics, nn.BatchNorm1d)
    for name, (terms, norm) in kinds.items():
        folder = tmp_path / name
        folder.mkdir()
        give_keys(folder, CLIENTS)
        losses[name] = loss_of(ran(folder, terms, norm, 3).model)
    start = loss_of(net(nn.BatchNorm1d))
    assert losses["batch"] < 1.35 * losses["layer"] < 0.7 * start
    assert losses["statistics"] > 1.5 * losses["batch"]


@pytest.mark.parametrize("private", [("1.*",), ("3.*",)], ids=["FedBN", "FedPer"])
def test_layers_of_a_clients_own_stay_with_it(keys: Path, private: tuple[str, ...]) -> None:
    terms = replace(MASKED, private=private)
    found = ran(keys, terms, nn.BatchNorm1d, 2)
    before = begun(nn.BatchNorm1d)
    shared = terms.select(before)
    own = {n: found.own(n) for n in range(CLIENTS)}
    layers = [name for name in shared.home if name.startswith(private[0][:2])]
    assert len(layers) == (5 if private == ("1.*",) else 2)
    for name in layers:
        np.testing.assert_array_equal(found.arrays[name], before[name])
        assert not np.array_equal(own[0][name], before[name])
        counted = name.endswith("num_batches_tracked")
        assert np.array_equal(own[0][name], own[1][name]) == counted
    for name in shared.shapes:
        assert not np.array_equal(found.arrays[name], before[name])


def test_terms_are_the_modules_where_it_is_at_hand(keys: Path) -> None:
    terms = replace(MASKED, shared=trained(net(nn.BatchNorm1d)))
    assert ran(keys, terms, nn.BatchNorm1d, 1).clients == [[*range(CLIENTS)]]


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"shared": ("body.*",)}, r"'body\.\*' matches no array; there are: '0.weight', '1.bias'"),
        ({"private": ("head.*",)}, r"'head\.\*' matches no array; there are: '0.weight'"),
        ({"shared": ("1.num_batches_tracked",)}, "'1.num_batches_tracked' holds int64"),
        ({"clip": {"0.*": 4.0}}, r"no pattern for array '1\.bias'"),
    ],
)
def test_terms_that_do_not_fit_are_refused_before_anything_is_sent(
    keys: Path, terms: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ran(keys, MaskedMean(**{**asdict(MASKED), **terms}), nn.BatchNorm1d, 1)
    assert not (keys / "server" / "state" / "rounds.npz").exists()
    assert not any((keys / str(n) / "state").exists() for n in range(CLIENTS))


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize("terms", [MASKED, NOISED])
def test_a_site_refuses_a_model_that_terms_do_not_fit(keys: Path, terms: ProtectedMean) -> None:
    """Before it computes, and before its journal knows of the round: it is in the next one."""
    settled = replace(terms, shared=("w*",))
    odd = {"v": MODEL["w"], "steps": MODEL["steps"]}
    sites = Sites(keys, settled, {n: odd if n == 2 else MODEL for n in range(CLIENTS)})
    server = MeanCoordinator(settled, Keys(keys / "server"))
    report = server.run_round(sites, task_of(MODEL))
    assert report.clients.tolist() == sites.trained == [0, 1, 3]
    assert list(report.mean.arrays) == ["w"]
    (refusal,) = sites.refused.values()
    assert isinstance(refusal, ConfigError)
    assert "'w*' matches no array; there are: 'steps', 'v'" in str(refusal)
    later = {"w": MODEL["w"] + 1, "steps": MODEL["steps"]}
    sites.models = dict.fromkeys(range(CLIENTS), later)
    assert server.run_round(sites, task_of(later)).clients.tolist() == [*range(CLIENTS)]


@pytest.mark.claim("means-shared-arrays")
def test_what_stays_home_buys_no_second_sum_of_one_update(keys: Path) -> None:
    """A client reveals once for what is shared, whatever a server puts beside it."""
    sites = Sites(keys, MASKED, dict.fromkeys(range(CLIENTS), MODEL))
    server = MeanCoordinator(MASKED, Keys(keys / "server"))
    np.testing.assert_array_equal(server.run_round(sites, task_of(MODEL)).mean.arrays["w"], 1.5)
    other = {**MODEL, "steps": np.array(1)}
    sites.models = dict.fromkeys(range(CLIENTS), other)
    with pytest.raises(ProtocolError, match="0 clients advertised keys"):
        server.run_round(sites, task_of(other))
    assert sites.trained == [*range(CLIENTS)]
