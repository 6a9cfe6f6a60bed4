"""FedMF (Chai et al. 2020) on implicit feedback: shared item vectors, private user vectors.

A client's score of item i is ``sigmoid(u . V_i)``. A step goes down the slope of

    cross entropy + lambda/2 |u|^2 + lambda/2 |V_i|^2, i an item of the batch

in u and in the rows of the batch's items at once. V starts a round from the mean, u stays with the
client. Every value is drawn separately: dimensions that start equal stay equal, and the model would
have rank 1.
"""

from dataclasses import field

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableTraining,
    Models,
    SingleArray,
    StepSize,
    logistic,
)
from secure_fedrec.algorithms.item_tables.method import Method, Start
from secure_fedrec.algorithms.item_tables.starts import own_normal
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot
from secure_fedrec.settings import Count, NonNegative, Positive, Rounds, Settings
from secure_fedrec.streams import Streams


class FedMFConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rank: d, length of the latent vectors.
        rounds: T, rounds of training.
        learning_rate: step size of the user vector.
        item_learning_rate: step size of the item vectors.
        regularization: lambda, pull of the vectors in a batch to 0.
        init_scale: standard deviation of the values of all vectors at the start.
        local: training of a round.

    Raises:
        ConfigError: a field is out of range.
    """

    rank: Count = 32
    rounds: Rounds = 100
    learning_rate: StepSize = 10.0
    item_learning_rate: StepSize = 1000.0
    regularization: NonNegative = 0.0
    init_scale: Positive = 0.1
    local: ItemTableTraining = field(default_factory=ItemTableTraining)


class FedMF(Method[FedMFConfig]):
    """The method; see the module docstring. ``own`` is u."""

    name = "fedmf"
    form = "scored"

    def start(self, streams: Streams) -> Start:
        """V, normal around 0."""
        start = super().start(streams)
        return start._replace(table=self.config.init_scale * start.table)

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """User vectors, normal around 0, each client's from its own lane."""
        stream, scale = streams.private("user-vectors"), self.config.init_scale
        return own_normal(stream, self.config.rank, clients, scale=scale)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """Both vectors of every example at once, by the slope of the mean."""
        config = self.config
        rates = (config.learning_rate, config.item_learning_rate)
        _step(models, batch, *rates, config.regularization, losses)


@compiled_loop
def _step(
    models: Models,
    batch: Batch,
    learning_rate: float,
    item_rate: float,
    regularization: float,
    losses: FloatArray,
) -> None:
    table, own, width = models.table, models.own, models.table.shape[1]
    user, slope = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    shrink = np.float32(regularization)
    for place in range(len(batch.clients)):
        client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
        share = np.float32(1.0 / (end - begin))
        errors = np.empty(end - begin, dtype=np.float32)
        user[:] = own[client]
        slope[:] = 0
        total, squares = 0.0, 0.0
        for example in range(begin, end):
            row = batch.rows[example]
            logit = dot(table, row, own, client, 0)
            loss, error = logistic(logit, batch.labels[example])
            single = np.float32(error)
            errors[example - begin] = single
            total += loss
            if regularization > 0:
                squares += dot(table, row, table, row, 0)
            for k in range(width):
                slope[k] += single * table[row, k]
        rate = np.float32(item_rate) * batch.rates[place] * share
        for example in range(begin, end):
            row, single = batch.rows[example], errors[example - begin]
            for k in range(width):
                table[row, k] -= rate * (single * user[k] + shrink * table[row, k])
        rate = np.float32(learning_rate) * batch.rates[place]
        norm = 0.0
        for k in range(width):
            norm += user[k] * user[k]
            own[client, k] = user[k] - rate * (share * slope[k] + shrink * user[k])
        losses[client] = (total + regularization / 2 * squares) * share + regularization / 2 * norm
