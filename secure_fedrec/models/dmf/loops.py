"""Inner loops of DMF: an epoch of batches with closed-form gradients, and scores.

One example takes some 20,000 operations, all on rows of a few dozen numbers, and a batch touches a
few dozen rows of large tables. These loops walk a batch once and update only the rows that it
touched; the layers take the steps of Adam one by one. Sums run in a fixed order, so the same
examples give the same bits.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.models.dmf.adam import FIRST_DECAY, SECOND_DECAY, course_of, step_of
from secure_fedrec.models.dmf.arrays import Course, Descent, Examples, Moving, Pace, Parts, Targets
from secure_fedrec.models.dmf.similarity import bring_up, pull_items

_LANES = 4  # 16 random bits decide a hidden unit, so a word decides four


@compiled_loop
def _mixed(number: np.uint64) -> np.uint64:
    """SplitMix64 of consecutive numbers; dropout is not secret, so it needs no cipher."""
    word = number * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled_loop
def _draw_kept(kept: BoolArray, key: int, example: int, limit: int) -> None:
    """Which hidden units an example keeps: those whose 16 bits are not below ``limit``."""
    words = (len(kept) + _LANES - 1) // _LANES
    for number in range(words):
        word = _mixed(np.uint64(key) + np.uint64(example * words + number))
        for lane in range(min(_LANES, len(kept) - _LANES * number)):
            bits = (word >> np.uint64(16 * lane)) & np.uint64(0xFFFF)
            kept[_LANES * number + lane] = bits >= np.uint64(limit)


@compiled_loop
def _hidden(inputs: FloatArray, columns: FloatArray, biases: FloatArray, found: FloatArray) -> None:
    """``found = columns^T inputs + biases``, four inputs at a time."""
    found[:] = biases
    for place in range(0, len(inputs), 4):
        one, two = inputs[place], inputs[place + 1]
        three, four = inputs[place + 2], inputs[place + 3]
        for unit in range(len(found)):
            found[unit] += (
                one * columns[place, unit]
                + two * columns[place + 1, unit]
                + three * columns[place + 2, unit]
                + four * columns[place + 3, unit]
            )


@compiled_loop
def _learn(
    parts: Parts,
    slopes: Parts,
    columns: FloatArray,
    inputs: FloatArray,
    kept: BoolArray,
    label: float,
    scale: float,
    share: float,
    slope: FloatArray,
    hidden: FloatArray,
) -> float:
    """Squared error of one example; adds its derivatives, those of the inputs into ``slope``."""
    _hidden(inputs, columns, parts.biases, hidden)
    units = len(hidden)
    logit = parts.output[units]
    for unit in range(units):
        hidden[unit] = hidden[unit] * scale if kept[unit] and hidden[unit] > 0.0 else 0.0
        logit += hidden[unit] * parts.output[unit]
    found = 1.0 / (1.0 + math.exp(-logit))
    error = found - label
    pull = 2.0 * share * error * found * (1.0 - found)
    slope[:] = 0.0
    slopes.output[units] += pull
    for unit in range(units):
        if hidden[unit] > 0.0:
            slopes.output[unit] += pull * hidden[unit]
            back = pull * parts.output[unit] * scale
            slopes.biases[unit] += back
            for place in range(len(inputs)):
                slopes.weights[unit, place] += back * inputs[place]
                slope[place] += back * parts.weights[unit, place]
    return error * error


@compiled_loop
def _see_rows(
    model: Moving,
    examples: Examples,
    start: int,
    stop: int,
    n_users: int,
    slots: IntArray,
    rows: IntArray,
    seen: IntArray,
    step: int,
    course: Course,
    targets: Targets,
) -> tuple[int, float]:
    """Number a batch's rows, and update each; returns their number and losses."""
    used, losses = 0, 0.0
    for place in range(start, stop):
        user, item = np.int64(examples.users[place]), np.int64(examples.items[place])
        for row in (user, n_users + item):
            if slots[row] < 0:
                slots[row], rows[used] = used, row
                used += 1
                losses += bring_up(
                    model, targets, int(row), int(row) - n_users, int(seen[row]), step, course
                )
    return used, losses


@compiled_loop
def _move_rows(model: Moving, slopes: FloatArray, rows: IntArray, pace: Pace) -> None:
    """A step of a batch's rows, whose slopes are in their slots and are then reset to 0."""
    values, first, second = model.parts.vectors, model.first.vectors, model.second.vectors
    for slot in range(len(rows)):
        row = rows[slot]
        step_of(values[row], slopes[slot], first[row], second[row], pace)
        slopes[slot] = 0.0


@compiled_loop
def _move_layers(model: Moving, slopes: Parts, columns: FloatArray, pace: Pace) -> None:
    """A step of all layers; ``columns`` follows the weights, and slopes are reset to 0."""
    parts, first, second = model
    for unit in range(len(parts.biases)):
        own, slope = parts.weights[unit], slopes.weights[unit]
        step_of(own, slope, first.weights[unit], second.weights[unit], pace)
        slopes.weights[unit] = 0.0
        for place in range(parts.weights.shape[1]):
            columns[place, unit] = parts.weights[unit, place]
    step_of(parts.biases, slopes.biases, first.biases, second.biases, pace)
    step_of(parts.output, slopes.output, first.output, second.output, pace)
    slopes.biases[:] = 0.0
    slopes.output[:] = 0.0


@compiled_loop
def _learn_batch(
    parts: Parts,
    slopes: Parts,
    columns: FloatArray,
    examples: Examples,
    start: int,
    stop: int,
    n_users: int,
    slots: IntArray,
    descent: Descent,
) -> float:
    """Squared errors of a batch; adds their derivatives, those of rows into the rows' slots."""
    units, width = len(parts.biases), parts.vectors.shape[1]
    inputs, slope, hidden = np.empty(2 * width), np.empty(2 * width), np.empty(units)
    kept = np.ones(units, dtype=np.bool_)
    limit, scale = round(descent.dropout * 65536), 1.0 / (1.0 - descent.dropout)
    errors = 0.0
    for place in range(start, stop):
        user = np.int64(examples.users[place])
        item = np.int64(n_users + examples.items[place])
        inputs[:width], inputs[width:] = parts.vectors[user], parts.vectors[item]
        if limit > 0:
            _draw_kept(kept, descent.key, place, limit)
        errors += _learn(
            parts, slopes, columns, inputs, kept, examples.labels[place], scale,
            1.0 / (stop - start), slope, hidden,
        )  # fmt: skip
        for row, begin in ((user, 0), (item, width)):
            for factor in range(width):
                slopes.vectors[slots[row], factor] += slope[begin + factor]
    return errors


@compiled_loop
def _no_slopes(parts: Parts, rows: int) -> Parts:
    """Arrays for derivatives of so many rows, and of the layers."""
    units, width = len(parts.biases), parts.vectors.shape[1]
    return Parts(
        np.zeros((rows, width)),
        np.zeros_like(parts.weights),
        np.zeros(units),
        np.zeros(units + 1),
    )


@compiled_loop
def run_epoch(
    model: Moving,
    powers: FloatArray,
    n_users: int,
    examples: Examples,
    targets: Targets,
    descent: Descent,
) -> tuple[float, float]:
    """Visit all examples once, in order; parameters, moments and powers are changed in place.

    Returns:
        (sum of squared errors, sum of the embedding losses over the batches).
    """
    parts = model.parts
    slopes, columns = _no_slopes(parts, 2 * descent.batch_size), parts.weights.T.copy()
    slots = np.full(len(parts.vectors), -1, dtype=np.int64)
    rows = np.empty(2 * descent.batch_size, dtype=np.int64)
    errors, distances, step = 0.0, 0.0, 0
    steps = (len(examples.labels) + descent.batch_size - 1) // descent.batch_size
    course = course_of(powers, descent.learning_rate, steps)
    seen = np.zeros(len(parts.vectors), dtype=np.int64)  # number of steps of a row
    for start in range(0, len(examples.labels), descent.batch_size):
        stop = min(start + descent.batch_size, len(examples.labels))
        used, losses = _see_rows(
            model, examples, start, stop, n_users, slots, rows, seen, step, course, targets
        )
        step += 1
        errors += _learn_batch(
            parts, slopes, columns, examples, start, stop, n_users, slots, descent
        )
        distances += losses + pull_items(parts, targets, n_users, rows[:used], slopes.vectors)
        powers[0] *= FIRST_DECAY
        powers[1] *= SECOND_DECAY
        pace = Pace(course.rates[step], course.settled[step])
        _move_rows(model, slopes.vectors, rows[:used], pace)
        for row in rows[:used]:
            slots[row], seen[row] = -1, step
        _move_layers(model, slopes, columns, pace)
    for row in range(len(seen)):
        distances += bring_up(model, targets, row, row - n_users, seen[row], step, course)
    return errors, distances


@compiled_loop
def score_pairs(users: FloatArray, items: FloatArray, parts: Parts, found: FloatArray) -> None:
    """Scores of all users for all items; each half of the hidden layer is computed once."""
    weights, biases, output = parts.weights, parts.biases, parts.output
    units, width = len(biases), users.shape[1]
    halves = np.empty((len(items), units))
    for item in range(len(items)):
        for unit in range(units):
            total = biases[unit]
            for place in range(width):
                total += weights[unit, width + place] * items[item, place]
            halves[item, unit] = total
    own = np.empty(units)
    for user in range(len(users)):
        for unit in range(units):
            total = 0.0
            for place in range(width):
                total += weights[unit, place] * users[user, place]
            own[unit] = total
        for item in range(len(items)):
            logit = output[units]
            for unit in range(units):
                logit += max(own[unit] + halves[item, unit], 0.0) * output[unit]
            found[user, item] = 1.0 / (1.0 + math.exp(-logit))


@compiled_loop
def place_negatives(
    indptr: IntArray,
    positions: IntArray,
    ranks: IntArray,
    per_positive: int,
    found: IntArray,
) -> None:
    """Converts ranks among the items without an interaction of a user to positions in its pool.

    Args:
        indptr: int64[U + 1], positives of each user.
        positions: int64[N], of the positives in the pool of their user, ascending within it.
        ranks: int64[per_positive * N].
        per_positive: ranks of each positive, those of one positive side by side.
        found: int64[per_positive * N].
    """
    for user in range(len(indptr) - 1):
        begin, end = indptr[user], indptr[user + 1]
        for place in range(begin * per_positive, end * per_positive):
            low, high = begin, end  # positives at or below this rank
            while low < high:
                middle = (low + high) // 2
                if positions[middle] - (middle - begin) <= ranks[place]:
                    low = middle + 1
                else:
                    high = middle
            found[place] = ranks[place] + (low - begin)


@compiled_loop
def unit_vectors(vectors: FloatArray, found: FloatArray) -> None:
    """Every vector at length 1; one of length 0 stays."""
    for row in range(len(vectors)):
        square = 0.0
        for place in range(vectors.shape[1]):
            square += vectors[row, place] * vectors[row, place]
        length = math.sqrt(square) if square > 0.0 else 1.0
        for place in range(vectors.shape[1]):
            found[row, place] = vectors[row, place] / length
