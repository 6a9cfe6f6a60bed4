"""Which parameters are federated and which private: named, validated, moved without a lost bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from secure_fedrec.errors import ConfigError
from secure_fedrec.models.split import ParameterSplit


class Personal(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(1, 3, dtype=dtype)
        self.item_embedding = nn.Embedding(4, 3, dtype=dtype)
        self.head = nn.Linear(6, 2, dtype=dtype)


def names(segments: tuple[object, ...]) -> list[str]:
    return [segment.name for segment in segments]  # type: ignore[attr-defined]


def test_parameters_are_private_by_pattern_and_federated_otherwise() -> None:
    split = ParameterSplit.of(Personal(), private=("user_embedding.*", "head.bias"))
    assert names(split.private) == ["user_embedding.weight", "head.bias"]
    assert names(split.federated) == ["item_embedding.weight", "head.weight"]
    assert (split.n_private, split.n_federated) == (3 + 2, 12 + 12)
    assert [(each.start, each.stop, each.shape) for each in split.federated] == [
        (0, 12, (4, 3)),
        (12, 24, (2, 6)),
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_round_trip_changes_no_bit_and_no_dtype(dtype: torch.dtype) -> None:
    source, target = Personal(dtype), Personal(dtype)
    split = ParameterSplit.of(source, private=("user_embedding.*",))
    split.write_federated(target, split.read_federated(source))
    split.write_private(target, split.read_private(source))
    for (name, ours), (_, theirs) in zip(
        source.named_parameters(), target.named_parameters(), strict=True
    ):
        assert theirs.dtype == dtype
        assert torch.equal(ours, theirs), name


def test_the_parts_do_not_touch_each_other() -> None:
    model = Personal()
    split = ParameterSplit.of(model, private=("user_embedding.*",))
    before = split.read_federated(model)
    split.write_private(model, np.array([1.0, -2.0, 3.0]))
    assert model.user_embedding.weight.tolist() == [[1.0, -2.0, 3.0]]
    np.testing.assert_array_equal(split.read_federated(model), before)
    split.write_federated(model, np.arange(split.n_federated, dtype=np.float64))
    assert model.user_embedding.weight.tolist() == [[1.0, -2.0, 3.0]]


def test_writing_is_in_place_and_rounds_to_the_nearest_value() -> None:
    model = Personal()
    held = model.user_embedding.weight
    split = ParameterSplit.of(model, private=("user_embedding.*",))
    split.write_private(model, np.array([0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24]))
    assert model.user_embedding.weight is held
    read = split.read_private(model)
    np.testing.assert_array_equal(read, np.array([0.1, 1.0, 1 + 2.0**-22], dtype=np.float32))


@pytest.mark.parametrize("size", [2, 4])
def test_a_wrong_number_of_values_is_refused(size: int) -> None:
    model = Personal()
    split = ParameterSplit.of(model, private=("user_embedding.*",))
    with pytest.raises(ValueError, match="expected 3 values"):
        split.write_private(model, np.zeros(size))


@pytest.mark.parametrize(
    ("private", "problem"),
    [
        ((), "names no private parameter"),
        (("user_embeding.*",), "matches no parameter"),
        (("user_embedding.*", "tail.*"), "matches no parameter"),
        (("*",), "none is federated"),
    ],
)
def test_bad_patterns_are_refused_with_the_known_names(
    private: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        ParameterSplit.of(Personal(), private=private)
    assert refused.value.key == "model.private"
    assert refused.value.choices is not None
    assert "user_embedding.weight" in refused.value.choices


def tied_by_name() -> nn.Module:
    model = Personal()
    model.item_embedding.weight = nn.Parameter(torch.zeros(1, 3))
    model.user_embedding.weight = model.item_embedding.weight
    return model


def tied_by_storage() -> nn.Module:
    model = Personal()
    model.user_embedding.weight = nn.Parameter(model.item_embedding.weight.data[2:3])
    return model


@pytest.mark.parametrize("build", [tied_by_name, tied_by_storage])
def test_a_tensor_that_is_both_is_refused(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(ConfigError, match="same tensor") as refused:
        ParameterSplit.of(build(), private=("user_embedding.*",))
    assert refused.value.value == "user_embedding.weight"


def test_neighbours_in_one_storage_are_not_tied() -> None:
    model, flat = Personal(), torch.zeros(15)
    model.user_embedding.weight = nn.Parameter(flat[:3].reshape(1, 3))
    model.item_embedding.weight = nn.Parameter(flat[3:].reshape(4, 3))
    assert ParameterSplit.of(model, private=("user_embedding.*",)).n_private == 3


def test_a_tensor_tied_within_a_part_travels_once() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "u": nn.Linear(1, 1)})
    model["b"].weight = model["a"].weight
    split = ParameterSplit.of(model, private=("u.*",))
    assert names(split.federated) == ["a.weight", "a.bias", "b.bias"]


def test_state_that_is_no_parameter_is_refused() -> None:
    model = nn.ModuleDict({"norm": nn.BatchNorm1d(3), "u": nn.Linear(1, 1)})
    with pytest.raises(ConfigError, match="pass from client to client"):
        ParameterSplit.of(model, private=("u.*",))
    with pytest.raises(ConfigError, match="pass from client to client"):
        ParameterSplit.of(model, private=None)


def test_constants_and_norms_without_statistics_are_welcome() -> None:
    model = nn.ModuleDict(
        {"norm": nn.BatchNorm1d(3, track_running_stats=False), "u": nn.Linear(1, 1)}
    )
    model.register_buffer("positions", torch.arange(4), persistent=False)
    assert ParameterSplit.of(model, private=("u.*",)).n_federated == 6


def test_values_a_float64_cannot_hold_are_refused() -> None:
    model = nn.Linear(2, 2, dtype=torch.complex64)
    with pytest.raises(ConfigError, match="complex64"):
        ParameterSplit.of(model, private=None)


def test_without_personalization_everything_is_federated() -> None:
    split = ParameterSplit.of(Personal(), private=None)
    assert split.private == ()
    assert split.n_private == 0
    assert split.n_federated == 3 + 12 + 14
