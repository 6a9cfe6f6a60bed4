"""FedRAP (Li et al., ICLR 2024): a common item table plus a personal one.

A client's score of item i is ``sigmoid(w . (P_i + C_i) + b)``: C is shared, P, w and b stay with
the client. A step goes down the slope of

    cross entropy - lambda mean((P - C)^2) + mu mean(abs(C)) + eta/2 (|C|^2 + |P|^2 + |w|^2 + b^2)

all at once. The means are over the rows of the batch's examples (twice, if an item occurs twice);
the decay eta is of the whole tables, so every row of C changes and is sent. All clients start from
the same P.
"""

from dataclasses import field

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableStart,
    ItemTableTraining,
    Models,
    SingleArray,
    StepSize,
    logistic,
)
from secure_fedrec.algorithms.item_tables.method import Method
from secure_fedrec.algorithms.item_tables.scoring import products
from secure_fedrec.algorithms.item_tables.starts import own_linear
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot
from secure_fedrec.settings import Count, NonNegative, Rounds, Settings
from secure_fedrec.streams import Streams


class FedRAPConfig(Settings, section="algorithm"):
    """Hyper-parameters, by default those of the paper's system on ml-100k.

    Args:
        rank: d, length of an item's vector.
        rounds: T, rounds of training.
        learning_rate: step size of the score function.
        item_learning_rate: step size of both item tables.
        independence: lambda, how strongly P and C are pushed apart.
        sparsity: mu, the pull of C to 0.
        weight_decay: eta, pull of all values to 0.
        start: factors on where item tables and score function start.
        local: training of a round.

    Raises:
        ConfigError: a field is out of range.
    """

    rank: Count = 32
    rounds: Rounds = 100
    learning_rate: StepSize = 0.5
    item_learning_rate: StepSize = 200.0
    independence: NonNegative = 0.1
    sparsity: NonNegative = 0.1
    weight_decay: NonNegative = 1e-4
    start: ItemTableStart = field(default_factory=ItemTableStart)
    local: ItemTableTraining = field(
        default_factory=lambda: ItemTableTraining(
            epochs=10, batch_size=2048, decay=0.97, batch_decay=0.95, tolerance=1e-4
        )
    )


class FedRAP(Method[FedRAPConfig]):
    """The method; see the module docstring. ``own`` is w and, behind it, b."""

    name = "fedrap"
    form = "scored"
    dense = True
    personal = True

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """All clients start from the same w and b."""
        rank, scale = self.config.rank, self.config.start.own
        return own_linear(streams, "score-function", rank, clients, scale=scale)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """P, C, w and b at once."""
        config = self.config
        rates = (config.learning_rate, config.item_learning_rate, config.weight_decay)
        _step(models, batch, *rates, config.independence, config.sparsity, losses)

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Logits without b, which order items as the scores do."""
        return products(models._replace(table=models.table + models.personal), table)


@compiled_loop
def _step(
    models: Models,
    batch: Batch,
    learning_rate: float,
    item_rate: float,
    weight_decay: float,
    independence: float,
    sparsity: float,
    losses: FloatArray,
) -> None:
    common, personal, own = models.table, models.personal, models.own
    width = common.shape[1]
    weights, slope = np.empty(width, dtype=np.float32), np.empty(width + 1, dtype=np.float32)
    tally = np.empty(width, dtype=np.float32)
    for place in range(len(batch.clients)):
        client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
        first, last = models.indptr[client], models.indptr[client + 1]
        errors, times = np.zeros(last - first, np.float32), np.zeros(last - first, np.float32)
        bias, share = own[client, width], np.float32(1.0 / (end - begin))
        weights[:] = own[client, :width]
        slope[:], tally[:], total = 0, 0, 0.0
        for example in range(begin, end):
            row = batch.rows[example]
            logit = dot(common, row, own, client, 0) + dot(personal, row, own, client, 0) + bias
            loss, error = logistic(logit, batch.labels[example])
            total += loss
            errors[row - first] += np.float32(error) * share
            times[row - first] += 1
            slope[width] += np.float32(error) * share
        # Gradient of the two means at a value, for each occurrence of its row in the batch.
        push = np.float32(2 * independence) * share / np.float32(width)
        pull = np.float32(sparsity) * share / np.float32(width)
        rate = np.float32(item_rate) * batch.rates[place]
        kept = np.float32(1.0) - rate * np.float32(weight_decay)
        for row in range(first, last):
            error, count = errors[row - first], times[row - first]
            if count == 0:
                for k in range(width):
                    common[row, k] *= kept
                    personal[row, k] *= kept
                continue
            away, sink = rate * count * push, rate * count * pull
            for k in range(width):
                slope[k] += error * (common[row, k] + personal[row, k])
            error *= rate
            for k in range(width):
                c, p = common[row, k], personal[row, k]
                size, apart = abs(c), p - c
                tally[k] += sink * size - np.float32(0.5) * away * apart * apart
                step = error * weights[k] + away * apart
                common[row, k] = kept * c - step - (sink if c > 0 else -sink if c < 0 else 0)
                personal[row, k] = kept * p - error * weights[k] + away * apart
        losses[client] = total / (end - begin) + tally.sum() / rate
        rate = np.float32(learning_rate) * batch.rates[place]
        kept = np.float32(1.0) - rate * np.float32(weight_decay)
        for k in range(width + 1):
            own[client, k] = kept * own[client, k] - rate * slope[k]
