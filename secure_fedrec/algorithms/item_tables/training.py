"""Local training of the family: epochs, batches, step sizes, early stop, client beside client."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    Models,
    SingleArray,
)
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.errors import DivergedError

_FEW = 4  # with so few clients a thread is not worth its start
_LEAST_RATE = 1e-30  # too small to change a weight, but methods may divide by it


class LocalExamples(NamedTuple):
    """The examples of a batch of clients in a round.

    Attributes:
        indptr: int64[B + 1].
        rows: int64[N], row of every example in ``Models.table``; shuffled in training.
        labels: float32[N], likewise.
        keys: uint64[B], from which the order of each client's examples is derived.
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
        method: the method to train.
        models: models of the clients.
        examples: theirs.
        clients: int64[B], their numbers, for error messages.
        round_: number of the round, from 1.
        threads: most threads; how many there are changes nothing.

    Returns:
        float64[B], the mean loss of each client's steps.

    Raises:
        DivergedError: a client's loss is not a number; names round and client.
    """
    places = np.arange(len(clients))
    losses = np.zeros(len(clients))
    config = method.config.local

    def group(chosen: IntArray) -> IntArray:
        # Each client of a dense method fills the cache, so they are trained one after the other.
        turns = np.split(chosen, len(chosen)) if method.dense else [chosen]
        course = _Course.of(len(losses), len(turns[0]), config.decay ** (round_ - 1))
        bad = [_train_some(method, models, examples, turn, course, losses) for turn in turns]
        losses[chosen] = course.last[chosen]
        return np.array([place for place in bad if place >= 0], dtype=np.int64)

    parts = max(1, min(threads, len(places) // (1 if method.dense else _FEW)))
    bad = _side_by_side(group, [places[part::parts] for part in range(parts)])
    if len(bad):
        raise diverged(method, round_, int(clients[bad.min()]), "loss")
    return losses


def diverged(method: ItemTableMethod, round_: int, client: int, what: str) -> DivergedError:
    """The error for a client whose training overflowed."""
    problem = (
        f"round {round_}: the {what} of client {client} is not a number; "
        "lower a step size, or a factor of the loss"
    )
    return DivergedError("algorithm", method.name, problem)


def _side_by_side(work: Callable[[IntArray], IntArray], parts: Sequence[IntArray]) -> IntArray:
    if len(parts) == 1:
        return work(parts[0])
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate([*pool.map(work, parts)])


class _Plan(NamedTuple):
    """The course of a round's training, by ``ItemTableTraining``."""

    epochs: int
    size: int
    batch_decay: float
    tolerance: float


_EPOCH, _FIRST, _ACTIVE, _TAKING, _BAD = range(5)


class _Course(NamedTuple):
    """The progress of clients in the training of a round; k of them train at a time.

    Args:
        progress: int64[5], the epoch, from -1; the first example of the step within an epoch; how
            many clients train, and how many take the step; whose loss is not a number, or -1.
        active: int64[k], places of the clients that train, ascending.
        taking: int64[k], of those that take the step; ``Batch.clients``, and more behind.
        begin: int64[k], likewise.
        end: int64[k], likewise.
        rates: float32[k], likewise.
        factors: float64[B] by place, on step sizes.
        totals: float64[B], sums of losses.
        last: float64[B], mean loss as it was after the last epoch.
    """

    progress: IntArray
    active: IntArray
    taking: IntArray
    begin: IntArray
    end: IntArray
    rates: SingleArray
    factors: FloatArray
    totals: FloatArray
    last: FloatArray

    @classmethod
    def of(cls, size: int, turn: int, factor: float) -> "_Course":
        """For ``size`` clients, at most ``turn`` at a time, with the initial ``factor``."""
        return cls(
            progress=np.empty(5, dtype=np.int64),
            rates=np.empty(turn, dtype=np.float32),
            factors=np.full(size, factor),
            totals=np.zeros(size),
            last=np.zeros(size),
            **{
                name: np.empty(turn, dtype=np.int64)
                for name in ("active", "taking", "begin", "end")
            },
        )


def _train_some(
    method: ItemTableMethod,
    models: Models,
    examples: LocalExamples,
    places: IntArray,
    course: _Course,
    losses: FloatArray,
) -> int:
    """Train the clients in some places; the place of one whose loss is not a number, else -1."""
    course.active[: len(places)] = places
    course.progress[:] = (-1, 0, len(places), 0, -1)
    config = method.config.local
    plan = _Plan(config.epochs, config.batch_size, config.batch_decay, config.tolerance)
    while taking := _advance(course, plan, examples, losses):
        batch = Batch(
            clients=course.taking[:taking],
            begin=course.begin[:taking],
            end=course.end[:taking],
            rows=examples.rows,
            labels=examples.labels,
            rates=course.rates[:taking],
        )
        method.step(models, batch, losses)
    return int(course.progress[_BAD])


@compiled_loop
def _advance(course: _Course, plan: _Plan, examples: LocalExamples, losses: FloatArray) -> int:
    """Record a step and prepare the next; returns how many clients take it, 0 at the end."""
    progress, taking, size, indptr = course.progress, course.taking, plan.size, examples.indptr
    first, count = progress[_FIRST] + size, 0
    for turn in range(progress[_TAKING]):
        place = taking[turn]
        course.totals[place] += losses[place] * (course.end[turn] - course.begin[turn])
        course.factors[place] *= plan.batch_decay
        if indptr[place] + first < indptr[place + 1]:
            taking[count] = place
            count += 1
    if count == 0:
        first, count = 0, _next_epoch(course, plan, indptr)
        for turn in range(count):
            taking[turn] = course.active[turn]
            if indptr[taking[turn] + 1] - indptr[taking[turn]] > size:
                shuffle(examples, taking[turn], progress[_EPOCH])
    for turn in range(count):
        place = taking[turn]
        course.begin[turn] = indptr[place] + first
        course.end[turn] = min(indptr[place] + first + size, indptr[place + 1])
        course.rates[turn] = max(course.factors[place], _LEAST_RATE)
    progress[_FIRST], progress[_TAKING] = first, count
    return count


@compiled_loop
def _next_epoch(course: _Course, plan: _Plan, indptr: IntArray) -> int:
    """Leave out clients that have converged; returns how many continue."""
    progress, active, last, count = course.progress, course.active, course.last, 0
    for turn in range(progress[_ACTIVE]):
        place = active[turn]
        examples = indptr[place + 1] - indptr[place]
        if examples == 0:
            continue
        if progress[_EPOCH] >= 0:
            mean = course.totals[place] / ((progress[_EPOCH] + 1) * examples)
            if not np.isfinite(mean):
                progress[_BAD] = place
                return 0
            settled = abs(mean - last[place]) < plan.tolerance * abs(last[place])
            last[place] = mean
            if settled and progress[_EPOCH] > 0:
                continue
        active[count] = place
        count += 1
    progress[_EPOCH] += 1
    progress[_ACTIVE] = count
    return count if progress[_EPOCH] < plan.epochs else 0


@compiled_loop
def shuffle(examples: LocalExamples, place: int, epoch: int) -> None:
    """Fisher and Yates's shuffle of the examples of one client, in place.

    Numbers come from SplitMix64 (Steele, Lea and Flood 2014), started from the client's key of the
    round: every order is as likely as another to within n / 2^32.
    """
    rows, labels, begin = examples.rows, examples.labels, examples.indptr[place]
    state = examples.keys[place] + np.uint64(epoch) * np.uint64(0xD1342543DE82EF95)
    for left in range(examples.indptr[place + 1] - begin, 1, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        word = state
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
        rank = ((word >> np.uint64(32)) * np.uint64(left)) >> np.uint64(32)
        one, other = begin + left - 1, begin + np.int64(rank)
        rows[one], rows[other] = rows[other], rows[one]
        labels[one], labels[other] = labels[other], labels[one]


@compiled_loop
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


@compiled_loop
def first_unknown(rows: SingleArray) -> int:
    """The first row with a value that is not a finite number; -1 where there is none."""
    for row in range(len(rows)):
        fits: Any = True
        for factor in range(rows.shape[1]):
            fits &= abs(rows[row, factor]) < np.inf
        if not fits:
            return row
    return -1


@compiled_loop
def changes(rows: SingleArray, table: SingleArray, items: IndexArray, moved: FloatArray) -> bool:
    """``moved[n] = rows[n] - table[items[n]]``, exactly; False if one is not a finite number."""
    fits: Any = True
    for row in range(len(items)):
        item = items[row]
        for factor in range(table.shape[1]):
            change = np.float64(rows[row, factor]) - np.float64(table[item, factor])
            fits &= abs(change) < np.inf
            moved[row, factor] = change
    return bool(fits)
