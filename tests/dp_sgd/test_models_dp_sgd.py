"""Private local training: what is clipped, what is added, and what is claimed."""

import copy
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.accounting import claim
from secure_fedrec.dp_sgd import DpSgdConfig, LatticeNoise, lattice, train_privately, training_loop
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.dp import GaussianNoise

EXAMPLES, ITEMS = 60, 25


class Factors(nn.Module):
    """Bags of items, embedded, averaged by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, 6)
        self.inner = nn.Linear(6, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, bags: Tensor) -> Tensor:
        vectors: Tensor = self.items(bags).sum(dim=1)
        found: Tensor = self.out(torch.tanh(self.inner(vectors)))
        return found.squeeze(-1)


def losses(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    bags, ratings = batch
    return (torch.as_tensor(model(bags)) - ratings) ** 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on busy machines: threads only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> Factors:
    torch.manual_seed(4)
    return Factors().double()


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    # Items repeat inside a bag: an embedding's norm is that of the summed rows.
    bags = torch.randint(0, ITEMS, (EXAMPLES, 4), generator=generator)
    return bags, 3 * torch.randn(EXAMPLES, generator=generator, dtype=torch.float64)


def config_with(**changes: object) -> DpSgdConfig:
    fields: dict[str, object] = {
        "steps": 1,
        "rate": 1.0,
        "clip": 0.5,
        "noise_multiplier": 1.0,
        "expected_batch": 20.0,
        **changes,
    }
    return DpSgdConfig(**fields)  # type: ignore[arg-type]


def sgd(model: nn.Module, rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


def flat(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()])


def clipped_sum(model: nn.Module, data: tuple[Tensor, ...], clip: float) -> np.ndarray:
    """Example by example, by plain autograd."""
    total = np.zeros(len(flat(model)))
    for place in range(len(data[0])):
        loss = losses(model, tuple(column[place : place + 1] for column in data)).sum()
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradient = np.concatenate([part.numpy().reshape(-1) for part in parts])
        total += gradient * min(1.0, clip / float(np.linalg.norm(gradient)))
    return total


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "draw_noise", lambda table, count: np.zeros(count, np.int64))


@pytest.mark.parametrize("clip", [0.05, 0.5, 200.0])
def test_step_is_the_sum_of_clipped_example_gradients(
    clip: float,
    model: Factors,
    data: tuple[Tensor, Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_noise(monkeypatch)
    before = flat(model)
    expected = clipped_sum(model, data, clip)
    train_privately(model, data, losses, sgd(model), config_with(clip=clip))
    moved = (before - flat(model)) * 20.0
    noise = LatticeNoise(size=len(before), sensitivity=clip, multiplier=1.0)
    # Half a step by rounding; what is clipped is clipped a little below its bound.
    tolerance = noise.step + (60 * clip * 2.0**-10 if clip < 1 else 1e-4)
    assert np.abs(moved - expected).max() <= tolerance
    assert np.abs(expected).max() > 20 * tolerance  # the comparison could have failed


def test_one_example_moves_the_noiseless_sum_by_at_most_the_clip(
    model: Factors, data: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_noise(monkeypatch)
    clip, size = 0.1, len(flat(model))
    step = LatticeNoise(size=size, sensitivity=clip, multiplier=1.0).step
    sums = []
    for count in (EXAMPLES, EXAMPLES - 1):
        twin = copy.deepcopy(model)
        before = flat(twin)
        part = tuple(column[:count] for column in data)
        train_privately(twin, part, losses, sgd(twin), config_with(clip=clip, expected_batch=1.0))
        sums.append(before - flat(twin))
    change = float(np.linalg.norm(sums[0] - sums[1]))
    assert 0.5 * clip < change <= clip + math.sqrt(size) * step


def test_noise_has_the_stated_size_and_covers_the_rounding() -> None:
    noise = LatticeNoise(size=900, sensitivity=2.0, multiplier=1.5)
    drawn = noise.add(np.zeros(900))
    for _ in range(40):
        drawn = np.append(drawn, noise.add(np.zeros(900)))
    sigma = noise.table.parameter * noise.step
    assert drawn.std() == pytest.approx(sigma, rel=0.03)
    covered = noise.table.parameter / (2.0 / noise.step + math.sqrt(900))
    assert 1.5 <= covered < 1.5 * (1 + 1e-9)
    assert 1.5 * 2.0 <= sigma < 1.5 * 2.0 * 1.07


def test_result_lies_on_the_lattice_whatever_was_under_the_noise() -> None:
    noise = LatticeNoise(size=50, sensitivity=1.0, multiplier=1.0)
    values = np.random.default_rng(1).normal(size=50) * 1e-3
    steps = noise.add(values) / noise.step
    assert np.array_equal(np.rint(steps) * noise.step, noise.add(values) * 0 + steps * noise.step)
    np.testing.assert_allclose(steps, np.rint(steps), rtol=0, atol=1e-9)


def test_every_parameter_gets_noise_also_where_no_example_reached(
    model: Factors, data: tuple[Tensor, Tensor]
) -> None:
    bags = torch.zeros_like(data[0])  # item 0 only: all other rows have no gradient
    before = model.items.weight.detach().clone()
    train_privately(model, (bags, data[1]), losses, sgd(model), config_with())
    # Noise of 0 steps is possible: one value in 600 at this size.
    assert float((model.items.weight.detach()[1:] != before[1:]).double().mean()) > 0.9


def test_an_empty_batch_is_noise_and_nothing_else(
    model: Factors, data: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_noise(monkeypatch)
    before = flat(model)
    train_privately(model, data, losses, sgd(model), config_with(rate=1e-12, steps=3))
    assert np.array_equal(flat(model), before)


def test_batches_are_poisson_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [len(training_loop._poisson_batch(200, 0.3)) for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(60, abs=5 * math.sqrt(42 / 2000))
    assert np.var(sizes) == pytest.approx(42, rel=0.2)
    words = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(training_loop, "secret_words", lambda count: words)
    assert training_loop._poisson_batch(4, 0.5).tolist() == [0, 1]
    assert training_loop._poisson_batch(4, 1.0).tolist() == [0, 1, 2, 3]


def test_torch_seed_decides_neither_batch_nor_noise(
    model: Factors, data: tuple[Tensor, Tensor]
) -> None:
    found = []
    for _ in range(2):
        twin = copy.deepcopy(model)
        torch.manual_seed(0)
        train_privately(twin, data, losses, sgd(twin), config_with(rate=0.5))
        found.append(flat(twin))
    assert not np.array_equal(found[0], found[1])


def test_training_learns_under_a_loose_budget(model: Factors) -> None:
    generator = torch.Generator().manual_seed(6)
    bags = torch.randint(0, ITEMS, (800, 4), generator=generator)
    ratings = (bags % 2).double().sum(dim=1) - 2
    start = float(losses(model, (bags, ratings)).detach().mean())
    config = config_with(steps=100, rate=0.25, clip=1.0, noise_multiplier=0.6, expected_batch=200.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    events = train_privately(model, (bags, ratings), losses, optimizer, config)
    assert float(losses(model, (bags, ratings)).detach().mean()) < 0.6 * start
    assert claim(events, adversary="server", delta=1e-4, accountant="prv").epsilon > 1


def test_event_covers_one_example_against_everybody(
    model: Factors, data: tuple[Tensor, Tensor]
) -> None:
    (event,) = train_privately(model, data, losses, sgd(model), config_with(steps=2, rate=0.1))
    assert event.mechanism == GaussianNoise(multiplier=1.0, form="rounded")
    assert event.rounds == 2
    assert (event.sampling.against("server"), event.sampling.against("release")) == (0.1, 0.1)
    assert 0 < event.distance < 2.0**-90
    text = str(claim([event], adversary="server", delta=1e-5, accountant="prv"))
    assert "one training example of one client" in text
    assert "q = 0.1" in text


def test_model_comes_back_as_it_was_but_for_its_weights(
    model: Factors, data: tuple[Tensor, Tensor]
) -> None:
    model.eval()
    train_privately(model, data, losses, sgd(model), config_with())
    assert not model.training
    for layer in model.modules():
        assert not layer._forward_hooks
        assert not layer._backward_hooks
    for weight in model.parameters():
        assert weight.grad is None
        assert not weight.__dict__


def test_divergence_is_refused_before_a_step(model: Factors, data: tuple[Tensor, Tensor]) -> None:
    before = flat(model)
    bad = data[1].clone()
    bad[3] = math.nan
    with pytest.raises(EncodingError, match="diverged"):
        train_privately(model, (data[0], bad), losses, sgd(model), config_with())
    assert np.array_equal(flat(model), before)
    assert not model.items._forward_hooks


def mean_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return losses(model, batch).mean()


def test_losses_must_be_one_per_example(model: Factors, data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ConfigError, match="one per example"):
        train_privately(model, data, mean_loss, sgd(model), config_with())


def broken_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def sparse_table() -> nn.Module:
    return nn.Sequential(nn.Embedding(4, 4, sparse=True))


@pytest.mark.parametrize("make", [broken_norm, sparse_table])
def test_models_that_cannot_be_clipped_are_refused(
    make: Callable[[], nn.Module], data: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(ConfigError, match="model"):
        broken = make()
        train_privately(broken, data, losses, sgd(broken), config_with())


def test_wrong_data_and_optimisers_are_refused(model: Factors, data: tuple[Tensor, Tensor]) -> None:
    for columns in ((data[0], data[1][:-1]), (data[0][:0], data[1][:0]), ()):
        with pytest.raises(ConfigError, match="data"):
            train_privately(model, columns, losses, sgd(model), config_with())
    with pytest.raises(ConfigError, match="optimizer"):
        train_privately(model, data, losses, sgd(model.items), config_with())
    with pytest.raises(ConfigError, match="fewer parameters"):
        LatticeNoise(size=10**8, sensitivity=1.0, multiplier=1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("rate", 0.0),
        ("rate", 1.5),
        ("clip", 0.0),
        ("noise_multiplier", math.inf),
        ("expected_batch", math.nan),
    ],
)
def test_wrong_settings_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"dp_sgd\.{field}"):
        config_with(**{field: value})
