"""Models and losses whose gradients would not be clipped are refused, by the name of the layer."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from secure_fedrec.dp_sgd import DpSgdConfig, lattice, train_privately
from secure_fedrec.errors import ConfigError

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


@pytest.mark.parametrize(
    ("score", "problem"), [("weight", "is used 2 times"), ("shared", "second call")]
)
def test_item_table_as_output_layer_is_refused(score: str, problem: str) -> None:
    model = Sequence(score)
    before = flat(model)
    with pytest.raises(ConfigError, match=rf"dp_sgd\.model = 'items\.weight': .*{problem}"):
        train(model, (histories(), torch.arange(EXAMPLES)), softmax_loss)
    assert np.array_equal(flat(model), before)


def test_the_same_model_with_an_output_layer_of_its_own_is_trained() -> None:
    model = Sequence("own")
    before = flat(model)
    train(model, (histories(), torch.arange(EXAMPLES)), softmax_loss)
    assert not np.array_equal(flat(model), before)


def test_penalties_on_weights_inside_the_losses_are_refused() -> None:
    model = Sequence("hidden")

    def penalised(given: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return square_loss(given, batch) + model.inner.weight.square().sum()

    with pytest.raises(ConfigError, match=r"'inner\.weight': is used 2 times"):
        train(model, (histories(),), penalised)


@pytest.mark.parametrize("honest", [0, 2])
def test_weights_used_beside_their_layer_are_refused_in_whichever_step(honest: int) -> None:
    model = Sequence("hidden")
    passes = 0

    def beside(given: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        # After two honest passes, the first step's, its norms must not serve for the second step.
        nonlocal passes
        passes += 1
        if passes <= honest:
            return square_loss(given, batch)
        # One edge into each weight and one call of each layer, whose result is thrown away.
        given(batch[0])
        table = functional.embedding(batch[0], model.items.weight)
        hidden = functional.linear(table.mean(dim=1), model.inner.weight, model.inner.bias)
        return hidden.square().sum(dim=1)

    with pytest.raises(ConfigError, match="must be used by a call of its layer"):
        train(model, (histories(),), beside)
    assert passes == honest + 1


def test_parameters_that_the_losses_do_not_use_are_refused_unless_frozen() -> None:
    model = Sequence("own")
    model.score = "hidden"
    with pytest.raises(ConfigError, match=r"'out\.weight': is used 0 times"):
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


class OwnWeight(nn.Module):
    """Opacus would take the norm of another gradient: it repeats the call without ``scale``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, rows: Tensor, scale: float = 1.0) -> Tensor:
        return rows @ self.weight * scale


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
        (OwnWeight, r"\(OwnWeight\)"),
        (lambda: nn.Sequential(nn.EmbeddingBag(ITEMS, 4)), r"0 \(EmbeddingBag\)"),
        (lambda: nn.Sequential(nn.Embedding(ITEMS, 4, max_norm=1.0)), r"0 \(Embedding\)"),
        (lambda: nn.Sequential(nn.Embedding(ITEMS, 4, sparse=True)), r"0 \(Embedding\)"),
        (
            lambda: nn.Sequential(nn.Embedding(ITEMS, 4, scale_grad_by_freq=True)),
            r"0 \(Embedding\)",
        ),
        *(
            (partial(nn.Conv1d, 1, 1, 5, padding=2, padding_mode=mode), r"\(Conv1d\)")
            for mode in ("circular", "reflect", "replicate")
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


class Pairwise(nn.Module):
    """User times (positive - negative), with one call of the item table or two."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.users = nn.Embedding(5, 4)
        self.items = nn.Embedding(ITEMS, 4)
        self.calls = calls

    def forward(self, users: Tensor, liked: Tensor, others: Tensor) -> Tensor:
        if self.calls == 2:
            difference = self.items(liked) - self.items(others)
        else:
            pair = self.items(torch.stack([liked, others], dim=1))
            difference = pair[:, 0] - pair[:, 1]
        return torch.as_tensor((self.users(users) * difference).sum(dim=1))


def ranking_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return -functional.logsigmoid(model(*batch))


def test_an_item_table_is_called_once_on_stacked_positives_and_negatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lattice, "draw_noise", lambda table, count: np.zeros(count, np.int64))
    data = (torch.tensor([1]), torch.tensor([3]), torch.tensor([5]))
    with pytest.raises(ConfigError, match=r"'items\.weight': .*second call"):
        train(Pairwise(2), data, ranking_loss)
    model = Pairwise(1)
    before = flat(model)
    train(model, data, ranking_loss, steps=1, clip=0.1)
    assert np.linalg.norm(flat(model) - before) == pytest.approx(0.1, rel=0.01)


def flattened_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Calls the layer on n times LENGTH rows; with n = 1 their clipped losses would be added."""
    rows = model(batch[0].reshape(-1, 4))
    return torch.as_tensor(rows).square().reshape(len(batch[0]), -1).sum(dim=1)


@pytest.mark.parametrize("count", [1, EXAMPLES])
def test_layers_called_on_other_rows_than_examples_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="on one row per example"):
        train(nn.Linear(4, 4), (torch.randn(count, LENGTH, 4),), flattened_loss)


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


def test_a_refused_model_can_be_trained_afterwards_as_if_nothing_had_been() -> None:
    model = Pairwise(2)
    three = tuple(torch.arange(3) for _ in range(3))
    with pytest.raises(ConfigError, match="second call"):
        train(model, three, ranking_loss)
    for layer in model.modules():
        assert not {"activations", "max_batch_len"} & set(vars(layer))
        assert not layer._forward_hooks
    assert not any(vars(weight) for weight in model.parameters())
    model.calls = 1
    before = flat(model)
    train(model, tuple(column[:2] for column in three), ranking_loss)
    assert not np.array_equal(flat(model), before)


def test_inputs_given_by_name_are_refused() -> None:
    # Hooks see arguments by position only.
    model = nn.Sequential(nn.Linear(4, 4))

    def by_name(_: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return torch.as_tensor(model[0](input=batch[0])).sum(dim=1)

    with pytest.raises(ConfigError, match="by position"):
        train(model, (torch.randn(3, 4),), by_name)


def test_errors_of_the_losses_themselves_are_not_renamed() -> None:
    def unfinished(*_: object) -> Tensor:
        raise NotImplementedError("mine")

    with pytest.raises(NotImplementedError, match="mine"):
        train(nn.Linear(4, 4), (torch.randn(3, 4),), unfinished)
