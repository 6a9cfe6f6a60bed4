"""Central training of NCD and NCF on the pooled records of all organisations; needs torch."""

from collections.abc import Callable
from typing import Any, Final

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import (
    Batch,
    LocalOptimizer,
    TrainingDraws,
    one_thread,
    seeded_torch,
    train_locally,
)
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.models.ncd import NCD, NCDConfig
from secure_fedrec.models.ncf.ncf_model import NCF, NCFConfig
from secure_fedrec.streams import Streams
from secure_fedrec.studies.hpfl.settings import Setting

# The networks take far fewer steps of larger batches than the user model: matrix products.
_BATCH: Final = 256
_PATIENCE: Final = 5


def train_network(
    method: str, pooled: Organisations, setting: Setting, seed: int
) -> tuple[Callable[[IntArray, IntArray], FloatArray], FloatArray]:
    """Train one network, keeping its best epoch on the validation records.

    Args:
        method: "ncd", for scores of two levels, or "ncf".
        pooled: all records at one client.
        setting: learning rate, and with rounds times epochs the most epochs.
        seed: of start values, order and dropout.

    Returns:
        Predictions of (user, item) pairs, and float64[U, K] characteristics of the users.
    """
    stream = Streams.from_seed(seed).stream("network")
    with seeded_torch(TrainingDraws.at(stream, 0, 0).dropout):
        network, loss = _build(method, pooled)
    config = LocalTrainingConfig(
        optimizer="adam", learning_rate=setting.learning_rate, batch_size=_BATCH, keep_state=True
    )
    optimizer = LocalOptimizer(network, config)
    examples = _columns(*pooled.train.of(0))
    state, best, stale = None, (np.inf, network.state_dict()), 0
    for epoch in range(1, setting.rounds * setting.epochs + 1):
        draws = TrainingDraws.at(stream, epoch, 0)
        train_locally(network, loss, examples, optimizer=optimizer, draws=draws, state=state)
        state = optimizer.state()
        error = _error(network, pooled)
        stale += 1
        if error < best[0]:
            kept = {name: value.clone() for name, value in network.state_dict().items()}
            best, stale = (error, kept), 0
        if stale >= _PATIENCE:
            break
    network.load_state_dict(best[1])
    return lambda users, items: _predict(network, users, items), network.characteristics()


def _build(
    method: str, pooled: Organisations
) -> tuple[NCD | NCF, Callable[[nn.Module, Batch], Tensor]]:
    (users,), (items,) = pooled.n_users, pooled.n_items
    if method == "ncd":
        network: NCD | NCF = NCD(NCDConfig(), n_users=users, attributes=pooled.attributes[0])
        return network, _loss(nn.functional.binary_cross_entropy)
    low, high = float(pooled.levels[0]), float(pooled.levels[-1])
    config = NCFConfig(factors=pooled.n_attributes)
    network = NCF(config, n_users=users, n_items=items, low=low, high=high)
    return network, _loss(nn.functional.mse_loss)


def _loss(of: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Batch], Tensor]:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return of(model(batch["users"], batch["items"]), batch["scores"])

    return loss


def _columns(users: IntArray, items: IntArray, scores: FloatArray) -> dict[str, npt.NDArray[Any]]:
    # Copies: records are read-only, which torch does not know.
    return {"users": users.copy(), "items": items.copy(), "scores": scores.astype(np.float32)}


def _error(network: nn.Module, pooled: Organisations) -> float:
    users, items, scores = pooled.validation.of(0)
    return float(np.mean((_predict(network, users, items) - scores) ** 2))


@torch.no_grad()
def _predict(network: nn.Module, users: IntArray, items: IntArray) -> FloatArray:
    network.eval()
    with one_thread():
        found = network(torch.from_numpy(users.copy()), torch.from_numpy(items.copy()))
    return np.asarray(found.numpy(), dtype=np.float64)
