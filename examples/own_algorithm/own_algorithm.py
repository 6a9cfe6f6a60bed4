"""Bayesian personalized ranking (Rendle et al. 2009) as a federated method: an own algorithm."""

from dataclasses import field

import numpy as np

from audits.item_tables import item_table_system
from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableTraining,
    Models,
    SingleArray,
)
from secure_fedrec.algorithms.item_tables.method import Method, Start
from secure_fedrec.algorithms.item_tables.starts import own_normal
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.settings import Count, Positive, Rounds, Settings
from secure_fedrec.streams import Streams


class BPRConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rank: d, length of the latent vectors.
        rounds: T, rounds of training.
        learning_rate: step size of the user vector.
        item_learning_rate: step size of the item vectors.
        init_scale: standard deviation of the values of all vectors at the start.
        local: training of a round.
    """

    rank: Count = 16
    rounds: Rounds = 20
    learning_rate: Positive = 0.5
    item_learning_rate: Positive = 10.0
    init_scale: Positive = 0.1
    local: ItemTableTraining = field(default_factory=ItemTableTraining)


class BPR(Method[BPRConfig]):
    """Ranks what a client chose above what it did not; ``own`` is the user vector."""

    name = "bpr"
    form = "change"

    def start(self, streams: Streams) -> Start:
        """Item vectors, normal around 0."""
        start = super().start(streams)
        return start._replace(table=self.config.init_scale * start.table)

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """User vectors, normal around 0, each client's from its own lane."""
        stream, scale = streams.private("user-vectors"), self.config.init_scale
        return own_normal(stream, self.config.rank, clients, scale=scale)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """Down the slope of the mean of -ln sigmoid(u (V_i - V_j)), client by client."""
        for place, client in enumerate(batch.clients):
            mine = slice(batch.begin[place], batch.end[place])
            rows, chosen = batch.rows[mine], batch.labels[mine] == 1
            pairs = max(chosen.sum(), (~chosen).sum()) if chosen.any() and (~chosen).any() else 0
            better, worse = (np.resize(rows[each], pairs) for each in (chosen, ~chosen))
            user, table = models.own[client].copy(), models.table
            apart = table[better] - table[worse]
            logits = np.sum(apart * user, axis=1)
            losses[client] = np.mean(np.logaddexp(0, -logits)) if pairs else 0.0
            pull = (batch.rates[place] / (1 + np.exp(logits)) / max(pairs, 1))[:, None]
            models.own[client] = user + self.config.learning_rate * np.sum(pull * apart, axis=0)
            np.add.at(table, better, self.config.item_learning_rate * pull * user)
            np.subtract.at(table, worse, self.config.item_learning_rate * pull * user)


SYSTEM = item_table_system(
    "bpr",
    BPR,
    BPRConfig,
    title="federated BPR",
    stays="interactions and the user vector",
    found="every row of a change is a multiple of the user vector, and its sign says what the "
    "client chose",
)
