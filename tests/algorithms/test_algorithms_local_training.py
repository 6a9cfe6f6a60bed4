"""Local training: the steps of torch's own optimisers, on draws of (seed, round, client) alone."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import OPTIMIZERS, LocalTrainingConfig
from secure_fedrec.algorithms.local_training import (
    Batch,
    LocalOptimizer,
    TrainingDraws,
    seeded_torch,
    train_locally,
)
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams

DRAWS = TrainingDraws(order=11, dropout=12)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # training itself must come down to one
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """A user vector, a layer with dropout, and a layer that odd batches leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Parameter(torch.tensor([0.5, -0.25]))
        self.first = nn.Linear(5, 4)
        self.rare = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.4)
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.cat([x, self.user.expand(len(x), 2)], dim=1)
        hidden = self.dropout(torch.tanh(self.first(hidden)))
        if len(x) > 1:
            hidden = self.rare(hidden)
        found: Tensor = self.last(hidden)[:, 0]
        return found


def build() -> Net:
    with seeded_torch(5):
        return Net()


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


def examples(size: int = 7) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    return {
        "x": rng.normal(size=(size, 3)).astype(np.float32),
        "y": rng.normal(size=size).astype(np.float32),
    }


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def require_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def train(
    model: Net, *, draws: TrainingDraws = DRAWS, private: tuple[str, ...] = (), **settings: Any
) -> LocalOptimizer:
    optimizer = LocalOptimizer(model, LocalTrainingConfig(**settings), private=private)
    train_locally(model, loss, examples(), optimizer=optimizer, draws=draws)
    return optimizer


def step(optimizer: torch.optim.Optimizer, found: Tensor) -> None:
    optimizer.zero_grad()
    found.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def shuffled(seed: int, batch_size: int, epochs: int = 1) -> Iterator[Tensor]:
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        rows = torch.randperm(7, generator=order)
        for start in range(0, 7, batch_size):
            yield rows[start : start + batch_size]


def by_hand(model: Net, optimizer: torch.optim.Optimizer, epochs: int, batch_size: int) -> None:
    """The loop anybody would write, on the same draws."""
    data = {name: torch.from_numpy(column) for name, column in examples().items()}
    with seeded_torch(DRAWS.dropout):
        torch.set_num_threads(1)
        for rows in shuffled(DRAWS.order, batch_size, epochs):
            step(optimizer, loss(model, {name: column[rows] for name, column in data.items()}))


TWINS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.05),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.05),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("batch_size", [3, 2])
def test_the_steps_are_those_of_a_plain_loop(name: str, batch_size: int) -> None:
    ours, twin = build(), build()
    train(ours, optimizer=name, learning_rate=0.05, epochs=3, batch_size=batch_size)
    by_hand(twin, TWINS[name](twin.parameters()), 3, batch_size)
    require_same(weights(ours), weights(twin))


def test_a_single_batch_takes_the_examples_as_they_lie() -> None:
    ours, twin = build(), build()
    train(ours, learning_rate=0.05, epochs=2)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05)
    data = {name: torch.from_numpy(column) for name, column in examples().items()}
    torch.set_num_threads(1)
    with seeded_torch(DRAWS.dropout):
        for _ in range(2):
            step(optimizer, loss(twin, data))
    require_same(weights(ours), weights(twin))


def test_draws_are_a_function_of_stream_round_and_client() -> None:
    stream = Streams.from_seed(4).stream("local-training")
    assert TrainingDraws.at(stream, 3, 5) == TrainingDraws.at(stream, 3, 5)
    places = [(round_, client) for round_ in range(4) for client in range(4)]
    seen = {TrainingDraws.at(stream, *place) for place in places}
    other = TrainingDraws.at(Streams.from_seed(5).stream("local-training"), 0, 0)
    assert len(seen | {other}) == len(places) + 1


def test_the_result_depends_on_the_draws_and_on_nothing_global() -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model = build()
        train(model, epochs=2, batch_size=2)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
        found.append(weights(model))
    require_same(*found)
    for other in (TrainingDraws(order=11, dropout=99), TrainingDraws(order=99, dropout=12)):
        model = build()
        train(model, epochs=2, batch_size=2, draws=other)
        assert not torch.equal(model.first.weight, found[0]["first.weight"])


def test_training_runs_on_one_thread() -> None:
    seen = []

    def watching(model: nn.Module, batch: Batch) -> Tensor:
        seen.append(torch.get_num_threads())
        return loss(model, batch)

    model = build()
    optimizer = LocalOptimizer(model, LocalTrainingConfig())
    train_locally(model, watching, examples(), optimizer=optimizer, draws=DRAWS)
    assert seen == [1]


def test_an_optimiser_carries_nothing_from_one_client_to_the_next() -> None:
    alone, second = build(), build()
    train(alone, optimizer="adam", learning_rate=0.01, batch_size=3)
    optimizer = train(second, optimizer="adam", learning_rate=0.01, batch_size=3, draws=DRAWS)
    with torch.no_grad():
        for weight, start in zip(second.parameters(), build().parameters(), strict=True):
            weight.copy_(start)
    train_locally(second, loss, examples(), optimizer=optimizer, draws=DRAWS)
    require_same(weights(alone), weights(second))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_kept_state_continues_as_if_the_optimiser_had_stayed(name: str) -> None:
    """``rare`` is not stepped by the batches of one, so weights differ in their steps."""
    config = LocalTrainingConfig(
        optimizer=name, learning_rate=0.05, batch_size=3, epochs=1, keep_state=True
    )
    ours, twin = build(), build()
    staying, state = TWINS[name](twin.parameters()), None
    for round_ in range(3):
        draws = TrainingDraws(order=round_, dropout=round_)
        optimizer = LocalOptimizer(ours, config)  # another device each time
        train_locally(ours, loss, examples(), optimizer=optimizer, draws=draws, state=state)
        state = optimizer.state()
        assert state.dtype == np.float64
        assert state.shape == (optimizer.state_size,)
        data = {column: torch.from_numpy(values) for column, values in examples().items()}
        torch.set_num_threads(1)
        with seeded_torch(round_):
            for rows in shuffled(round_, 3):
                batch = {column: values[rows] for column, values in data.items()}
                step(staying, loss(twin, batch))
        require_same(weights(ours), weights(twin))


def test_a_state_of_zeros_is_a_fresh_one() -> None:
    fresh, zeros = build(), build()
    config = LocalTrainingConfig(optimizer="adam", learning_rate=0.05, keep_state=True)
    for model, state in ((fresh, None), (zeros, "zeros")):
        optimizer = LocalOptimizer(model, config)
        start = None if state is None else np.zeros(optimizer.state_size)
        train_locally(model, loss, examples(), optimizer=optimizer, draws=DRAWS, state=start)
    require_same(weights(fresh), weights(zeros))


def test_the_proximal_term_pulls_federated_parameters_to_their_start_and_no_private_one() -> None:
    start, ours, twin = build(), build(), build()
    train(ours, learning_rate=0.05, epochs=4, proximal=0.7, private=("user",))
    anchors = {name: value for name, value in weights(start).items() if name != "user"}
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05)
    data = {name: torch.from_numpy(column) for name, column in examples().items()}
    with seeded_torch(DRAWS.dropout):
        for _ in range(4):
            pulls = [
                torch.sum((twin.get_parameter(name) - value) ** 2)
                for name, value in anchors.items()
            ]
            step(optimizer, loss(twin, data) + 0.35 * torch.stack(pulls).sum())
    for name, value in weights(ours).items():
        torch.testing.assert_close(value, weights(twin)[name])
    train(free := build(), learning_rate=0.05, epochs=4)
    assert not torch.allclose(weights(free)["first.weight"], weights(ours)["first.weight"])


def test_private_parameters_have_a_step_size_of_their_own_and_no_clip() -> None:
    start, slow, fast = weights(build()), build(), build()
    train(slow, learning_rate=0.1, private=("user",))
    train(fast, learning_rate=0.1, private_learning_rate=0.4, gradient_clip=1e-3, private=("user",))
    moved = [weights(model)["user"] - start["user"] for model in (slow, fast)]
    torch.testing.assert_close(4 * moved[0], moved[1])
    steps = [weights(fast)[name] - start[name] for name in start if name != "user"]
    length = torch.linalg.vector_norm(torch.cat([step.reshape(-1) for step in steps]))
    torch.testing.assert_close(length, torch.tensor(0.1 * 1e-3), rtol=1e-3, atol=0)


def test_step_sizes_can_be_scaled_round_by_round() -> None:
    start, whole, half = weights(build()), build(), build()
    for model, scale in ((whole, 1.0), (half, 0.5)):
        optimizer = LocalOptimizer(model, LocalTrainingConfig(learning_rate=0.1))
        for again in (scale, 0.0, 1e-9):  # scales do not pile up; the last two move next to nothing
            args = {"optimizer": optimizer, "draws": DRAWS, "rate_scale": again}
            train_locally(model, loss, examples(), **args)  # type: ignore[arg-type]
    for name, value in start.items():
        torch.testing.assert_close(
            2 * (weights(half)[name] - value), weights(whole)[name] - value, rtol=1e-4, atol=1e-6
        )


def test_parameters_that_are_frozen_stay() -> None:
    model = build()
    model.first.requires_grad_(False)
    before = weights(model)
    train(model, optimizer="adam", learning_rate=0.1)
    assert torch.equal(model.first.weight, before["first.weight"])
    assert not torch.equal(model.last.weight, before["last.weight"])


@pytest.mark.parametrize(
    "columns",
    [{}, {"x": np.zeros((0, 3))}, {"x": np.zeros((2, 3)), "y": np.zeros(3)}],
)
def test_no_examples_or_unequal_columns_are_refused(columns: dict[str, Any]) -> None:
    model = build()
    optimizer = LocalOptimizer(model, LocalTrainingConfig())
    with pytest.raises(ValueError, match="one common length above 0"):
        train_locally(model, loss, columns, optimizer=optimizer, draws=DRAWS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", "lbfgs"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("private_learning_rate", -1.0),
        ("epochs", 0),
        ("batch_size", 0),
        ("momentum", 1.0),
        ("betas", (0.9, 1.0)),
        ("epsilon", 0.0),
        ("proximal", -0.1),
        ("gradient_clip", 0.0),
        ("keep_state", True),  # plain SGD remembers nothing
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        LocalTrainingConfig(**{key: value})
    assert refused.value.key == f"local.{key}"
