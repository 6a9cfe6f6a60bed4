"""What changes gradients where clipping does not see it is refused, by name."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import spectral_norm, weight_norm

from secure_fedrec.dp_sgd import DpSgdConfig, lattice, train_privately
from secure_fedrec.dp_sgd.clipping import _backward
from secure_fedrec.dp_sgd.norms import GhostNorms
from secure_fedrec.errors import ConfigError

pytestmark = pytest.mark.claim("dp-sgd-clips-examples")

EXAMPLES, WIDTH, CLIP = 6, 4, 1.0
Losses = Callable[[Any, tuple[Tensor, ...]], Tensor]


@pytest.fixture(autouse=True)
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lattice, "draw_noise", lambda table, count: np.zeros(count, np.int64))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(before)


def squares(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return torch.as_tensor(model(batch[0]) ** 2).flatten(1).sum(dim=1)


def rows(count: int = EXAMPLES) -> Tensor:
    return 30 * torch.randn(count, WIDTH)


def train(model: nn.Module, data: Tensor, losses: Losses = squares, steps: int = 1) -> float:
    """How far one step without noise moves the weights."""
    before = [weight.detach().clone() for weight in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = DpSgdConfig(steps=steps, rate=1.0, clip=CLIP, noise_multiplier=1.0, expected_batch=1.0)
    train_privately(model, (data,), losses, optimizer, config)
    moved = [
        (weight.detach() - old).double().square().sum()
        for weight, old in zip(model.parameters(), before, strict=True)
    ]
    return float(torch.stack(moved).sum().sqrt())


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_parameters_of_half_precision_are_refused(kind: torch.dtype) -> None:
    with pytest.raises(ConfigError, match=rf"'0\.weight \({kind}\)': .*train in float32"):
        train(two_layers().to(kind), rows().to(kind))


def under_autocast(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return squares(model, batch).float()


def through_half(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    return torch.as_tensor(model(batch[0]).half().float() ** 2).sum(dim=1)


@pytest.mark.parametrize("losses", [under_autocast, through_half])
def test_losses_computed_in_half_precision_are_refused(losses: Losses) -> None:
    with pytest.raises(ConfigError, match=r"dp_sgd\.losses = '\w+ \(torch\.b?float16\)'.*autocast"):
        train(two_layers(), rows(), losses)


def test_short_products_of_float32_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(ConfigError, match=r"set_float32_matmul_precision = 'medium'"):
            train(two_layers(), rows())
    finally:
        torch.set_float32_matmul_precision(before)


def ten_fold(weight: Tensor) -> None:
    assert weight.grad is not None
    weight.grad.mul_(10)


def signed(_: nn.Module, found: Any, *__: Any) -> Any:
    return (found[0].sign(),)


def hooked_gradient(model: Any) -> Any:
    return model[0].weight.register_hook(lambda gradient: 10 * gradient)


def hooked_accumulation(model: Any) -> Any:
    return model[0].weight.register_post_accumulate_grad_hook(ten_fold)


def hooked_backward(model: Any) -> Any:
    return model[1].register_full_backward_hook(signed)


def hooked_backward_before(model: Any) -> Any:
    return model[1].register_full_backward_pre_hook(signed)


def hooked_output(model: nn.Sequential) -> Any:
    return model[2].register_forward_hook(lambda _, __, found: 10 * found)


def hooked_input(model: nn.Sequential) -> Any:
    return model[2].register_forward_pre_hook(lambda _, given: (10 * given[0],))


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (hooked_gradient, r"'0\.weight': has a gradient hook.*remove it"),
        (hooked_accumulation, r"'0\.weight': has a post-accumulate hook.*remove it"),
        (hooked_backward, r"'1 \(ReLU\)': has a backward hook.*model's forward"),
        (hooked_backward_before, r"'1 \(ReLU\)': has a backward pre-hook.*model's forward"),
        (hooked_output, r"'2 \(Linear\)': has a forward hook.*model's forward"),
        (hooked_input, r"'2 \(Linear\)': has a forward pre-hook.*model's forward"),
    ],
)
def test_hooks_are_refused_and_the_model_trains_without_them(
    hook: Callable[[nn.Sequential], Any], name: str
) -> None:
    model = two_layers()
    handle = hook(model)
    with pytest.raises(ConfigError, match=name):
        train(model, rows(1))
    handle.remove()
    assert 0.9 * CLIP < train(model, rows(1)) <= 1.01 * CLIP  # rounded to the noise's grid


def test_a_gradient_hook_that_the_losses_bring_is_refused_in_whichever_step() -> None:
    calls = 0

    def late(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 13:
            hooked_gradient(model._module)
        return squares(model, batch)

    model = two_layers()
    with pytest.raises(ConfigError, match=r"'0\.weight': has a gradient hook"):
        train(model, rows(), late, steps=9)
    assert calls == 14


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (weight_norm, r"'0 \(Linear\)': has a forward pre-hook \(WeightNorm\).*remove_weight_norm"),
        (spectral_norm, r"'0\.weight_u': is a buffer"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_reparametrised_weights_are_refused(change: Callable[..., Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        train(nn.Sequential(change(nn.Linear(WIDTH, WIDTH))), rows())


class Sign(torch.autograd.Function):
    """A backward pass of its own, which undoes any clipping factor."""

    @staticmethod
    def forward(_: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(_: Any, found: Tensor) -> Tensor:
        return found.sign()


def signed_by_function(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    first, _, last = model._module
    hidden = Sign.apply(first(batch[0]))  # type: ignore[no-untyped-call]
    return torch.as_tensor(last(hidden) ** 2).sum(dim=1)


def signed_by_hook(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    first, _, last = model._module
    hidden = first(batch[0])
    hidden.register_hook(lambda found: found.sign())
    return torch.as_tensor(last(hidden) ** 2).sum(dim=1)


def signed_by_node(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    first, _, last = model._module
    hidden = first(batch[0])
    hidden.grad_fn.register_prehook(lambda found: (found[0].sign(),))
    return torch.as_tensor(last(hidden) ** 2).sum(dim=1)


@pytest.mark.parametrize("losses", [signed_by_function, signed_by_hook, signed_by_node])
@pytest.mark.parametrize("count", [1, EXAMPLES])
@pytest.mark.parametrize("honest", [0, 13])
def test_backward_passes_that_undo_clipping_are_clipped_example_by_example(
    losses: Losses, count: int, honest: int
) -> None:
    """What such a pass does may wait for one large gradient: in a later step as well.

    A hook on one of autograd's own nodes is looked for in the first batch alone.
    """
    if honest and losses is signed_by_node:
        return
    calls = 0

    def late(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
        nonlocal calls
        calls += 1
        given = model if hasattr(model, "_module") else WithModule(model)
        return (squares if calls <= honest else losses)(given, batch)

    model = two_layers()
    moved = train(model, rows(count), late, steps=9 if honest else 1)
    assert calls > honest + count
    assert 0 < moved <= 1.01 * CLIP * count * (9 if honest else 1)


class WithModule:
    """A model as the losses above look into it."""

    def __init__(self, model: nn.Module) -> None:
        self._module = model

    def __call__(self, given: Tensor) -> Tensor:
        return torch.as_tensor(self._module(given))


def difference(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    """Of a positive's and a negative's score, stacked: their gradients cancel in part."""
    scores = model(batch[0]).squeeze(-1)
    return torch.as_tensor(scores[:, 1] - scores[:, 0])


@pytest.mark.claim("dp-cancelling-gradients")
@pytest.mark.parametrize("common", [0.0, 1e3, 1e5, 1e6])
def test_clipping_holds_where_the_gradients_of_a_sequence_cancel(common: float) -> None:
    """One example's features have a large part in common; the others give nothing."""
    data = torch.zeros(200, 2, WIDTH)
    data[0] = common
    data[0, 1] += 100
    moved = train(nn.Sequential(nn.Linear(WIDTH, 1)), data, difference)
    assert 0.9 * CLIP < moved <= 1.01 * CLIP


@pytest.mark.parametrize("shape", [(WIDTH,), (1, WIDTH), (5, WIDTH)])
@pytest.mark.parametrize("bias", [False, True])
def test_norms_are_those_of_single_gradients(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(WIDTH, 3, bias=bias)
    data = torch.randn(EXAMPLES, *shape, requires_grad=True)
    ghost = GhostNorms(layer, loss_reduction="sum", max_grad_norm=CLIP)
    _backward(squares(ghost, (data,)).sum())
    found = ghost.get_norm_sample()
    ghost.to_standard_module()
    for row, norm in zip(data, found, strict=True):
        parts = torch.autograd.grad(squares(layer, (row[None],)).sum(), list(layer.parameters()))
        exact = torch.cat([part.reshape(-1) for part in parts]).norm()
        assert float(norm) == pytest.approx(float(exact), rel=1e-5)


def standardised(hidden: Tensor) -> Tensor:
    deviation = hidden.std(dim=0, unbiased=False).detach() + 1
    return (hidden - hidden.mean(dim=0).detach()) / deviation


def scaled_by_the_batch(hidden: Tensor) -> Tensor:
    return torch.as_tensor(hidden / hidden.detach().norm())


def centred_by_the_largest(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().amax(dim=0)


class Statistics(nn.Module):
    """Layers between which a batch sees itself, unseen by autograd."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH)
        self.between = between

    def forward(self, given: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.between(self.first(given))))


def weighted_by_the_batch(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    found = squares(model, batch)
    return found / found.detach().sum()


@pytest.mark.parametrize("count", [2, EXAMPLES])
@pytest.mark.parametrize(
    ("between", "losses"),
    [
        (standardised, squares),
        (scaled_by_the_batch, squares),
        (centred_by_the_largest, squares),
        (functional.relu, weighted_by_the_batch),
    ],
)
def test_detached_statistics_of_a_batch_are_refused(
    between: Callable[[Tensor], Tensor], losses: Losses, count: int
) -> None:
    with pytest.raises(ConfigError, match=r"'Statistics': .*use layer or group normalisation"):
        train(Statistics(between), rows(count), losses)


@pytest.mark.parametrize(
    "between",
    [nn.LayerNorm(WIDTH), nn.GroupNorm(2, WIDTH), nn.Dropout(0.5), functional.relu],
    ids=["layer norm", "group norm", "dropout", "relu"],
)
@pytest.mark.parametrize("count", [1, 2, EXAMPLES])
def test_what_treats_examples_one_by_one_is_trained(
    between: Callable[[Tensor], Tensor], count: int
) -> None:
    assert 0 < train(Statistics(between), rows(count)) <= 1.01 * CLIP * count  # rounded sums


def test_checks_leave_torchs_random_numbers_where_they_were() -> None:
    drawn: list[Tensor] = []

    def losses(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
        drawn.append(torch.rand(1))
        return squares(model, batch)

    model = two_layers()
    expected = torch.random.get_rng_state()
    train(model, rows(), losses)
    torch.random.set_rng_state(expected)
    rows()  # the data were drawn first
    assert drawn[-1] == torch.rand(1)
    assert len(drawn) > 2


def test_random_numbers_from_elsewhere_are_refused_as_what_they_are() -> None:
    other = np.random.default_rng(1)

    def noisy(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
        return squares(model, batch) * torch.from_numpy(other.random(len(batch[0]))).float()

    with pytest.raises(ConfigError, match="random numbers that are not of torch's default"):
        train(two_layers(), rows(), noisy)
