"""FedNCF (Perifanis and Efraimidis 2022): shared item vectors and a shared network, private users.

A client's score of item i is ``sigmoid(h . relu(W [u; V_i] + a) + c)``. V, W, a, h and c start a
round from their means, the user vector u stays with the client. A step goes down the slope of the
cross entropy in all of them at once.
"""

from dataclasses import field
from typing import Any

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableTraining,
    Models,
    SingleArray,
    StepSize,
    logistic,
)
from secure_fedrec.algorithms.item_tables.method import OWN, Method, Start, placed
from secure_fedrec.algorithms.item_tables.network import (
    BLOCK,
    Work,
    in_blocks,
    logits_of,
    part_of_user,
    score_all,
    work_for,
)
from secure_fedrec.algorithms.item_tables.starts import linear, normal, own_normal
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.settings import Count, Positive, Rounds, Settings
from secure_fedrec.streams import Streams


class FedNCFConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rank: d, length of the latent vectors.
        hidden: units of the hidden layer.
        rounds: T, rounds of training.
        learning_rate: step size of the network.
        user_learning_rate: step size of the user vector.
        item_learning_rate: step size of the item vectors.
        init_scale: standard deviation of the values of user and item vectors at the start.
        layer_scale: factor on where both layers start, uniform within 1 / sqrt(inputs) of 0.
        local: training of a round.

    Raises:
        ConfigError: a field is out of range.
    """

    rank: Count = 32
    hidden: Count = 32
    rounds: Rounds = 100
    learning_rate: StepSize = 0.5
    user_learning_rate: StepSize = 5.0
    item_learning_rate: StepSize = 1000.0
    init_scale: Positive = 0.1
    layer_scale: Positive = 1.0
    local: ItemTableTraining = field(default_factory=ItemTableTraining)


class FedNCF(Method[FedNCFConfig]):
    """The method; see the module docstring.

    ``own`` is u; ``shared`` is W, row after row (for u, then for V_i), then a, h and c.
    """

    name = "fedncf"

    def start(self, streams: Streams) -> Start:
        """V, normal around 0, and both layers."""
        config = self.config
        table = normal(streams.stream("item-table"), (self.n_items, config.rank))
        first = linear(streams.stream("hidden-layer"), 2 * config.rank, config.hidden)
        last = linear(streams.stream("score-layer"), config.hidden)
        layers = config.layer_scale * np.concatenate([first, last])
        return Start(config.init_scale * table, layers)

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """User vectors, normal around 0, each client's from its own lane."""
        stream, scale = streams.private("user-vectors"), self.config.init_scale
        return own_normal(stream, self.config.rank, clients, scale=scale)

    def knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and where the user vector enters the network."""
        rank, hidden = self.config.rank, self.config.hidden
        shapes = {
            "hidden.weight": (hidden, 2 * rank),
            "hidden.bias": (hidden,),
            "score.weight": (1, hidden),
            "score.bias": (1,),
        }
        return {
            **super().knowledge(),
            "federated": placed(shapes),
            "private": placed({"user": (rank,)}),
            "weight_position": None,
            "private_input": {
                "layer": "hidden.weight",
                "first": 0,
                "secret": {"table": OWN},
            },
        }

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """Everything at once, by the slope of the mean."""
        config = self.config
        rates = (config.learning_rate, config.user_learning_rate, config.item_learning_rate)
        most = int((batch.end - batch.begin).max())
        _step(models, batch, work_for(config.hidden, most), *rates, losses)

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Logits, which order items as the scores do."""
        scores = np.empty((len(models.own), len(table)), dtype=np.float32)
        own = np.empty((self.config.rank, BLOCK), dtype=np.float32)
        work = work_for(self.config.hidden)
        score_all(models, in_blocks(table), own, work, scores)
        return scores


@compiled_loop
def _turn(table: SingleArray, rows: IntArray, turned: SingleArray) -> None:
    for place in range(len(rows)):
        turned[:, place] = table[rows[place]]


@compiled_loop
def _step(
    models: Models,
    batch: Batch,
    work: Work,
    learning_rate: float,
    user_rate: float,
    item_rate: float,
    losses: FloatArray,
) -> None:
    table, own, shared, width = models.table, models.own, models.shared, models.table.shape[1]
    units, of_user = len(work.hidden), np.empty(len(work.hidden), np.float32)
    turned = np.empty((width, len(work.logits)), np.float32)
    tail = units * (2 * width + 1)
    slope, user_slope = np.empty(shared.shape[1], np.float32), np.empty(width, np.float32)
    for place in range(len(batch.clients)):
        client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
        share, total = np.float32(1.0 / (end - begin)), 0.0
        moves = np.zeros((end - begin, width), dtype=np.float32)
        slope[:], user_slope[:] = 0, 0
        part_of_user(models, client, of_user)
        _turn(table, batch.rows[begin:end], turned)
        logits_of(turned, end - begin, shared, client, of_user, work)
        for example in range(begin, end):
            row, hidden = batch.rows[example], work.hidden[:, example - begin]
            loss, error = logistic(work.logits[example - begin], batch.labels[example])
            total += loss
            single = np.float32(error) * share
            slope[tail + units] += single
            for unit in range(units):
                if hidden[unit] == 0:
                    continue
                slope[tail + unit] += single * hidden[unit]
                back, base = single * shared[client, tail + unit], unit * 2 * width
                slope[units * 2 * width + unit] += back
                half, move = base + width, example - begin
                for k in range(width):
                    slope[half + k] += back * table[row, k]
                for k in range(width):
                    moves[move, k] += back * shared[client, half + k]
        for unit in range(units):  # the part of W that multiplies u is the same for all examples
            back, base = slope[units * 2 * width + unit], unit * 2 * width
            for k in range(width):
                slope[base + k] = back * own[client, k]
                user_slope[k] += back * shared[client, base + k]
        rate = np.float32(item_rate) * batch.rates[place]
        for example in range(begin, end):
            row, move = batch.rows[example], example - begin
            for k in range(width):
                table[row, k] -= rate * moves[move, k]
        rate = np.float32(user_rate) * batch.rates[place]
        for k in range(width):
            own[client, k] -= rate * user_slope[k]
        rate = np.float32(learning_rate) * batch.rates[place]
        for value in range(shared.shape[1]):
            shared[client, value] -= rate * slope[value]
        losses[client] = total * share
