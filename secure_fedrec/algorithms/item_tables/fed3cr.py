"""Fed3CR: consensus-enhanced recommendation with consistency and complementarity losses.

Client n keeps a vector u and an item table P_n, and shares the item table G and the generator phi:

    g, p = means of the rows of G and P_n over the client's items
    W_n = phi([g; p]), d x d        Z = G W_n + P_n        score of item i: sigmoid(u . Z_i)
    loss = cross entropy + alpha L_con + beta L_com

Our copy of the paper lacks its formulas; these follow its prose, and ``fed3cr_consensus`` has those
of L_con and L_com. It is the plug-in (``fed3cr_plugin``, which describes what phi reveals about p)
over a user vector. Step sizes are those of FedRAP, whose set-up the paper follows; the paper does
not state any. That W_n starts near the identity is our choice.
"""

from dataclasses import field
from typing import NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables.fed3cr_consensus import PULL_U, Work
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import Enhanced, Enhancement
from secure_fedrec.algorithms.item_tables.fed3cr_step import (
    Form,
    Part,
    Rates,
    enhance,
    settle,
)
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
from secure_fedrec.algorithms.item_tables.method import Method
from secure_fedrec.algorithms.item_tables.scoring import products
from secure_fedrec.algorithms.item_tables.starts import own_linear
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot
from secure_fedrec.settings import Count, Rounds, Settings
from secure_fedrec.streams import Streams


class Fed3CRConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rank: d, length of an item's vector.
        rounds: T, rounds of training.
        learning_rate: step size of the user vector.
        item_learning_rate: step size of both item tables.
        enhancement: phi, alpha and beta.
        start: factors on where item tables and user vector start.
        local: training of a round.

    Raises:
        ConfigError: a field is out of range.
    """

    rank: Count = 32
    rounds: Rounds = 100
    learning_rate: StepSize = 0.5
    item_learning_rate: StepSize = 200.0
    enhancement: Enhancement = field(default_factory=lambda: Enhancement(weight_decay=1e-4))
    start: ItemTableStart = field(default_factory=ItemTableStart)
    local: ItemTableTraining = field(
        default_factory=lambda: ItemTableTraining(
            epochs=10, batch_size=2048, decay=0.97, batch_decay=0.95, tolerance=1e-4
        )
    )


class Fed3CR(Enhanced):
    """The method; see the module docstring.

    Args:
        config: hyper-parameters.
        n_items: m.
    """

    unifies = True

    def __init__(self, config: Fed3CRConfig, n_items: int) -> None:
        super().__init__(UserVector(config, n_items), config.enhancement)
        self.name = "fed3cr"
        self._start, self._user_rate = config.start, np.float32(config.learning_rate)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """As the plug-in's step, except for the order of sums, in one compiled loop."""
        rates = Rates(self._rate, self._decay, self._generator_rate)
        step = _unified_steps if self.enhancement.unified else _steps
        step(models, batch, losses, _Course(self._form, rates, self._user_rate, self._of_thread()))

    def personal_start(self, streams: Streams) -> SingleArray:
        """As the plug-in's, times the factor on all item tables."""
        return self._start.items * super().personal_start(streams)

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Products u . Z_i, which order items as the scores do."""
        if not self.enhancement.unified:
            return super().scores(models, table)
        mapped = np.stack(
            [self._matrix(models, client) @ own for client, own in enumerate(models.own)]
        )
        both = models.table + models.personal
        return products(models._replace(table=both, own=mapped), table)

    def own_view(self, models: Models, client: int) -> SingleArray:
        """P_n, or P_n W."""
        own = super().own_view(models, client)
        return own @ self._matrix(models, client) if self.enhancement.unified else own

    def _matrix(self, models: Models, client: int) -> SingleArray:
        """W of a transfer that is the same for all: float32[d, d]."""
        width = self.config.rank
        return self._form.scale * models.shared[client, -width * width :].reshape(width, width)


class UserVector(Method[Fed3CRConfig]):
    """The score: ``sigmoid(u . Z_i)``, whose vector and rows take a step at once. ``own`` is u."""

    name = "user-vector"

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """All clients start from the same u."""
        rank, scale = self.config.rank, self.config.start.own
        start = own_linear(streams, "score-function", rank, clients, scale=scale)
        return np.ascontiguousarray(start[:, :-1])

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """The step of vector and rows of the examples, from their old values."""
        config = self.config
        rates = np.float32(config.learning_rate), np.float32(config.item_learning_rate)
        _step(models, batch, *rates, losses)


class _Course(NamedTuple):
    """What all steps of a client have in common.

    Attributes:
        form: form of the loss and of the transfer.
        rates: step sizes, and the decay.
        user_rate: step size of the user vector.
        work: memory of the thread.
    """

    form: Form
    rates: Rates
    user_rate: np.float32
    work: Work


@compiled_loop
def _steps(models: Models, batch: Batch, losses: FloatArray, course: _Course) -> None:
    for place in range(len(batch.clients)):
        client, decay = batch.clients[place], batch.rates[place]
        vector = models.own[client]
        losses[client] = _move_tables(models, batch, place, vector, models.shared[client], course)
        for factor in range(len(vector)):
            vector[factor] -= decay * course.user_rate * course.work.lines[PULL_U, factor]


@compiled_loop
def _unified_steps(models: Models, batch: Batch, losses: FloatArray, course: _Course) -> None:
    """As ``_steps`` with Z = (G + P_n) W, whose scores are products of G + P_n with v = W u."""
    form, width = course.form, models.own.shape[1]
    seen = np.empty(width, dtype=np.float32)
    for place in range(len(batch.clients)):
        client, decay = batch.clients[place], batch.rates[place]
        vector, shared = models.own[client], models.shared[client]
        matrix = shared[len(shared) - width * width :].reshape(width, width)
        for one in range(width):
            seen[one] = form.scale * dot(matrix, one, models.own, client, 0)
        losses[client] = _move_tables(models, batch, place, seen, shared[:0], course)
        pulled = course.work.lines[PULL_U]  # the gradient for v; W's is u^T times it
        rate = decay * course.rates.generator
        seen[:] = 0
        for one in range(width):
            for other in range(width):
                seen[other] += form.scale * matrix[one, other] * pulled[one]
                matrix[one, other] -= rate * form.scale * pulled[one] * vector[other]
        for factor in range(width):
            vector[factor] -= decay * course.user_rate * seen[factor]


@compiled_loop
def _move_tables(
    models: Models, batch: Batch, place: int, vector: SingleArray, phi: SingleArray, course: _Course
) -> float:
    """A client's step except its own vector, whose gradient goes to ``lines[PULL_U]``; its loss."""
    form, rates, _, work = course
    client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
    first, last = models.indptr[client], models.indptr[client + 1]
    rated = slice(models.positives_indptr[client], models.positives_indptr[client + 1])
    part = Part(
        models.table[first:last],
        models.personal[first:last],
        models.positives[rated] - first,
        phi,
    )
    enhance(part, form, vector, work)
    loss = _judge(work.scores, batch.rows[begin:end] - first, batch.labels[begin:end])
    decay = batch.rates[place]
    sizes = Rates(decay * rates.tables, rates.decay, decay * rates.generator)
    return loss + settle(part, form, sizes, work)


@compiled_loop
def _judge(scores: SingleArray, items: IntArray, labels: SingleArray) -> float:
    """The mean loss of examples; ``scores[1]`` gets the gradient of the items' scores."""
    count = len(items)
    logits, errors = np.empty(count, dtype=np.float32), np.empty(count, dtype=np.float32)
    for example in range(count):
        logits[example] = scores[0, items[example]]
    tails(logits, errors, np.empty(count, dtype=np.int32))
    total = cross_entropy(logits, errors, labels)
    errors_of(logits, errors, labels, errors)
    share = np.float32(1) / np.float32(count)
    for example in range(count):
        scores[1, items[example]] += share * errors[example]
    return total / count


@compiled_loop
def _step(
    models: Models,
    batch: Batch,
    learning_rate: np.float32,
    item_rate: np.float32,
    losses: FloatArray,
) -> None:
    for place in range(len(batch.clients)):
        client, begin, end = batch.clients[place], batch.begin[place], batch.end[place]
        decay = batch.rates[place]
        losses[client] = descend(
            models.table,
            models.own[client],
            batch.rows[begin:end],
            batch.labels[begin:end],
            decay * learning_rate,
            decay * item_rate,
        )


@compiled_loop
def descend(
    table: SingleArray,
    vector: SingleArray,
    rows: IntArray,
    labels: SingleArray,
    rate: np.float32,
    item_rate: np.float32,
) -> float:
    """One step of a vector and of the rows of its examples; returns the mean loss before it."""
    width = len(vector)
    vectors = vector.reshape(1, width)
    share = np.float32(1) / np.float32(len(rows))
    slope = np.zeros(width, dtype=np.float32)
    logits = np.empty(len(rows), dtype=np.float32)
    errors = np.empty(len(rows), dtype=np.float32)
    for example in range(len(rows)):
        logits[example] = dot(table, rows[example], vectors, 0, 0)
    tails(logits, errors, np.empty(len(rows), dtype=np.int32))
    total = cross_entropy(logits, errors, labels)
    errors_of(logits, errors, labels, errors)
    for example in range(len(rows)):
        errors[example] *= share
        for k in range(width):
            slope[k] += errors[example] * table[rows[example], k]
    for example in range(len(rows)):
        step = item_rate * errors[example]
        for k in range(width):
            table[rows[example], k] -= step * vector[k]
    for k in range(width):
        vector[k] -= rate * slope[k]
    return total / len(rows)
