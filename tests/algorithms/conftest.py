"""A tiny personal model, and a federation of five clients with examples for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.vault import Vault

COUNTS = (3, 1, 7, 4, 2)


class Tiny(nn.Module):
    """Concatenates a user vector with the features; two classes; dropout between two layers."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(1, 2, dtype=dtype)
        self.first = nn.Linear(5, 4, dtype=dtype)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(4, 2, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        user = self.user_embedding(torch.zeros(len(x), dtype=torch.int64))
        hidden = torch.tanh(self.first(torch.cat([x.to(user.dtype), user], dim=1)))
        found: Tensor = self.last(self.dropout(hidden))
        return found


def tiny_loss(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def _furl_of(
    *,
    private: tuple[str, ...] | None = ("user_embedding.*",),
    build: Callable[[], nn.Module] = Tiny,
    rounds: int = 6,
    row_width: int = 8,
    ring: Any = None,
    decay: float = 1.0,
    **training: Any,
) -> FURL:
    training = {"learning_rate": 0.5, "batch_size": 2, "epochs": 2, **training}
    config = FURLConfig(
        rounds=rounds,
        row_width=row_width,
        decay=decay,
        local=LocalTrainingConfig(**training),
        private_rule="keep" if ring is None else "weighted",
    )
    return FURL(build, tiny_loss, config, private=private, ring=ring)


def _vault_of(counts: tuple[int, ...] = COUNTS) -> Vault:
    rng = np.random.default_rng(6)
    size = sum(counts)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "x": rng.normal(size=(size, 3)).astype(np.float32),
        "y": rng.integers(0, 2, size),
    }
    return Vault.of_examples(np.concatenate([[0], np.cumsum(counts)]), columns)


@pytest.fixture
def furl_of() -> Callable[..., FURL]:
    """FURL on the tiny model; keywords set training, rounds and more."""
    return _furl_of


@pytest.fixture
def examples_of() -> Callable[..., Vault]:
    """Fresh vaults with so many examples for each client."""
    return _vault_of


@pytest.fixture
def tiny() -> Callable[..., nn.Module]:
    """Makes the tiny model."""
    return Tiny
