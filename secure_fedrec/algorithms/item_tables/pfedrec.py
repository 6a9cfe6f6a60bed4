"""PFedRec (Zhang et al., IJCAI 2023): a score function for every client over one item table.

A client's score of item i is ``sigmoid(w . E_i + b)``. A step moves twice on the same batch: first
(w, b), with E fixed, by ``learning_rate``; then E, with the new (w, b), by ``item_learning_rate``,
which grows with the number of items, since the mean over a batch makes the slope of a row small.
(w, b) stays with the client from round to round, E starts from the mean; b is uploaded beside E, as
in the paper's system, and averaged, though the mean is not used.
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
    cross_entropy,
    errors_of,
    tails,
)
from secure_fedrec.algorithms.item_tables.method import Method, Start
from secure_fedrec.algorithms.item_tables.starts import linear, own_linear
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot
from secure_fedrec.settings import Count, Positive, Rounds, Settings
from secure_fedrec.streams import Streams


class PFedRecConfig(Settings, section="algorithm"):
    """Hyper-parameters, by default those of the paper's system on ml-100k.

    Args:
        rank: d, length of an item's vector.
        rounds: T, rounds of training.
        learning_rate: step size of the score function.
        item_scale: step size of the item table in ``learning_rate * n_items``.
        start: factors on where item tables and score function start.
        local: training of a round.

    Raises:
        ConfigError: a field is out of range.
    """

    rank: Count = 32
    rounds: Rounds = 100
    learning_rate: StepSize = 0.1
    item_scale: Positive = 80.0
    start: ItemTableStart = field(default_factory=ItemTableStart)
    local: ItemTableTraining = field(default_factory=ItemTableTraining)


class PFedRec(Method[PFedRecConfig]):
    """The method; see the module docstring. ``own`` is w and, behind it, b."""

    name = "pfedrec"
    form = "scored"

    def start(self, streams: Streams) -> Start:
        """E from N(0, 1), by the settings' factor; the mean of b."""
        bias = linear(streams.stream("score-function"), self.config.rank)[-1:]
        return super().start(streams)._replace(shared=self.config.start.own * bias)

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """All clients start from the same w and b."""
        rank, scale = self.config.rank, self.config.start.own
        return own_linear(streams, "score-function", rank, clients, scale=scale)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """(w, b), then E."""
        rate = self.config.learning_rate
        _step(models, batch, rate, rate * self.n_items * self.config.item_scale, losses)


@compiled_loop
def _step(
    models: Models, batch: Batch, learning_rate: float, item_rate: float, losses: FloatArray
) -> None:
    table, own, width = models.table, models.own, models.table.shape[1]
    down = np.empty(width + 1, dtype=np.float32)
    size = (batch.end - batch.begin).max()
    logits, errors = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    scratch = np.empty(size, dtype=np.int32)
    for place in range(len(batch.clients)):
        client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
        rows, labels, count = batch.rows[begin:end], batch.labels[begin:end], end - begin
        share = batch.rates[place] / np.float32(count)
        seen, pulls = logits[:count], errors[:count]
        _look(table, own, client, rows, seen)
        tails(seen, pulls, scratch[:count])
        errors_of(seen, pulls, labels, pulls)
        down[:] = 0
        for example in range(count):
            row, single = rows[example], pulls[example]
            for k in range(width):
                down[k] += single * table[row, k]
            down[width] += single
        for k in range(width + 1):
            own[client, k] -= np.float32(learning_rate) * share * down[k]
        models.shared[client, 0] = own[client, width]
        # The slopes of all examples are taken before a row moves: an item may be drawn twice.
        _look(table, own, client, rows, seen)
        tails(seen, pulls, scratch[:count])
        losses[client] = cross_entropy(seen, pulls, labels) / count
        errors_of(seen, pulls, labels, pulls)
        rate = np.float32(item_rate) * share
        for example in range(count):
            row, move = rows[example], rate * pulls[example]
            for k in range(width):
                table[row, k] -= move * own[client, k]


@compiled_loop
def _look(
    table: SingleArray, own: SingleArray, client: int, rows: IntArray, logits: SingleArray
) -> None:
    for example in range(len(rows)):
        bias = own[client, table.shape[1]]
        logits[example] = dot(table, rows[example], own, client, 0) + bias
