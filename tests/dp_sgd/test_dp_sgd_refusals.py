"""Models and losses whose gradients would not be clipped are refused, by the name of the layer."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from secure_fedrec.dp_sgd import DpSgdConfig, train_privately
from secure_fedrec.errors import ConfigError

pytestmark = pytest.mark.claim("dp-sgd-clips-examples")

ITEMS, EXAMPLES, LENGTH = 12, 6, 3


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    yield
    torch.set_num_threads(before)


def train(
    model: nn.Module, data: tuple[Tensor, ...], losses: Callable[..., Tensor], **changes: object
) -> None:
    fields: dict[str, object] = {
        "steps": 2,
        "rate": 1.0,
        "clip": 0.5,
        "noise_multiplier": 1.0,
        "expected_batch": 1.0,
        **changes,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train_privately(model, data, losses, optimizer, DpSgdConfig(**fields))  # type: ignore[arg-type]


def flat(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()])


def histories(count: int = EXAMPLES) -> Tensor:
    return torch.randint(0, ITEMS, (count, LENGTH))


class Sequence(nn.Module):
    """Histories, embedded and averaged; ``score`` makes scores of all items of the hidden state."""

    def __init__(self, score: str) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, 4)
        self.inner = nn.Linear(4, 4)
        self.score = score
        if score in {"shared", "own"}:
            self.out = nn.Linear(4, ITEMS, bias=False)
        if score == "shared":
            self.out.weight = self.items.weight

    def forward(self, bags: Tensor) -> Tensor:
        hidden: Tensor = self.inner(self.items(bags).mean(dim=1))
        if self.score == "weight":
            return hidden @ self.items.weight.T
        if self.score in {"shared", "own"}:
            return torch.as_tensor(self.out(hidden))
        return hidden


def softmax_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    bags, targets = batch
    return functional.cross_entropy(model(bags), targets, reduction="none")


def square_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return torch.as_tensor(model(batch[0]) ** 2).flatten(1).sum(dim=1)


def test_the_same_model_with_an_output_layer_of_its_own_is_trained() -> None:
    model = Sequence("own")
    before = flat(model)
    train(model, (histories(), torch.arange(EXAMPLES)), softmax_loss)
    assert not np.array_equal(flat(model), before)


def test_parameters_that_the_losses_do_not_use_are_refused_unless_frozen() -> None:
    model = Sequence("own")
    model.score = "hidden"
    with pytest.raises(ConfigError, match=r"'out\.weight': is not used by the losses; freeze it"):
        train(model, (histories(),), square_loss)
    model.out.weight.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    config = DpSgdConfig(steps=1, rate=1.0, clip=0.5, noise_multiplier=1.0, expected_batch=1.0)
    before = model.items.weight.detach().clone()
    train_privately(model, (histories(),), square_loss, optimizer, config)
    assert not torch.equal(model.items.weight, before)


class WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, rows: Tensor) -> Tensor:
        self.seen += rows.sum(dim=0)
        return torch.as_tensor(self.layer(rows))


def between_linears(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: between_linears(nn.BatchNorm1d(4, affine=False)), "running_mean"),
        (
            lambda: between_linears(nn.BatchNorm1d(4, affine=False, track_running_stats=False)),
            r"1 \(BatchNorm1d\)",
        ),
        (lambda: between_linears(nn.InstanceNorm1d(4)), r"1 \(InstanceNorm1d\)"),
        (WithBuffer, "seen"),
        (lambda: nn.Sequential(nn.Embedding(ITEMS, 4, max_norm=1.0)), r"0 \(Embedding\)"),
        (lambda: nn.Sequential(nn.Embedding(ITEMS, 4, sparse=True)), r"0 \(Embedding\)"),
        (
            lambda: nn.Sequential(nn.Embedding(ITEMS, 4, scale_grad_by_freq=True)),
            r"0 \(Embedding\)",
        ),
    ],
)
def test_layers_without_known_norms_are_refused_before_they_are_called(
    make: Callable[[], nn.Module], name: str
) -> None:
    def never(*_: object) -> Tensor:
        raise AssertionError

    with pytest.raises(ConfigError, match=rf"dp_sgd\.model = '[^']*{name}'"):
        train(make(), (torch.randn(EXAMPLES, 4),), never)


def positions_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Positions of a sequence, without a dimension for the examples: as many as examples."""
    rows = batch[0] + model(torch.arange(LENGTH))
    return torch.as_tensor(rows).square().sum(dim=(1, 2))


def test_a_first_dimension_that_is_only_as_long_as_the_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="depend on others' rows"):
        train(nn.Embedding(LENGTH, 4), (torch.randn(LENGTH, LENGTH, 4),), positions_loss)


def batch_negatives_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    rows = model(batch[0])
    return functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)), reduction="none")


@pytest.mark.parametrize("count", [2, EXAMPLES])
def test_negatives_from_the_batch_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="depend on others' rows"):
        train(nn.Linear(4, 4), (torch.randn(count, 4),), batch_negatives_loss)


def test_errors_of_the_losses_themselves_are_not_renamed() -> None:
    def unfinished(*_: object) -> Tensor:
        raise NotImplementedError("mine")

    with pytest.raises(NotImplementedError, match="mine"):
        train(nn.Linear(4, 4), (torch.randn(3, 4),), unfinished)
