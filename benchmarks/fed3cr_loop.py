"""Fed3CR as most people would simulate it: a Python loop over clients, PyTorch inside.

One client's local training is autograd on the loss as the paper words it, SGD with a group of
parameters per rate and ``ExponentialLR``. It takes the very examples that the package draws, in the
same batches, stops by the same rule, and ends near the same numbers: both work in single precision,
and only the order of sums differs (``largest_difference``).
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.item_tables.fed3cr import Fed3CR
from secure_fedrec.algorithms.item_tables.fed3cr_generator import generator_sizes
from secure_fedrec.algorithms.item_tables.local import Models
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.algorithms.item_tables.training import LocalExamples, shuffle
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault

LIMIT = 21.0
"""Seconds that a round on all of ml-100k may take the loop; slower, and it is no fair opponent."""
TOLERANCE = 2e-3
"""Largest difference of a value after a round, in units of the largest change of its array."""


@dataclass(eq=False)
class Client:
    """One client's model in PyTorch.

    Args:
        table, personal, vector: G, P_n and u.
        layers: weights (inputs x outputs) and biases of phi, one after the other.
    """

    table: torch.Tensor
    personal: torch.Tensor
    vector: torch.Tensor
    layers: list[torch.Tensor]

    @classmethod
    def of(cls, method: Fed3CR, models: Models, client: int) -> "Client":
        """A copy of the client's part."""
        rows = slice(models.indptr[client], models.indptr[client + 1])
        sizes = generator_sizes(
            method.config.rank,
            layers=method.enhancement.layers,
            factor=method.enhancement.factor,
            scale=method.enhancement.scale,
            reads=method.enhancement.reads,
        )
        layers, first = [], 0
        ends = zip(sizes[:-1].tolist(), sizes[1:].tolist(), strict=True)
        for inputs, outputs in ends if method.enhancement.adaptive else ():
            for shape in ((inputs, outputs), (outputs,)):
                last = first + int(np.prod(shape))
                layers.append(_parameter(models.shared[client, first:last].reshape(shape)))
                first = last
        return cls(
            _parameter(models.table[rows]),
            _parameter(models.personal[rows]),
            _parameter(models.own[client]),
            layers,
        )

    def transfer(self, scale: float, common: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """W_n, from the prototypes g and p, or from nothing."""
        values = torch.cat([common, own])[None, : len(self.layers[0])]
        for weights, biases in zip(self.layers[::2], self.layers[1::2], strict=True):
            values = torch.addmm(biases, values, weights)
            if biases is not self.layers[-1]:
                values = torch.relu(values)
        return scale * values.view(self.vector.numel(), -1)


def _parameter(values: Any) -> torch.Tensor:
    return torch.from_numpy(values.copy()).requires_grad_()


def loss_of(
    client: Client,
    method: Fed3CR,
    share: torch.Tensor,
    rows: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Batch loss + alpha L_con + beta L_com.

    ``share`` (float32[m]) is one over the number of rated items there, and 0 elsewhere.
    """
    added = method.enhancement
    common, personal = client.table, client.personal
    centre, own_centre = share @ common, share @ personal
    if added.adaptive:
        scale = float(added.factor if added.scale == "matrix" else 1)
        transfer = client.transfer(scale, centre, own_centre)
        common, centre = common @ transfer, centre @ transfer
        personal = personal @ transfer if added.unified else personal
    scores = ((common + personal) @ client.vector)[rows]
    loss = functional.binary_cross_entropy_with_logits(scores, labels)
    squares, own_squares = common.square(), personal.square()
    if added.consistency:
        like = (common @ centre) * torch.rsqrt(squares.sum(1) * centre.dot(centre))
        own = (personal @ own_centre) * torch.rsqrt(own_squares.sum(1) * own_centre.dot(own_centre))
        cross = torch.softmax(own, 0).dot(torch.log_softmax(like, 0))
        loss = loss - added.consistency * cross
    if added.complementarity:
        products = (common.T @ personal).square()
        lengths = torch.outer(squares.sum(0), own_squares.sum(0))
        loss = loss + added.complementarity * (products / lengths).mean()
    return loss


def train_client(
    method: Fed3CR, models: Models, examples: LocalExamples, place: int, round_: int
) -> tuple[Client, float]:
    """One client's round; its model, and its mean loss."""
    config: Any = method.below.config
    local, added = config.local, method.enhancement
    client = Client.of(method, models, place)
    decay = local.decay ** (round_ - 1)
    groups = [
        {
            "params": [client.table, client.personal],
            "lr": decay * config.item_learning_rate,
            "weight_decay": added.weight_decay,
        },
        {"params": [client.vector], "lr": decay * config.learning_rate},
    ]
    if added.adaptive:
        groups.append({"params": client.layers, "lr": decay * added.generator_rate})
    optimizer = torch.optim.SGD(groups)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, local.batch_decay)
    rated = slice(models.positives_indptr[place], models.positives_indptr[place + 1])
    first = models.indptr[place]
    share = torch.zeros(len(client.table))
    share[models.positives[rated] - first] = 1 / (rated.stop - rated.start)
    own = slice(examples.indptr[place], examples.indptr[place + 1])
    total, seen, last = 0.0, 0, 0.0
    for epoch in range(local.epochs):
        if own.stop - own.start > local.batch_size:
            shuffle(examples, place, epoch)
        rows = torch.from_numpy(examples.rows[own] - first)
        labels = torch.from_numpy(examples.labels[own])
        size = local.batch_size
        batches = zip(torch.split(rows, size), torch.split(labels, size), strict=True)
        for some, wanted in batches:
            optimizer.zero_grad()
            loss = loss_of(client, method, share, some, wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += loss.item() * len(some)
            seen += len(some)
        mean = total / seen
        if epoch and abs(mean - last) < local.tolerance * abs(last):
            last = mean
            break
        last = mean
    return client, last


def compare(
    algorithm: ItemTables,
    clients: IntArray,
    public: PublicState,
    vault: Vault,
    streams: Streams,
    *,
    batch: int = 8,
    repeats: int = 3,
) -> dict[str, float]:
    """Time one round of the loop and of the package, in turn, from the same state and examples.

    Both sum the changes of the table and of phi; neither commits. The loop is given its examples,
    which the package draws within its time.

    Returns:
        ``seconds`` and ``loop_seconds``, the least of the repeats; ``speedup_vs_loop_fed3cr``, the
        median of their ratios; and ``largest_difference``, that of the summed changes (see
        ``TOLERANCE``).
    """
    state = (public, vault, streams)
    for side in (_ours, _loop):  # what is compiled or loaded at first is not timed
        side(algorithm, clients[:1], *state)
    timings, apart = [], 0.0
    parts = np.split(clients, range(batch, len(clients), batch))
    for _ in range(repeats):
        spent = np.zeros(2)
        sums: list[dict[str, FloatArray]] = [{}, {}]
        for some in parts:
            for place, side in enumerate((_ours, _loop)):
                seconds, changes = side(algorithm, some, *state)
                spent[place] += seconds
                for name, change in changes.items():
                    sums[place][name] = sums[place].get(name, 0) + change
        timings.append(spent)
        for name, looped in sums[1].items():
            apart = max(apart, np.abs(sums[0][name] - looped).max() / np.abs(looped).max())
    ours, loop = np.array(timings).T
    return {
        "seconds": float(ours.min()),
        "loop_seconds": float(loop.min()),
        "speedup_vs_loop_fed3cr": float(np.median(loop / ours)),
        "largest_difference": float(apart),
    }


def _ours(
    algorithm: ItemTables, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
) -> tuple[float, dict[str, FloatArray]]:
    """Seconds of the package, and the summed changes by block."""
    start = time.process_time()
    blocks = algorithm.client_step(clients, public, vault, streams).upload.blocks
    sums = {}
    for name in ("table", "parameters"):
        if name in blocks:
            values = blocks[name].values
            assert values is not None
            sums[name] = values.reshape(len(clients), -1).sum(axis=0)
    return time.process_time() - start, sums


def _loop(
    algorithm: ItemTables, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
) -> tuple[float, dict[str, FloatArray]]:
    """Seconds of the loop, and the summed changes by block."""
    method = algorithm.method
    assert isinstance(method, Fed3CR)
    sums = {"table": np.zeros(public.table.size)}
    if method.enhancement.adaptive:
        sums["parameters"] = np.zeros(public.extras["parameters"].size)
    table = public.table.astype(np.float32)
    models, examples = algorithm._prepared(clients, public, vault, streams, table)
    start = time.process_time()
    for place in range(len(clients)):
        client, _ = train_client(method, models, examples, place, public.round + 1)
        with torch.no_grad():
            sums["table"] += (client.table.numpy() - table).ravel()
            if method.enhancement.adaptive:
                after = torch.cat([layer.reshape(-1) for layer in client.layers])
                sums["parameters"] += after.numpy() - models.shared[place]
    return time.process_time() - start, sums
