"""Local training of the family: epochs, batches, step sizes, early stop, client beside client."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import sched_getaffinity
from typing import Any

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableTraining,
    Models,
    SingleArray,
)
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.core.compiled import released_loop
from secure_fedrec.errors import DivergedError

_FEW = 4  # clients that a thread of its own is not worth
_LEAST_RATE = 1e-30  # a step of this size moves nothing, and methods divide by it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalExamples:
    """What a batch of clients trains on in a round.

    Args:
        indptr: int64[B + 1].
        rows: int64[N], row of every example in ``Models.table``; shuffled in training.
        labels: float32[N], likewise.
        keys: uint64[B], what the order of each client's examples follows from.
    """

    indptr: IntArray
    rows: IntArray
    labels: SingleArray
    keys: WordArray


def train(
    method: ItemTableMethod,
    models: Models,
    examples: LocalExamples,
    *,
    clients: IntArray,
    round_: int,
    threads: int,
) -> FloatArray:
    """Train the clients' models in place.

    Args:
        method: what is trained.
        models: of the clients.
        examples: theirs.
        clients: int64[B], their numbers, for what is refused.
        round_: number of the round, from 1.
        threads: most threads; how many there are changes nothing.

    Returns:
        float64[B], the mean loss of each client's steps.

    Raises:
        DivergedError: a client's loss is no number; names round and client.
    """
    places = np.arange(len(clients))
    losses = np.zeros(len(clients))
    config = method.config.local

    def group(chosen: IntArray) -> IntArray:
        # A dense method's clients fill the cache each: one after the other.
        turns = np.split(chosen, len(chosen)) if method.dense else [chosen]
        each = [
            _train_some(method, models, examples, turn, config, round_, losses) for turn in turns
        ]
        return np.concatenate(each)

    parts = max(1, min(threads, len(places) // (1 if method.dense else _FEW)))
    bad = _side_by_side(group, [places[part::parts] for part in range(parts)])
    if len(bad):
        raise diverged(method, round_, int(clients[bad.min()]), "loss")
    return losses


def diverged(method: ItemTableMethod, round_: int, client: int, what: str) -> DivergedError:
    """What is raised where a client's training left the range of numbers."""
    problem = (
        f"round {round_}: the {what} of client {client} is no number; "
        "lower a step size, or a factor of the loss"
    )
    return DivergedError("algorithm", method.name, problem)


def usable_threads() -> int:
    """Processors that this process may use."""
    return len(sched_getaffinity(0))


def _side_by_side(work: Callable[[IntArray], IntArray], parts: Sequence[IntArray]) -> IntArray:
    if len(parts) == 1:
        return work(parts[0])
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate([*pool.map(work, parts)])


def _train_some(
    method: ItemTableMethod,
    models: Models,
    examples: LocalExamples,
    places: IntArray,
    config: ItemTableTraining,
    round_: int,
    losses: FloatArray,
) -> IntArray:
    """Train the clients in some places; the places of those whose loss is no number."""
    indptr, size = examples.indptr, config.batch_size
    counts, ends = np.diff(indptr), indptr[1:]
    rates = np.full(len(losses), config.decay ** (round_ - 1))
    totals, last = np.zeros_like(losses), np.zeros_like(losses)
    active = places[counts[places] > 0]
    for epoch in range(config.epochs):
        mixed = active[counts[active] > size]
        shuffle(indptr, mixed, examples.keys, epoch, examples.rows, examples.labels)
        taking, first = active, 0
        while len(taking):
            begin = indptr[taking] + first
            end = np.minimum(begin + size, ends[taking])
            batch = Batch(
                clients=taking,
                begin=begin,
                end=end,
                rows=examples.rows,
                labels=examples.labels,
                rates=np.maximum(rates[taking], _LEAST_RATE).astype(np.float32),
            )
            method.step(models, batch, losses)
            totals[taking] += losses[taking] * (end - begin)
            if config.batch_decay != 1:
                rates[taking] *= config.batch_decay
            first += size
            taking = taking[counts[taking] > first]
        mean = totals[active] / ((epoch + 1) * counts[active])
        if not np.isfinite(mean).all():
            bad: IntArray = active[~np.isfinite(mean)]
            return bad
        settled = np.abs(mean - last[active]) < config.tolerance * np.abs(last[active])
        last[active] = mean
        active = active[~settled] if epoch else active
        if not len(active):
            break
    losses[places] = last[places]
    return places[:0]


@released_loop
def shuffle(
    indptr: IntArray,
    places: IntArray,
    keys: WordArray,
    epoch: int,
    rows: IntArray,
    labels: SingleArray,
) -> None:
    """Fisher and Yates's shuffle of the examples of some clients, in place.

    Numbers come from SplitMix64 (Steele, Lea and Flood 2014), started from the client's key of the
    round: every order is as likely as another to within n / 2^32.
    """
    for place in places:
        state = keys[place] + np.uint64(epoch) * np.uint64(0xD1342543DE82EF95)
        begin = indptr[place]
        for left in range(indptr[place + 1] - begin, 1, -1):
            state += np.uint64(0x9E3779B97F4A7C15)
            word = state
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            rank = ((word >> np.uint64(32)) * np.uint64(left)) >> np.uint64(32)
            one, other = begin + left - 1, begin + np.int64(rank)
            rows[one], rows[other] = rows[other], rows[one]
            labels[one], labels[other] = labels[other], labels[one]


@released_loop
def number_rows(
    indptr: IntArray,
    items: IndexArray,
    n_items: int,
    dense: bool,
    counts: IntArray,
    own_items: IndexArray,
    rows: IntArray,
) -> int:
    """Number the rows that each client trains: those of its examples, or all of a dense method.

    Args:
        indptr: int64[B + 1], of the examples.
        items: int32[N], theirs.
        n_items: m.
        dense: whether it is all.
        counts: int64[B], rows of each client.
        own_items: int32[R], item of every row, client after client, ascending; long enough for all.
        rows: int64[N], row of every example.

    Returns:
        R.
    """
    number = np.full(n_items, -1, dtype=np.int64)
    total = 0
    for client in range(len(counts)):
        begin, end = indptr[client], indptr[client + 1]
        for place in range(begin, end):
            number[items[place]] = 0
        first = total
        for item in range(n_items):
            if dense or number[item] == 0:
                number[item] = total
                own_items[total] = item
                total += 1
        counts[client] = total - first
        for place in range(begin, end):
            rows[place] = number[items[place]]
        number[:] = -1
    return total


@released_loop
def gather(table: SingleArray, items: IndexArray, rows: SingleArray) -> None:
    """``rows[n] = table[items[n]]``."""
    for row in range(len(items)):
        item = items[row]
        for factor in range(table.shape[1]):
            rows[row, factor] = table[item, factor]


@released_loop
def changes(rows: SingleArray, table: SingleArray, items: IndexArray, moved: FloatArray) -> bool:
    """``moved[n] = rows[n] - table[items[n]]``, exactly; False if one is no finite number."""
    fits: Any = True
    for row in range(len(items)):
        item = items[row]
        for factor in range(table.shape[1]):
            change = np.float64(rows[row, factor]) - np.float64(table[item, factor])
            fits &= abs(change) < np.inf
            moved[row, factor] = change
    return bool(fits)
