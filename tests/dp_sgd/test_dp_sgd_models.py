"""Models as people have them: clipped sums are those of gradients clipped by hand."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from secure_fedrec.dp_sgd import DpSgdConfig, train_privately
from secure_fedrec.dp_sgd.gradients import ExampleGradients
from secure_fedrec.dp_sgd.layers import require_clippable
from secure_fedrec.errors import ConfigError

pytestmark = pytest.mark.claim("dp-sgd-clips-examples")

ITEMS, EXAMPLES, LENGTH, WIDTH = 12, 7, 5, 4
PADDING = 0
Losses = Callable[[Any, tuple[Tensor, ...]], Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Around(nn.Module):
    """A layer between an embedding of histories and scores of all items."""

    def __init__(
        self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor], **table: Any
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH, **table)
        self.layer = layer
        self.out = nn.Linear(WIDTH, ITEMS)
        self.call = call

    def forward(self, histories: Tensor) -> Tensor:
        return torch.as_tensor(self.out(self.call(self.layer, self.items(histories))))


class Tied(nn.Module):
    """The item table scores as well."""

    def __init__(self, how: str, **table: Any) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH, **table)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.how = how
        if how == "shared":
            self.out = nn.Linear(WIDTH, ITEMS, bias=False)
            self.out.weight = self.items.weight

    def forward(self, histories: Tensor) -> Tensor:
        hidden = self.inner(self.items(histories).mean(dim=1))
        found = self.out(hidden) if self.how == "shared" else hidden @ self.items.weight.T
        return torch.as_tensor(found)


class Pairs(nn.Module):
    """A positive and a negative of each user, by one call of the item table or two."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(5, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.calls = calls

    def forward(self, histories: Tensor) -> Tensor:
        if self.calls == 2:
            difference = self.items(histories[:, 0]) - self.items(histories[:, 1])
        else:
            pair = self.items(histories[:, :2])
            difference = pair[:, 0] - pair[:, 1]
        return torch.as_tensor((self.users(histories[:, 2] % 5) * difference).sum(dim=1))


class OwnWeight(nn.Module):
    """A weight that belongs to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, ITEMS))

    def forward(self, histories: Tensor) -> Tensor:
        return torch.as_tensor(self.items(histories).mean(dim=1) @ self.weight)


class Bags(nn.Module):
    """Bags of items."""

    def __init__(self, mode: str, *, offsets: bool = False, padded: bool = False) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(
            ITEMS, WIDTH, mode=mode, padding_idx=PADDING if padded else None
        )
        self.out = nn.Linear(WIDTH, ITEMS)
        self.offsets = offsets

    def forward(self, histories: Tensor) -> Tensor:
        if self.offsets:
            starts = torch.arange(0, histories.numel(), LENGTH)
            return torch.as_tensor(self.out(self.bags(histories.reshape(-1), starts)))
        return torch.as_tensor(self.out(self.bags(histories)))


class Experts(nn.Module):
    """Two experts and a gate, of which only the better is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, ITEMS) for _ in range(2))

    def forward(self, histories: Tensor) -> Tensor:
        hidden = self.items(histories).mean(dim=1)
        chosen = self.gate(hidden).softmax(dim=1)
        return torch.stack(
            [
                chosen[n, best] * self.experts[best](row)
                for n, (row, best) in enumerate(zip(hidden, chosen.argmax(1).tolist(), strict=True))
            ]
        )


def last_output(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(given)[0][:, -1])


def attended(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(given, given, given)[0].mean(dim=1))


def averaged(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(given).mean(dim=1))


def along(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(given.mT).mean(dim=2))


def twice(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(layer(given.mean(dim=1)).tanh()))


def by_name(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.as_tensor(layer(input=given.mean(dim=1)))


def flattened(layer: nn.Module, given: Tensor) -> Tensor:
    """The layer sees as many rows as there are places, not examples."""
    return torch.as_tensor(layer(given.reshape(-1, WIDTH)).reshape(given.shape).sum(dim=1))


def cell(layer: nn.Module, given: Tensor) -> Tensor:
    hidden: Any = torch.zeros(len(given), WIDTH, dtype=given.dtype)
    for place in range(given.shape[1]):
        hidden = layer(given[:, place], hidden)
    return torch.as_tensor(hidden)


class Case(NamedTuple):
    """A model, how it is scored, and whether Opacus has a formula for all of it."""

    make: Callable[[], nn.Module]
    fast: bool
    losses: str = "next item"


def recurrent(kind: type[nn.Module], **more: Any) -> Callable[[], nn.Module]:
    return lambda: Around(kind(WIDTH, WIDTH, batch_first=True, **more), last_output)


def attention(**more: Any) -> Callable[[], nn.Module]:
    return lambda: Around(nn.MultiheadAttention(WIDTH, 2, batch_first=True, **more), attended)


def transformer(**more: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
    return Around(layer, averaged, **more)


def convolution(mode: Any) -> nn.Module:
    return Around(nn.Conv1d(WIDTH, WIDTH, 3, padding=1, padding_mode=mode), along)


def ncf() -> nn.Module:
    tower = nn.Sequential(
        nn.Flatten(), nn.Linear(LENGTH * WIDTH, 8), nn.ReLU(), nn.Linear(8, WIDTH)
    )
    return Around(tower, lambda layer, given: torch.as_tensor(layer(given)))


TRAINED: Mapping[str, Case] = {
    "averaged histories": Case(lambda: Around(nn.Linear(WIDTH, WIDTH), averaged), fast=True),
    "layer norm": Case(lambda: Around(nn.LayerNorm(WIDTH), averaged), fast=True),
    "group norm": Case(lambda: Around(nn.GroupNorm(2, WIDTH), along), fast=True),
    "convolution": Case(lambda: convolution("zeros"), fast=True),
    "convolution, circular": Case(lambda: convolution("circular"), fast=False),
    "convolution, reflected": Case(lambda: convolution("reflect"), fast=False),
    "convolution, replicated": Case(lambda: convolution("replicate"), fast=False),
    "ncf": Case(ncf, fast=True),
    "padding": Case(
        lambda: Around(nn.Linear(WIDTH, WIDTH), averaged, padding_idx=PADDING), fast=True
    ),
    "last row as padding": Case(
        lambda: Around(nn.Linear(WIDTH, WIDTH), averaged, padding_idx=-1), fast=True
    ),
    "pairs, one call": Case(lambda: Pairs(1), fast=True, losses="pairs"),
    "pairs, two calls": Case(lambda: Pairs(2), fast=False, losses="pairs"),
    "lstm": Case(recurrent(nn.LSTM), fast=False),
    "lstm, two layers": Case(recurrent(nn.LSTM, num_layers=2), fast=False),
    "gru": Case(recurrent(nn.GRU), fast=False),
    "rnn": Case(recurrent(nn.RNN), fast=False),
    "gru cell": Case(lambda: Around(nn.GRUCell(WIDTH, WIDTH), cell), fast=False),
    "gru with padding": Case(
        lambda: Around(nn.GRU(WIDTH, WIDTH, batch_first=True), last_output, padding_idx=PADDING),
        fast=False,
    ),
    "attention": Case(attention(), fast=False),
    "attention without bias": Case(attention(bias=False), fast=False),
    "transformer": Case(transformer, fast=False),
    "transformer with padding": Case(lambda: transformer(padding_idx=PADDING), fast=False),
    "bags, sum": Case(lambda: Bags("sum"), fast=False),
    "bags, mean": Case(lambda: Bags("mean"), fast=False),
    "bags, max": Case(lambda: Bags("max"), fast=False),
    "bags by offsets": Case(lambda: Bags("sum", offsets=True), fast=False),
    "bags with padding": Case(lambda: Bags("mean", padded=True), fast=False),
    "tied by a layer": Case(lambda: Tied("shared"), fast=False),
    "tied by a product": Case(lambda: Tied("product"), fast=False),
    "tied with padding": Case(lambda: Tied("product", padding_idx=PADDING), fast=False),
    "own weight": Case(OwnWeight, fast=False),
    "called twice": Case(lambda: Around(nn.Linear(WIDTH, WIDTH), twice), fast=False),
    "called by name": Case(lambda: Around(nn.Linear(WIDTH, WIDTH), by_name), fast=False),
    "called on places": Case(lambda: Around(nn.Linear(WIDTH, WIDTH), flattened), fast=False),
    "bilinear": Case(
        lambda: Around(
            nn.Bilinear(WIDTH, WIDTH, WIDTH),
            lambda layer, given: torch.as_tensor(layer(given[:, 0], given[:, 1])),
        ),
        fast=False,
    ),
    "prelu": Case(
        lambda: Around(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU()), averaged), fast=False
    ),
    "weight norm": Case(
        lambda: Around(parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)), averaged), fast=False
    ),
    "experts": Case(Experts, fast=False),
    "penalty on weights": Case(
        lambda: Around(nn.Linear(WIDTH, WIDTH), averaged), fast=False, losses="penalised"
    ),
}


def next_item(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return torch.as_tensor(functional.cross_entropy(model(batch[0]), batch[1], reduction="none"))


def penalised(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    whole = getattr(model, "_module", model)
    return next_item(model, batch) + torch.as_tensor(whole.out.weight).square().sum()


def ranked(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return -functional.logsigmoid(model(batch[0]))


LOSSES: Mapping[str, Losses] = {"next item": next_item, "penalised": penalised, "pairs": ranked}


def data(count: int = EXAMPLES, seed: int = 2) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    histories = torch.randint(0, ITEMS, (count, LENGTH), generator=drawn)
    histories[::2, 0] = PADDING
    histories[1::3, -1] = ITEMS - 1
    return histories, torch.randint(0, ITEMS, (count,), generator=drawn)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def by_hand(
    model: nn.Module, losses: Losses, batch: tuple[Tensor, ...], clip: float
) -> dict[str, Tensor]:
    """Every example by itself, clipped and added up."""
    weights = trainable(model)
    total = {name: torch.zeros_like(each) for name, each in weights.items()}
    for place in range(len(batch[0])):
        model.zero_grad()
        losses(model, tuple(column[place : place + 1] for column in batch)).sum().backward()  # type: ignore[no-untyped-call]
        found = {n: torch.zeros_like(w) if w.grad is None else w.grad for n, w in weights.items()}
        norm = torch.cat([each.reshape(-1) for each in found.values()]).norm()
        for name, each in found.items():
            total[name] += each * (clip / float(norm) if norm > clip else 1.0)
    model.zero_grad()
    return total


@pytest.mark.parametrize("count", [1, EXAMPLES])
@pytest.mark.parametrize("clip", [0.05, 1e3])
@pytest.mark.parametrize("name", TRAINED)
def test_clipped_sums_are_those_of_gradients_clipped_by_hand(
    name: str, clip: float, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(1)
    case, batch = TRAINED[name], data(count)
    model, losses = case.make().double().train(), LOSSES[case.losses]
    expected = by_hand(model, losses, batch, clip)
    require_clippable(model)
    with (
        caplog.at_level(logging.INFO, "secure-fedrec"),
        ExampleGradients(model, trainable(model), losses, clip) as gradients,
    ):
        gradients.leave(batch)
    assert ("example by example" in caplog.text) is not case.fast
    assert any(each.abs().max() > 1e-4 for each in expected.values())
    for weight, total in zip(trainable(model).values(), expected.values(), strict=True):
        found = torch.zeros_like(weight) if weight.grad is None else weight.grad
        assert float((found - total).norm()) <= 1e-6 * max(1.0, float(total.norm()))


@pytest.mark.claim("dp-padding-rows")
def test_a_padding_row_has_no_gradient_no_noise_and_no_step() -> None:
    for padding in (PADDING, -1):
        model = Around(nn.Linear(WIDTH, WIDTH), averaged, padding_idx=padding)
        with torch.no_grad():
            model.items.weight[padding] = 3.0
        others = model.items.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.1, momentum=0.9)
        config = DpSgdConfig(steps=3, rate=1.0, clip=1.0, noise_multiplier=1.0, expected_batch=7.0)
        train_privately(model, data(), next_item, optimizer, config)
        moved = (model.items.weight.detach() != others).any(dim=1)
        assert not moved[padding]
        assert int(moved.sum()) == ITEMS - 1


def halved(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return next_item(model, batch) / len(batch[0])


def rooted(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return next_item(model, batch) / torch.tensor(float(len(batch[0]))).sqrt()


def halved_and_random(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return halved(model, batch) * (0.5 + torch.rand(len(batch[0])))


def random_only(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return next_item(model, batch) * (0.5 + torch.rand(len(batch[0])))


def with_dropout() -> nn.Module:
    return Around(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)), averaged)


@pytest.mark.parametrize("count", [1, 2, EXAMPLES])
@pytest.mark.parametrize("make", [TRAINED["ncf"].make, recurrent(nn.GRU), with_dropout])
@pytest.mark.parametrize("losses", [halved, rooted, halved_and_random])
def test_losses_that_depend_on_the_size_of_a_batch_are_refused(
    losses: Losses, make: Callable[[], nn.Module], count: int
) -> None:
    model = make()
    with (
        ExampleGradients(model, trainable(model), losses, 1.0) as gradients,
        pytest.raises(ConfigError, match=r"dp_sgd\.losses = .*number of examples in the batch"),
    ):
        gradients.leave(data(count))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("count", [1, 2, EXAMPLES])
@pytest.mark.parametrize("make", [TRAINED["ncf"].make, recurrent(nn.GRU), with_dropout])
@pytest.mark.parametrize("losses", [next_item, random_only])
def test_random_losses_that_do_not_are_trained(
    losses: Losses, make: Callable[[], nn.Module], count: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = make()
    model.train()
    with ExampleGradients(model, trainable(model), losses, 1.0) as gradients:
        gradients.leave(data(count))
    assert model.training


def batch_negatives(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    rows = model(batch[0])
    found = functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)), reduction="none")
    return torch.as_tensor(found)


@pytest.mark.parametrize("make", [recurrent(nn.GRU), attention(), lambda: Tied("product")])
def test_examples_that_mix_are_refused_one_by_one_as_well(make: Callable[[], nn.Module]) -> None:
    model = make()
    with (
        ExampleGradients(model, trainable(model), batch_negatives, 1.0) as gradients,
        pytest.raises(ConfigError, match="depend"),
    ):
        gradients.leave(data())


def test_nothing_of_opacus_is_left_on_a_model_that_is_trained_one_by_one() -> None:
    model = Pairs(2)
    with ExampleGradients(model, trainable(model), ranked, 1.0) as gradients:
        gradients.leave(data())
    for layer in model.modules():
        assert not {"activations", "max_batch_len"} & set(vars(layer))
        assert not layer._forward_hooks
    assert not any(vars(weight) for weight in model.parameters())
