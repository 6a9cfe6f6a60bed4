"""One client's local training of a torch model, as every form of Federated Averaging needs it.

Everything random in it, the order of the examples and dropout, is a function of (seed, round,
client) alone: it does not depend on which clients were trained before or beside, nor on the global
generator of torch, which is left as it was found. On one thread the result is the same to the bit
for every call with the same arguments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import MOMENTS, LocalTrainingConfig
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.streams import Stream

Batch: TypeAlias = Mapping[str, Tensor]
"""Rows of every column of a client's examples."""

Loss: TypeAlias = Callable[[nn.Module, Batch], Tensor]
"""Mean loss of a model on a batch: a scalar that can be differentiated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDraws:
    """Seeds of one client's round.

    Args:
        order: order of the shuffling of the examples.
        dropout: dropout of everything that layers draw.
    """

    order: int
    dropout: int

    @classmethod
    def at(cls, stream: Stream, round_: int, client: int) -> "TrainingDraws":
        """The seeds of a client in a round: a function of (stream, round, client) alone."""
        words = stream.words_at(round_, np.array([client]), np.array([0]), width=2)[0]
        return cls(order=int(words[0]), dropout=int(words[1]))


class LocalOptimizer:
    """An optimiser over all trainable parameters of one model, used by client after client.

    Its moments can be taken out as one vector (to be kept on their device) and put back.

    Args:
        model: whose parameters are stepped, in place.
        config: settings.
        private: names of the private parameters.

    Attributes:
        state_size: values of the vector that ``state`` returns; 0 where nothing is remembered.
    """

    def __init__(
        self, model: nn.Module, config: LocalTrainingConfig, *, private: Sequence[str] = ()
    ) -> None:
        self.config = config
        named = [(name, w) for name, w in model.named_parameters() if w.requires_grad]
        self._federated = [weight for name, weight in named if name not in private]
        self._private = [weight for name, weight in named if name in private]
        self._weights = [*self._federated, *self._private]
        self._moments = MOMENTS[config.optimizer]
        self._torch = self._make()
        self._anchor: list[Tensor] = []
        values = sum(1 + len(self._moments) * weight.numel() for weight in self._weights)
        self.state_size = values if self._moments else 0

    def begin(self, state: FloatArray | None = None, *, rate_scale: float = 1.0) -> None:
        """Prepare for a client.

        Args:
            state: float64[state_size], moments to go on with; None starts with fresh ones. A
                vector of zeros is the same as None.
            rate_scale: factor on all step sizes.
        """
        self._torch.state.clear()
        for group in self._torch.param_groups:
            group["lr"] = group["initial_lr"] * rate_scale
        if self.config.proximal:
            self._anchor = [weight.detach().clone() for weight in self._federated]
        if state is not None:
            self._load(state)

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of a loss."""
        self._torch.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.proximal:
            for weight, start in zip(self._federated, self._anchor, strict=True):
                if weight.grad is not None:
                    weight.grad.add_(weight.detach() - start, alpha=self.config.proximal)
        if self.config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self._federated, self.config.gradient_clip)
        self._torch.step()

    def state(self) -> FloatArray:
        """The present moments: float64[state_size].

        For every weight its number of steps (with "momentum": whether it has a moment, 0 or 1),
        then its moments; zeros where a weight has not been stepped.
        """
        flat = np.zeros(self.state_size)
        for weight, part in self._parts(flat):
            held = self._torch.state.get(weight, {})
            if held.get(self._moments[0]) is not None:
                part[0] = float(held.get("step", 1))
                for name, moment in zip(self._moments, self._rows(part), strict=True):
                    moment[:] = held[name].to(torch.float64).reshape(-1).numpy()
        return flat

    def _load(self, state: FloatArray) -> None:
        for weight, part in self._parts(state):
            held: dict[str, Any] = {
                name: torch.from_numpy(moment.copy()).reshape(weight.shape).to(weight.dtype)
                for name, moment in zip(self._moments, self._rows(part), strict=True)
            }
            if self.config.optimizer == "adam":
                held["step"] = torch.tensor(float(part[0]))
            self._torch.state[weight] = held

    def _parts(self, state: FloatArray) -> Iterator[tuple[nn.Parameter, FloatArray]]:
        """Every weight with its part of a state vector."""
        start = 0
        for weight in self._weights if self._moments else ():
            stop = start + 1 + len(self._moments) * weight.numel()
            yield weight, state[start:stop]
            start = stop

    def _rows(self, part: FloatArray) -> FloatArray:
        """The moments of one weight, one per row."""
        return part[1:].reshape(len(self._moments), -1)

    def _make(self) -> torch.optim.Optimizer:
        config = self.config
        private_rate = config.private_learning_rate
        groups: list[dict[str, Any]] = [
            {"params": weights, "lr": rate, "initial_lr": rate}
            for weights, rate in (
                (self._federated, config.learning_rate),
                (self._private, config.learning_rate if private_rate is None else private_rate),
            )
            if weights
        ]
        if config.optimizer == "adam":
            return torch.optim.Adam(groups, betas=config.betas, eps=config.epsilon)
        momentum = config.momentum if config.optimizer == "momentum" else 0.0
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=momentum)


def train_locally(
    model: nn.Module,
    loss: Loss,
    examples: Mapping[str, npt.NDArray[Any]],
    *,
    optimizer: LocalOptimizer,
    draws: TrainingDraws,
    state: FloatArray | None = None,
    rate_scale: float = 1.0,
) -> None:
    """Train a model in place on one client's examples.

    Args:
        model: holds the values to start from, and afterwards the trained ones.
        loss: mean loss on a batch.
        examples: columns of equal first dimension n, at least 1 row.
        optimizer: over the parameters of ``model``; its settings say how long and in which batches.
        draws: seeds of this client and round.
        state: moments of the optimiser to go on with; None starts with fresh ones.
            ``optimizer.state()`` returns the new ones.
        rate_scale: factor on the step sizes, for rates that fall from round to round.

    Raises:
        ValueError: there is no example, or the columns are of unequal lengths.
    """
    columns = {name: torch.from_numpy(column) for name, column in examples.items()}
    sizes = {len(column) for column in columns.values()}
    if len(sizes) != 1 or sizes == {0}:
        raise ValueError(f"columns need one common length above 0, got {sorted(sizes)}")
    size = sizes.pop()
    config = optimizer.config
    order = torch.Generator().manual_seed(draws.order)
    model.train()
    optimizer.begin(state, rate_scale=rate_scale)
    with one_thread(), seeded_torch(draws.dropout):
        for _ in range(config.epochs):
            for rows in _batches(size, config.batch_size, order):
                batch = {name: column[rows] for name, column in columns.items()}
                optimizer.step(loss(model, batch))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums split among threads would round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Seed the generators that layers draw from (dropout takes none); restore them afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def _batches(size: int, batch_size: int | None, order: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of each batch of an epoch; a single batch keeps the order of the examples."""
    if batch_size is None or batch_size >= size:
        yield torch.arange(size)
        return
    shuffled = torch.randperm(size, generator=order)
    for start in range(0, size, batch_size):
        yield shuffled[start : start + batch_size]
