"""Local training of a model that holds all users' parameters, one user at a time."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import (
    Batch,
    LocalOptimizer,
    TrainingDraws,
    train_locally,
)
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.aggregation import Summary
from secure_fedrec.properties.split.evaluation import Loss, begin_training
from secure_fedrec.properties.split.model import SplitModel
from secure_fedrec.streams import Streams

Examples: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""A user's training examples: columns of equal length, by name."""


class LocalRuns:
    """Local training on one shared module, which is loaded for user after user.

    Args:
        split: the model; used in place.
        loss: loss of one user.
        data: the examples of every user.
        config: settings of local training.
        streams: order of examples and dropout are functions of (streams, round, user).
    """

    def __init__(
        self,
        split: SplitModel,
        loss: Loss,
        data: Sequence[Examples],
        config: LocalTrainingConfig,
        streams: Streams,
    ) -> None:
        self.split = split
        self.streams = streams
        self._loss = loss
        self._data = data
        self._config = config
        self._stream = streams.stream("split.training")
        # Training turns every layer on. Layers in eval() within a model in train() stay in eval():
        # a batch normalisation there keeps its statistics.
        modules = split.model.modules()
        self._frozen = [each for each in modules if split.model.training and not each.training]
        private = [name for slot in split.slots for name in slot.sources]
        if config.private_learning_rate is not None and any("[" in name for name in private):
            problem = "cannot be had for some rows of a table only"
            raise ConfigError(
                "training.private_learning_rate", config.private_learning_rate, problem
            )
        if config.keep_state and any(each.is_complex() for each in split.tensors.values()):
            raise ConfigError("training.keep_state", True, "complex moments cannot be kept")
        self._optimizer = LocalOptimizer(split.model, config, private=private)

    def summaries(self, users: Sequence[int]) -> dict[int, Summary]:
        """The server's knowledge of their data: c_i."""
        columns = {user: next(iter(self._data[user].values())) for user in users}
        return {user: {"examples": float(len(column))} for user, column in columns.items()}

    def train(self, user: int, round_: int, state: FloatArray | None) -> FloatArray | None:
        """Train the module as it is loaded, on a user's examples.

        Args:
            user: whose.
            round_: the round.
            state: what the device's optimiser remembers from earlier rounds.

        Returns:
            Its state now; None if it does not keep one.
        """

        def loss(model: nn.Module, batch: Batch) -> Tensor:
            for each in self._frozen:
                each.training = False
            return self._loss(model, user, batch)

        begin_training(self._loss, self.split.model)
        train_locally(
            self.split.model,
            loss,
            self._data[user],
            optimizer=self._optimizer,
            draws=TrainingDraws.at(self._stream, round_, user),
            state=state,
        )
        return self._optimizer.state() if self._config.keep_state else None
