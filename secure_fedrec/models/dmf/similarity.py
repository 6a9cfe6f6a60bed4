"""The embedding-similarity loss of DMF's item vectors (FedDMF, eq. 4), and its steps.

    beta / |P| sum over pairs of P of max(1 - cos(q, target), m)

As printed P are all pairs, so every common item has a slope in every step, whatever the batch is.
Targets are constants and the loss is a sum over items, so an item that a batch does not touch moves
independently: its steps are made when it is next used, one after the other. Within the margin the
slope is 0. What Adam remembers then moves an item along a straight line, and vectors within an
angle of a target form a convex cone: if the end of the line is within the margin, the whole line
is, and the item is moved there at once. This neglects how the effect of epsilon changes between
steps, so it is only used for the last 1e-5 of the distance.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop, dividing_loop
from secure_fedrec.models.dmf.adam import EPSILON, FIRST_DECAY, SECOND_DECAY, catch_up
from secure_fedrec.models.dmf.arrays import Course, Moving, Pace, Parts, Targets

_FORGOTTEN = 1e-30  # smaller means of slopes are dropped: denormals are slow
_WIDEST = 1.0  # largest margin whose vectors form a convex cone
_SHORT = 1e-5  # a remaining distance this short is set to 0
_FADING = math.log(FIRST_DECAY)  # decay per step of what Adam remembers


@compiled_loop
def _align(vector: FloatArray, target: FloatArray, weight: float, slope: FloatArray) -> float:
    """``1 - cos``, whose derivative times ``weight`` is added to ``slope``."""
    dot, square = 0.0, 0.0
    for place in range(len(vector)):
        dot += vector[place] * target[place]
        square += vector[place] * vector[place]
    if square == 0.0:
        return 1.0
    length = math.sqrt(square)
    cosine = dot / length
    for place in range(len(vector)):
        slope[place] -= weight * (target[place] - cosine * vector[place] / length) / length
    return 1.0 - cosine


@compiled_loop
def pull_items(
    parts: Parts, targets: Targets, n_users: int, rows: IntArray, slopes: FloatArray
) -> float:
    """Loss of the items among a batch's rows; adds its derivatives to ``slopes``, row by row.

    If P are not all pairs, they are those of these items: an estimate of the mean over all,
    weighted by how often batches contain an item.
    """
    pairs = len(targets.vectors)
    if not targets.everywhere:
        pairs = 0
        for row in rows:
            if row >= n_users:
                pairs += targets.indptr[row - n_users + 1] - targets.indptr[row - n_users]
    if pairs == 0:
        return 0.0
    total, own = 0.0, np.empty(parts.vectors.shape[1])
    weight = targets.strength / pairs
    for slot in range(len(rows)):
        item = rows[slot] - n_users
        if item < 0:
            continue
        vector = parts.vectors[rows[slot]]
        for place in range(targets.indptr[item], targets.indptr[item + 1]):
            target = targets.vectors[place]
            if not target.any():
                continue
            own[:] = 0.0
            distance = _align(vector, target, weight, own)
            total += weight * max(distance, targets.margin)
            if not distance <= targets.margin:  # NaN must reach the loss, where it is reported
                for factor in range(len(own)):
                    slopes[slot, factor] += own[factor]
    return total


@dividing_loop
def _dot(one: FloatArray, other: FloatArray) -> float:
    """Four parallel, independent sums."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(one) - len(one) % 4
    for place in range(0, whole, 4):
        a += one[place] * other[place]
        b += one[place + 1] * other[place + 1]
        c += one[place + 2] * other[place + 2]
        d += one[place + 3] * other[place + 3]
    for place in range(whole, len(one)):
        a += one[place] * other[place]
    return (a + b) + (c + d)


@dividing_loop
def _add(
    slope: FloatArray, one: float, vector: FloatArray, other: float, target: FloatArray
) -> None:
    """``slope += one vector - other target``."""
    for place in range(len(slope)):
        slope[place] += one * vector[place] - other * target[place]


@dividing_loop
def _slope_of(
    vector: FloatArray, pulling: FloatArray, weight: float, margin: float, slope: FloatArray
) -> tuple[float, bool]:
    """Loss of one item, and whether it has a slope, which is written to ``slope``."""
    total, pulled = 0.0, False
    for place in range(len(slope)):
        slope[place] = 0.0
    length = math.sqrt(_dot(vector, vector))
    if length == 0.0:
        return weight * max(1.0, margin) * len(pulling), False
    for place in range(len(pulling)):
        cosine = _dot(vector, pulling[place]) / length
        total += weight * max(1.0 - cosine, margin)
        if not 1.0 - cosine <= margin:
            pulled, scale = True, weight / length
            _add(slope, scale * cosine / length, vector, scale, pulling[place])
    return total, pulled


@dividing_loop
def _step(
    vector: FloatArray,
    slope: FloatArray,
    first: FloatArray,
    second: FloatArray,
    rate: float,
    settled: float,
) -> None:
    """``adam.step_of``, with tiny values set to 0."""
    for place in range(len(vector)):
        one = FIRST_DECAY * first[place] + (1.0 - FIRST_DECAY) * slope[place]
        two = SECOND_DECAY * second[place] + (1.0 - SECOND_DECAY) * slope[place] * slope[place]
        one = 0.0 if abs(one) < _FORGOTTEN else one
        first[place], second[place] = one, two
        vector[place] -= rate * one / (math.sqrt(two) / settled + EPSILON)


@dividing_loop
def _way(
    vector: FloatArray,
    first: FloatArray,
    second: FloatArray,
    pulling: FloatArray,
    margin: float,
    ahead: float,
    settled: float,
    end: FloatArray,
) -> float:
    """Distance that Adam's mean moves a vector, to an ``end``; infinity with a slope there."""
    way = 0.0
    for place in range(len(vector)):
        step = ahead * first[place] / (math.sqrt(second[place]) + EPSILON * settled)
        way, end[place] = max(way, abs(step)), vector[place] - step
    length = math.sqrt(_dot(end, end))
    for place in range(len(pulling)):
        if not _dot(end, pulling[place]) >= (1.0 - margin) * length:
            return math.inf
    return way


@compiled_loop
def bring_up(
    model: Moving,
    targets: Targets,
    row: int,
    item: int,
    before: int,
    now: int,
    course: Course,
) -> float:
    """Make a vector's missed steps; returns the loss of its pairs in these steps.

    Args:
        model: changed.
        targets: vectors that item vectors are pulled towards.
        row: row of the vector among those of users and items.
        item: the same among items; negative of a user.
        before: the last step that it has made.
        now: the step up to which it is updated.
        course: of the epoch.
    """
    if item < 0 or not targets.everywhere or targets.indptr[item] == targets.indptr[item + 1]:
        pace = Pace(course.rates[now], course.settled[now])
        catch_up(model, row, course.decays[now - before], pace)
        return 0.0
    vector = model.parts.vectors[row]
    first, second = model.first.vectors[row], model.second.vectors[row]
    slope, end, margin = np.empty(len(vector)), np.empty(len(vector)), targets.margin
    pulling, total = _not_nothing(targets, item), 0.0
    weight = targets.strength / len(targets.vectors)
    step, due = before, before
    while step < now:
        loss, pulled = _slope_of(vector, pulling, weight, margin, slope)
        if step >= due and not pulled and margin <= _WIDEST:
            last = (FIRST_DECAY / math.sqrt(SECOND_DECAY)) ** (now - step) * course.ahead[now]
            ahead, settled = course.ahead[step] - last, course.settled[step + 1]
            way = _way(vector, first, second, pulling, margin, ahead, settled, end)
            if way <= _SHORT:
                vector[:] = end
                first *= course.decays[now - step, 0]
                second *= course.decays[now - step, 1]
                return total + loss * (now - step)
            due = step + (10 if way == math.inf else math.ceil(math.log(_SHORT / way) / _FADING))
        step += 1
        total += loss
        _step(vector, slope, first, second, course.rates[step], course.settled[step])
    return total


@compiled_loop
def _not_nothing(targets: Targets, item: int) -> FloatArray:
    """float64[k, d], the targets of an item that are not 0."""
    begin, stop, count = targets.indptr[item], targets.indptr[item + 1], 0
    found = np.empty((stop - begin, targets.vectors.shape[1]))
    for place in range(begin, stop):
        if targets.vectors[place].any():
            found[count] = targets.vectors[place]
            count += 1
    return found[:count]
