"""The compiled LSTM computes what torch's does, and a text's bits do not depend on its batch."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.models.lstm.loops import tanh
from secure_fedrec.models.lstm.model import CharacterLSTM

CHARACTERS, WIDTH = 9, 5


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def make(hidden: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Embedding, CharacterLSTM]:
    torch.manual_seed(hidden)
    characters = nn.Embedding(CHARACTERS, WIDTH, dtype=dtype)
    return characters, CharacterLSTM(WIDTH, hidden).to(dtype)


def codes_of(steps: int, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(steps)
    return torch.randint(1, CHARACTERS, (steps, batch), generator=generator)


def gradients(outputs: Tensor, modules: tuple[nn.Module, ...]) -> list[Tensor]:
    weights = [weight for module in modules for weight in module.parameters()]
    pull = torch.linspace(-1, 2, outputs.numel()).reshape(outputs.shape).to(outputs.dtype)
    return list(torch.autograd.grad((outputs * pull).sum(), weights))


@pytest.mark.parametrize("hidden", [4, 8, 64])
@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_outputs_and_gradients_are_those_of_torch(hidden: int, batch: int) -> None:
    characters, lstm = make(hidden)
    codes = codes_of(40, batch)
    ours = lstm.read(characters.weight, codes)
    theirs, _ = nn.LSTM.forward(lstm, characters(codes))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)
    for one, other in zip(
        gradients(ours, (characters, lstm)), gradients(theirs, (characters, lstm)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_widths_and_formats_run_torchs_own_code(dtype: torch.dtype) -> None:
    characters, lstm = make(6 if dtype == torch.float32 else 8, dtype)
    codes = codes_of(7, 3)
    theirs, _ = nn.LSTM.forward(lstm, characters(codes))
    assert torch.equal(lstm.read(characters.weight, codes), theirs)
    assert theirs.dtype == dtype


def test_a_text_has_the_same_bits_alone_and_in_any_batch() -> None:
    characters, lstm = make(8)
    codes = codes_of(30, 5)
    whole = lstm.read(characters.weight, codes)
    for text in range(5):
        alone = lstm.read(characters.weight, codes[:, text : text + 1])
        assert torch.equal(alone[:, 0], whole[:, text])
    assert torch.equal(lstm.read(characters.weight, codes), whole)


def test_characters_that_do_not_occur_get_no_gradient() -> None:
    characters, lstm = make(8)
    codes = codes_of(6, 2)
    gradient, *_ = gradients(lstm.read(characters.weight, codes), (characters, lstm))
    used = torch.zeros(CHARACTERS, dtype=torch.bool)
    used[codes.flatten()] = True
    assert gradient[used].any(dim=1).all()
    assert not gradient[~used].any()


def test_weights_changed_before_the_backward_pass_are_noticed() -> None:
    characters, lstm = make(8)
    outputs = lstm.read(characters.weight, codes_of(4, 2))
    with torch.no_grad():
        lstm.get_parameter("weight_hh_l0").mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()  # type: ignore[no-untyped-call]


def test_forget_gates_start_open() -> None:
    _, lstm = make(8)
    bias = lstm.get_parameter("bias_ih_l0").detach()
    assert float(bias[8:16].mean()) > 0.8
    assert float(bias[:8].abs().max()) < 0.5


def test_diverged_weights_show_in_the_outputs() -> None:
    characters, lstm = make(8)
    with torch.no_grad():
        lstm.get_parameter("bias_hh_l0")[3] = torch.nan
    assert lstm.read(characters.weight, codes_of(4, 2)).isnan().any()


def test_the_hyperbolic_tangent() -> None:
    points = np.concatenate([np.linspace(-12, 12, 4001), [0.0, -1e-8, 1e-30, 80.0]])
    points = points.astype(np.float32)
    found = np.array([tanh(point) for point in points])
    assert np.abs(found - np.tanh(points.astype(np.float64))).max() < 1e-6
    assert np.abs(found).max() < 1
    assert np.isnan(tanh(np.float32("nan")))
