"""Somebody else's Flower app under protection: what its server learns, and what is refused."""

import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Strategy

from secure_fedrec.engines.distributed.host_messages import Kind
from secure_fedrec.engines.distributed.site_state import MOST_SAT_OUT
from secure_fedrec.engines.flower import tasks
from secure_fedrec.engines.flower.message_bytes import RECORD
from secure_fedrec.engines.flower.mod import ProtectedMod
from secure_fedrec.engines.flower.model_records import told_digest
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.engines.flower.strategy import ProtectedStrategy
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.envelope import VERSION
from secure_fedrec.protection.means import MaskedMean, NoisedMean, ProtectedMean
from tests.deploy.grid import MemoryGrid, as_flower_starts, context_of
from tests.deploy.keys import give_keys

CLIENTS = 4
TERMS = MaskedMean(clip=8.0, max_weight=100, corrupt=0.25, dropout=0.25)
NOISED = NoisedMean(clip=0.5, noise_multiplier=0.5, rounds=20, corrupt=0.25, dropout=0.25)
START = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array(3)}
CANARY = "user 17 rated 5"


def moved_by(client: int) -> dict[str, np.ndarray]:
    """What training at a client adds; no multiples of the ring's unit."""
    rng = np.random.default_rng(client)
    return {"w": rng.normal(size=(2, 3)).astype(np.float32), "steps": np.array(client)}


def weight_of(client: int) -> int:
    return 10 + client


@dataclass
class App:
    """An app whose training is known.

    Attributes:
        trained: clients that have trained, in order.
        failing: clients whose training fails, evaluation too.
        empty: clients without an example.
        times: what each client's update is multiplied with.
        failure: how training fails.
        counts: whether the app keeps a single value as a whole number, whatever it was sent as.
    """

    terms: ProtectedMean = TERMS
    trained: list[int] = field(default_factory=list)
    failing: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)
    times: float = 1.0
    only: tuple[str, ...] = ("w", "steps")
    failure: type[BaseException] = ValueError
    counts: bool = False

    def kind(self, sent: Array) -> np.dtype[Any]:
        """What an array is sent back as: as it came, or whole numbers where the app ``counts``."""
        return np.dtype(np.int64) if self.counts and not sent.numpy().shape else sent.numpy().dtype

    def updates(self, name: str) -> list[np.ndarray]:
        return [self.times * moved_by(client)[name] for client in range(CLIENTS)]

    def client_without(self) -> ClientApp:
        """The app as it was before it was protected."""
        return self._with(ClientApp())

    def client(self, **options: Any) -> ClientApp:
        return self._with(ClientApp(mods=[ProtectedMod(self.terms, **options)]))

    def _with(self, app: ClientApp) -> ClientApp:
        @app.train()
        def train(message: Message, context: Context) -> Message:
            client = int(context.node_config["partition-id"])
            self.trained.append(client)
            if client in self.failing:
                raise self.failure(CANARY)
            assert RECORD not in message.content
            sent = message.content.array_records["arrays"]
            arrays = {
                name: np.asarray(
                    (sent[name].numpy() + self.times * value).astype(self.kind(sent[name]))
                )
                for name, value in moved_by(client).items()
                if name in self.only
            }
            weight = 0 if client in self.empty else weight_of(client)
            metrics = MetricRecord({"num-examples": weight, "loss": 0.1 * client})
            metrics["secret"] = 3.0
            content = RecordDict(
                {
                    "arrays": ArrayRecord(
                        {name: Array(np.asarray(each)) for name, each in arrays.items()}
                    ),
                    "metrics": metrics,
                    "notes": ConfigRecord({"text": CANARY}),
                }
            )
            return Message(content, reply_to=message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            client = int(context.node_config["partition-id"])
            if client in self.failing:
                raise ValueError(CANARY)
            metrics = MetricRecord({"num-examples": weight_of(client), "error": float(client)})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return app


def start_arrays(beyond: int = 0) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(each + beyond)) for name, each in START.items()})


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    as_flower_starts(monkeypatch)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    give_keys(tmp_path, CLIENTS)
    return tmp_path


def grid_of(app: App, keys: Path) -> MemoryGrid:
    nodes = range(CLIENTS)
    contexts = {n: context_of(n, keys / str(n), {}, CLIENTS) for n in nodes}
    return MemoryGrid({n: app.client() for n in nodes}, contexts)


def fedavg(**options: Any) -> FedAvg:
    return FedAvg(min_train_nodes=CLIENTS, min_available_nodes=CLIENTS, **options)


def protected(app: App, keys: Path, inside: Strategy | None = None) -> ProtectedStrategy:
    return ProtectedStrategy(inside or fedavg(), app.terms, keys / "server")


def expected_mean(clients: Sequence[int]) -> np.ndarray:
    """float64[2, 3]: the weighted mean of what clients have moved by."""
    weights = [weight_of(each) for each in clients]
    return np.average([moved_by(each)["w"] for each in clients], axis=0, weights=weights)


def require_mean(found: ArrayRecord, clients: Sequence[int]) -> None:
    """The rounding of each update to the ring's grid, and of the result to float32."""
    w = found["w"].numpy()
    assert w.dtype == np.float32
    due = START["w"] + expected_mean(clients)
    bound = 2.0**-25 + np.spacing(np.abs(due).astype(np.float32)) / 2
    # What a client sends is float32 already: one more rounding of each update.
    bound = bound + np.spacing(np.float32(8.0)) / 2
    assert np.all(np.abs(w - due) <= bound)


def replies_of(grid: MemoryGrid) -> list[ProtoMessage]:
    return [ProtoMessage.FromString(data) for data in grid.seen]


@pytest.mark.parametrize(("adversary", "exchanges"), [("active", 5), ("curious", 4)])
def test_the_strategy_gets_the_weighted_mean(keys: Path, adversary: Any, exchanges: int) -> None:
    """Evaluations, whose replies are read in clear, are asked for of a curious server alone."""
    terms = {**asdict(TERMS), "metrics": {"loss": 1.0}, "adversary": adversary}
    app = App(MaskedMean(**terms))
    grid = grid_of(app, keys)
    strategy = protected(app, keys)
    result = strategy.start(grid, start_arrays(), num_rounds=2)
    # One greeting, twice the round's exchanges and an evaluation.
    evaluates = adversary == "curious"
    assert len(grid.exchanges) == 1 + 2 * (exchanges + evaluates)
    assert app.trained == [*range(CLIENTS)] * 2
    (first, second) = strategy.reports
    assert (first.exchanges, second.exchanges) == (exchanges + 1, exchanges)
    assert first.mean.weight == sum(map(weight_of, range(CLIENTS)))
    np.testing.assert_allclose(
        result.arrays["w"].numpy(), START["w"] + 2 * expected_mean(range(CLIENTS)), atol=4e-6
    )
    steps = result.arrays["steps"].numpy()  # whole numbers are not shared
    assert steps.dtype == START["steps"].dtype
    assert steps == START["steps"]
    loss = sum(weight_of(n) * 0.1 * n for n in range(CLIENTS)) / first.mean.weight
    train, evaluated = result.train_metrics_clientapp, result.evaluate_metrics_clientapp
    assert set(train[1]) == {"loss"}
    assert train[1]["loss"] == pytest.approx(loss, abs=2.0**-25 / 8)
    errors = sum(weight_of(n) * n for n in range(CLIENTS)) / first.mean.weight
    assert (1 in evaluated) == evaluates
    if evaluates:
        assert evaluated[1]["error"] == pytest.approx(errors)


def test_one_round_is_within_the_rings_rounding(keys: Path) -> None:
    app = App()
    result = protected(app, keys).start(grid_of(app, keys), start_arrays(), num_rounds=1)
    require_mean(result.arrays, range(CLIENTS))


@pytest.mark.claim("flower-one-field")
@pytest.mark.parametrize("terms", [TERMS, NOISED])
def test_nothing_of_a_train_reply_leaves_but_one_field(keys: Path, terms: ProtectedMean) -> None:
    app = App(terms)
    grid = grid_of(app, keys)
    protected(app, keys, fedavg(fraction_evaluate=0.0)).start(grid, start_arrays(), num_rounds=1)
    plain = [each.tobytes() for n in range(CLIENTS) for each in (moved_by(n)["w"],)]
    assert len(grid.seen) == 6 * CLIENTS
    for data, reply in zip(grid.seen, replies_of(grid), strict=True):
        content = message_from_proto(reply).content
        assert list(content) == [RECORD]
        assert {key: type(each) for key, each in content.config_records[RECORD].items()} == {
            "data": bytes
        }
        assert not any(each in data for each in plain)
        assert CANARY.encode() not in data
        assert b"secret" not in data
    for context in grid.contexts.values():
        assert not len(context.state)  # nothing of a round is with Flower


@pytest.mark.claim("flower-one-field")
@pytest.mark.parametrize("adversary", ["active", "curious"])
def test_a_train_message_without_protection_is_refused(keys: Path, adversary: Any) -> None:
    app = App(replace(TERMS, adversary=adversary))
    grid = grid_of(app, keys)
    result = fedavg(fraction_evaluate=0.0).start(grid, start_arrays(), num_rounds=1)
    assert app.trained == []
    assert not result.arrays
    assert {reply.error.reason for reply in replies_of(grid)} == {"client failed"}


@pytest.mark.claim("flower-one-field")
@pytest.mark.parametrize("adversary", ["active", "curious"])
def test_no_exception_reaches_the_server(
    keys: Path, adversary: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And those who failed are as good as gone: the mean is that of the others."""
    app = App(replace(TERMS, adversary=adversary), failing={2})
    grid = grid_of(app, keys)
    strategy = protected(app, keys)
    result = strategy.start(grid, start_arrays(), num_rounds=1)
    require_mean(result.arrays, [0, 1, 3])
    assert strategy.reports[0].clients.tolist() == [0, 1, 3]
    assert not any(CANARY.encode() in data for data in grid.seen)
    assert CANARY not in caplog.text
    assert "ValueError on this client's own data" in caplog.text


def test_an_error_that_an_app_answers_with_stays_on_its_host(keys: Path) -> None:
    app = ClientApp(mods=[ProtectedMod(replace(TERMS, adversary="curious"))])

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(Error(0, CANARY), reply_to=message)

    message = Message(RecordDict(), dst_node_id=1, message_type="evaluate")
    reply = app(message, context_of(1, keys / "1", {}, CLIENTS))
    assert reply.error.reason == "client failed"


@pytest.mark.claim("hosts-silence")
@pytest.mark.parametrize("failure", [ValueError, TimeoutError, SystemExit, GeneratorExit])
def test_a_model_that_only_some_clients_can_bear_tells_of_each_a_few_times(
    failure: type[BaseException], keys: Path
) -> None:
    """Whose app fails sits the round out: a server that tries one model after the other hears of it
    a few times, and then nothing new, until the client's owner has looked."""
    app, inside = App(failing={2}, failure=failure), fedavg(fraction_evaluate=0.0)

    def took_part(rounds: int) -> list[list[int]]:
        strategy, other = protected(app, keys, inside), len(app.trained)  # no model comes twice
        strategy.start(grid_of(app, keys), start_arrays(other), num_rounds=rounds)
        assert {why for each in strategy.reports for why in each.dropped.values()} <= {
            "sits this round out: its result cannot be sent",
            "its part is halted until its owner has looked",
        }
        return [report.clients.tolist() for report in strategy.reports]

    assert took_part(1) == [[0, 1, 3]]
    app.failing.clear()
    assert took_part(1) == [[0, 1, 2, 3]]
    app.failing.add(2)
    assert took_part(MOST_SAT_OUT) == [[0, 1, 3]] * MOST_SAT_OUT
    app.failing.clear()
    assert took_part(2) == [[0, 1, 3]] * 2
    assert app.trained.count(2) == MOST_SAT_OUT + 2
    mark = keys / "2" / "state" / "halted"
    assert f"{failure.__name__}: {CANARY}" in mark.read_text()
    assert mark.stat().st_mode & 0o077 == 0
    mark.unlink()
    assert took_part(1) == [[0, 1, 2, 3]]


def test_a_client_without_examples_sits_out_whatever_the_model(keys: Path) -> None:
    """Every round, as that tells nothing of a model; its reason reaches the server."""
    app = App(empty={2})
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    strategy.start(grid_of(app, keys), start_arrays(), num_rounds=MOST_SAT_OUT + 2)
    assert [each.clients.tolist() for each in strategy.reports] == [[0, 1, 3]] * (MOST_SAT_OUT + 2)
    assert all(each.dropped == {2: "sits this round out"} for each in strategy.reports)
    app.empty.clear()
    strategy.start(grid_of(app, keys), start_arrays(9), num_rounds=1)
    assert strategy.reports[-1].clients.tolist() == [0, 1, 2, 3]


def test_the_same_app_run_twice_is_refused_with_what_to_do(keys: Path) -> None:
    """In the first exchange: the model has been answered for."""
    app = App()
    grid = grid_of(app, keys)
    protected(app, keys, fedavg(fraction_evaluate=0.0)).start(grid, start_arrays(), num_rounds=1)
    grid.exchanges.clear()
    again = protected(app, keys, fedavg(fraction_evaluate=0.0))
    with pytest.raises(ProtocolError, match=r"clients 0, 1, 2, 3: .* the model must move on"):
        again.start(grid, start_arrays(), num_rounds=1)
    assert len(grid.exchanges) == 2  # a greeting, and the first of the round
    assert app.trained.count(0) == 1


@pytest.mark.claim("flower-survivors-or-none")
@pytest.mark.parametrize("stage", range(1, 6))
def test_a_client_that_goes_away_costs_its_own_update_at_most(keys: Path, stage: int) -> None:
    """Silent from one exchange on: the sum is of the survivors, whose masks come off."""
    app = App()
    grid = grid_of(app, keys)
    grid.back = lambda reply: (
        [] if reply.metadata.src_node_id == 1 and len(grid.exchanges) > stage else [reply]
    )
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    result = strategy.start(grid, start_arrays(), num_rounds=1, timeout=0.05)
    heard = [0, 1, 2, 3] if stage > 3 else [0, 2, 3]
    assert strategy.reports[0].clients.tolist() == heard
    require_mean(result.arrays, heard)


@pytest.mark.claim("flower-survivors-or-none")
@pytest.mark.parametrize("stage", range(5))
def test_with_too_few_clients_there_is_no_sum(keys: Path, stage: int) -> None:
    app = App()
    grid = grid_of(app, keys)
    grid.back = lambda reply: (
        [] if reply.metadata.src_node_id in (1, 2) and len(grid.exchanges) > stage else [reply]
    )
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    reason = "2 clients of the roster are reached" if stage == 0 else "a sum needs 3|given up"
    with pytest.raises(ProtocolError, match=reason):
        strategy.start(grid, start_arrays(), num_rounds=1, timeout=0.05)
    assert strategy.reports == []


def altered(change: Callable[[RecordDict], None]) -> Callable[[Message], Sequence[Message]]:
    """A relay that changes what node 1 is sent beside a message of ours."""

    def relay(message: Message) -> Sequence[Message]:
        if message.metadata.dst_node_id == 1 and "arrays" in message.content:
            change(message.content)
        return [message]

    return relay


def other_model(content: RecordDict) -> None:
    content.array_records["arrays"]["w"] = Array(START["w"] + np.float32(1e-3))


def other_config(content: RecordDict) -> None:
    content.config_records["config"]["epochs"] = 1000


def more_arrays(content: RecordDict) -> None:
    content["more"] = start_arrays()


@pytest.mark.claim("flower-survivors-or-none")
@pytest.mark.parametrize("change", [other_model, other_config, more_arrays])
def test_what_a_relay_alters_is_not_computed(
    keys: Path, change: Callable[[RecordDict], None], caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    grid = grid_of(app, keys)
    grid.out = altered(change)
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    result = strategy.start(grid, start_arrays(), num_rounds=1)
    assert app.trained == [0, 2, 3]
    require_mean(result.arrays, [0, 2, 3])
    assert "refused: " in caplog.text


def is_refusal(reply: Message) -> bool:
    data = reply.content.config_records[RECORD]["data"]
    assert isinstance(data, bytes)
    return data[0] != VERSION and data[2] == Kind.REFUSED


@pytest.mark.claim("flower-survivors-or-none")
def test_what_is_repeated_is_computed_and_answered_once(keys: Path) -> None:
    """Every message comes three times; who repeats the first makes nobody train again."""
    app = App()
    grid = grid_of(app, keys)
    grid.out = lambda message: [message, message, message]
    answered: list[tuple[int, int]] = []
    kept: dict[str, Message] = {}

    def first(reply: Message) -> Sequence[Message]:
        if not reply.has_error() and not is_refusal(reply):
            answered.append((reply.metadata.src_node_id, len(grid.exchanges)))
        return [kept.setdefault(reply.metadata.reply_to_message_id, reply)]

    grid.back = first
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    result = strategy.start(grid, start_arrays(), num_rounds=1)
    assert app.trained == [0, 1, 2, 3]
    require_mean(result.arrays, range(CLIENTS))
    for node in range(CLIENTS):
        # A greeting is answered whenever it comes, and a reveal with the bytes of the first time.
        assert [answered.count((node, at)) for at in range(1, 7)] == [3, 1, 1, 1, 1, 3]


@pytest.mark.claim("flower-survivors-or-none")
def test_a_half_serves_once(keys: Path) -> None:
    """Between two messages it lies sealed at its client; a copy that is put back is refused."""
    app = App()
    grid = grid_of(app, keys)
    state, copy = keys / "1" / "state", keys / "copy"

    def put_back(message: Message) -> Sequence[Message]:
        if message.metadata.dst_node_id == 1 and len(grid.exchanges) == 3:
            assert (state / "half").stat().st_mode & 0o777 == 0o600
            assert not any(moved_by(1)["w"].tobytes() in each.read_bytes() for each in files(state))
            shutil.copy(state / "half", copy)
        if message.metadata.dst_node_id == 1 and len(grid.exchanges) == 4:
            shutil.copy(copy, state / "half")
        return [message]

    grid.out = put_back
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    result = strategy.start(grid, start_arrays(), num_rounds=1)
    assert strategy.reports[0].clients.tolist() == [0, 2, 3]
    require_mean(result.arrays, [0, 2, 3])


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def test_a_server_that_is_started_anew_goes_on(keys: Path) -> None:
    """Numbers of rounds ascend over its runs, or no client would take part again."""
    app = App()
    for run in range(2):
        strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
        grid = grid_of(app, keys)
        grid.contexts = dict(grid.contexts)
        strategy.start(grid, start_arrays(run), num_rounds=1)
    assert len(app.trained) == 2 * CLIENTS


@pytest.mark.claim("flower-survivors-or-none")
def test_one_model_is_answered_for_once(keys: Path) -> None:
    app = App()
    grid = grid_of(app, keys)
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    strategy.start(grid, start_arrays(), num_rounds=1)
    with pytest.raises(ProtocolError, match="0 clients advertised keys"):
        strategy.start(grid, start_arrays(), num_rounds=1)
    assert len(app.trained) == CLIENTS


def test_a_servers_optimizer_gets_what_it_would(keys: Path) -> None:
    def adam() -> FedAdam:
        return FedAdam(
            fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS, eta=0.1
        )

    app = App()
    start = ArrayRecord({"w": Array(START["w"]), "steps": Array(np.array(3.0))})
    result = protected(app, keys, adam()).start(grid_of(app, keys), start, num_rounds=1)
    plain = grid_of(app, keys)
    plain.apps = {n: app.client_without() for n in range(CLIENTS)}
    due = adam().start(plain, start, num_rounds=1)
    np.testing.assert_allclose(result.arrays["w"].numpy(), due.arrays["w"].numpy(), atol=1e-5)


def test_noise_is_added_at_every_client(keys: Path) -> None:
    app = App(NOISED, times=0.1)
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    start = ArrayRecord({"w": Array(START["w"])})
    app.only = ("w",)
    result = strategy.start(grid_of(app, keys), start, num_rounds=1)
    deviation = NOISED.deviation(clients=CLIENTS, length=6, survivors=CLIENTS)
    clipped = [each * min(1.0, 0.5 / np.linalg.norm(each)) for each in app.updates("w")]
    error = result.arrays["w"].numpy() - START["w"] - np.mean(clipped, axis=0)
    assert 0.2 * deviation < np.sqrt(np.mean(error**2)) < 3 * deviation
    assert strategy.reports[0].mean.weight == CLIENTS  # all count alike
    (event,) = NOISED.events(clients=CLIENTS, length=6)
    assert event.rounds == NOISED.rounds


@pytest.mark.claim("hosts-price")
def test_a_client_hands_in_as_many_noised_vectors_as_were_settled(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the models are, and whatever becomes of a round once its words have left."""
    app = App(replace(NOISED, rounds=3), times=0.1)
    inside = fedavg(fraction_evaluate=0.0)
    grid = grid_of(app, keys)
    protected(app, keys, inside).start(grid, start_arrays(), num_rounds=2)
    grid.exchanges.clear()
    grid.back = lambda reply: [] if len(grid.exchanges) == 4 else [reply]  # after the greeting
    with pytest.raises(ProtocolError):
        protected(app, keys, inside).start(grid, start_arrays(5), num_rounds=1, timeout=0.05)
    grid.back = lambda reply: [reply]
    trained = len(app.trained)
    spent = r"clients 0, 1, 2, 3: this client's budget is spent: 3 noised vectors"
    for beyond in (6, 7):
        with pytest.raises(ProtocolError, match=spent):
            protected(app, keys, inside).start(grid, start_arrays(beyond), num_rounds=1)
    for node in range(CLIENTS):  # what counts cannot be left out
        for name in ("private.state", "private.ticket"):
            (keys / str(node) / "state" / name).unlink()
    with pytest.raises(ProtocolError):
        protected(app, keys, inside).start(grid, start_arrays(8), num_rounds=1)
    assert "is missing beside journal" in caplog.text
    assert len(app.trained) == trained == 3 * CLIENTS


@pytest.mark.claim("hosts-bounded-states")
def test_values_that_do_not_fit_are_refused_at_their_client(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(times=100.0)
    strategy = protected(app, keys)
    told = "a sum needs 3; clients 0, 1, 2, 3: .* its result cannot be sent"
    with pytest.raises(ProtocolError, match=told) as refused:
        strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)
    assert "'w'" not in str(refused.value)  # which array it is follows from the data
    assert "EncodingError on this client's own data" in caplog.text
    assert "array 'w' moved beyond" in (keys / "0" / "state" / "sat-out").read_text()


@pytest.mark.parametrize(
    "file", ["roster", "operator.pub", "server.identity"], ids=lambda file: file
)
def test_a_server_does_not_start_without_its_keys(keys: Path, file: str) -> None:
    (keys / "server" / file).unlink()
    with pytest.raises(ConfigError, match=r"^(roster|identity)\."):
        protected(App(), keys)


@pytest.mark.claim("flower-survivors-or-none")
@pytest.mark.parametrize("file", ["roster", "operator.pub", "client.identity"])
def test_a_client_does_not_train_without_its_keys(keys: Path, file: str) -> None:
    (keys / "1" / file).unlink()
    app = App()
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)
    assert app.trained == [0, 2, 3]


def test_a_roster_that_another_operator_signed_is_refused(keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    give_keys(other, CLIENTS)
    shutil.copy(other / "server" / "roster", keys / "server" / "roster")
    with pytest.raises(ConfigError, match=r"roster.*not signed by the pinned operator"):
        protected(App(), keys)


def test_clients_of_other_terms_do_not_answer(keys: Path) -> None:
    app = App()
    strategy = protected(app, keys)
    app.terms = MaskedMean(**{**asdict(TERMS), "clip": 9.0})
    with pytest.raises(ProtocolError, match="0 clients of the roster are reached, by 4 addresses"):
        strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)
    assert app.trained == []


def test_a_strategy_that_needs_every_update_is_refused(keys: Path) -> None:
    class Own(FedMedian):
        pass

    with pytest.raises(ConfigError, match=r"FedMedian.*needs each client's update"):
        ProtectedStrategy(Own(), TERMS, keys / "server")


def test_messages_that_differ_are_refused(keys: Path) -> None:
    class Different(FedAvg):
        def configure_train(self, *arguments: Any, **named: Any) -> Any:
            messages = list(super().configure_train(*arguments, **named))
            messages[0].content = RecordDict(
                {"arrays": start_arrays(), "config": ConfigRecord({"epochs": 2})}
            )
            return messages

    app = App()
    strategy = protected(app, keys, Different(min_train_nodes=4, min_available_nodes=4))
    with pytest.raises(ConfigError, match="must send all clients the same"):
        strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)
    assert app.trained == []


@pytest.mark.parametrize("switch", SWITCHES)
def test_nothing_starts_while_flower_would_speak_to_others(
    keys: Path, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    strategy = protected(app, keys)
    monkeypatch.delenv(switch)
    with pytest.raises(ConfigError, match=switch):
        protected(app, keys)
    with pytest.raises(ProtocolError, match="0 clients of the roster"):
        strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)


@pytest.mark.parametrize(
    ("terms", "key"),
    [
        ({"clip": 2.0**30}, "protection.clip"),
        ({"max_weight": 2**40}, "protection.clip"),
        ({"dropout": 0.5}, "protection.dropout"),
        ({"min_survivors": 5}, "protection.min_survivors"),
    ],
)
def test_terms_that_do_not_fit_the_roster_are_refused(
    keys: Path, terms: Mapping[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} "):
        protected(App(MaskedMean(**{**asdict(TERMS), **terms})), keys)


def test_an_app_that_is_served_here_tells_nothing_of_a_failure(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even of what Flower runs before any mod: the app's life span."""
    served: list[tasks.Reply] = []
    monkeypatch.setattr(tasks, "serve", lambda reply, address, *, alive: served.append(reply))
    app = App().client()

    @app.lifespan()
    def lifespan(context: Context) -> Iterator[None]:
        if context.node_id:
            raise ValueError(CANARY)
        yield

    tasks.serve_app(app, "127.0.0.1:1")
    message = Message(RecordDict(), dst_node_id=1, message_type="evaluate")
    reply = served[0](message, context_of(1, keys / "1", {}, CLIENTS))
    assert reply.error.reason == "client failed"


def test_every_bit_of_a_float_is_told_apart() -> None:
    """Found by attacking: NaNs of several bits have one name, and reach an app with all of them."""
    numbers = [*struct.unpack("<4d", bytes.fromhex("000000000000f87f" "010000000000f87f"
        "000000000000f8ff" "0000000000000080")), 0.0, 0, False, "0.0"]  # fmt: skip
    digests = {told_digest({"rate": number}) for number in numbers}
    digests |= {told_digest({"rate": [number]}) for number in numbers}
    assert len(digests) == 2 * len(numbers)


def test_a_round_is_a_line_at_both_ends(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its statement, what it came to and what it cost; nothing of an update."""
    app = App(replace(NOISED, rounds=3), times=0.1, failing={1})
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    with caplog.at_level("INFO", logger="secure-fedrec"):
        strategy.start(grid_of(app, keys), start_arrays(), num_rounds=1)
    fields = [each.__dict__["fields"] for each in caplog.records if "fields" in each.__dict__]
    rounds = [each for each in fields if each["event"] == "round"]
    assert {each["statement"] for each in rounds} == {strategy.reports[0].statement}
    assert [each["noised_uploads_left"] for each in rounds[:-1]] == [2, 2, 2]
    assert (rounds[-1]["participants"], rounds[-1]["invited"]) == (3, CLIENTS)
    (left,) = (each for each in fields if each["event"] == "left-out")
    assert (left["client"], left["why"]) == (
        1,
        "sits this round out: its result cannot be sent",
    )
    assert CANARY not in str(fields)


@pytest.mark.claim("flower-stateless-against-active")
@pytest.mark.parametrize("keeps", [False, True])
def test_against_an_active_server_an_app_keeps_a_state_where_terms_say_so(
    keys: Path, keeps: bool
) -> None:
    """A SuperLink chooses which state a message comes with; no round agrees on it."""
    begun: list[int] = []
    app = App(replace(TERMS, keeps_state=keeps))
    client = ClientApp(mods=[ProtectedMod(app.terms)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        begun.append(len(context.state))
        context.state = RecordDict({"own": ConfigRecord({"n": len(begun)})})
        content = RecordDict({"arrays": start_arrays(1), "m": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    contexts = {n: context_of(n, keys / str(n), {}, CLIENTS) for n in range(CLIENTS)}
    for context in contexts.values():
        context.state["own"] = ConfigRecord({"n": 0})  # by whoever chose it
    grid = MemoryGrid(dict.fromkeys(range(CLIENTS), client), contexts)
    strategy = protected(app, keys, fedavg(fraction_evaluate=0.0))
    if keeps:
        strategy.start(grid, start_arrays(), num_rounds=1)
    else:
        with pytest.raises(ProtocolError, match=r"protection\.keeps_state = True"):
            strategy.start(grid, start_arrays(), num_rounds=1)
    assert begun == [int(keeps)] * CLIENTS
    kept = {context.state.config_records["own"]["n"] for context in contexts.values()}
    assert kept == ({1, 2, 3, 4} if keeps else {0})


def test_a_count_stays_home_whatever_the_server_sends_in_its_place(keys: Path) -> None:
    app = App(counts=True)
    start = ArrayRecord({"w": Array(START["w"]), "steps": Array(np.array(3.0))})
    told = "array 'steps' holds int64: whole numbers and flags are not an update"
    with pytest.raises(ProtocolError, match=told):
        protected(app, keys).start(grid_of(app, keys), start, num_rounds=1)


def test_a_metric_that_is_never_reported_is_named(keys: Path) -> None:
    app = App(terms=replace(TERMS, metrics={"los": 1.0}))
    with pytest.raises(ProtocolError, match=r"metric 'los' of protection\.metrics is missing"):
        protected(app, keys).start(grid_of(app, keys), start_arrays(), num_rounds=1)
