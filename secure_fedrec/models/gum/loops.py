"""Inner loops of GUM: predictions, closed-form gradients of the squared error, optimiser steps.

GUM has a few thousand numbers per organisation and its batches a few dozen rows, so automatic
differentiation would spend its time on bookkeeping. These loops compute the derivatives directly,
pass over a batch once and touch only what its records use. They are equal to automatic
differentiation up to rounding, and the optimiser steps are those of ``torch.optim.Adam`` and
``torch.optim.SGD``.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.models.gum.arrays import (
    Descent,
    ItemAttributes,
    Link,
    Model,
    Parts,
    Records,
)

_FIRST_DECAY = 0.9  # beta_1, beta_2 and epsilon of Adam, as its paper and torch have them
_SECOND_DECAY = 0.999
_EPSILON = 1e-8


@compiled_loop
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@compiled_loop
def _relate(parts: Parts, items: ItemAttributes, item: int, related: FloatArray) -> None:
    """``related = a_v . RM``."""
    related[:] = 0.0
    for place in range(items.indptr[item], items.indptr[item + 1]):
        attribute = items.attributes[place]
        for other in range(len(related)):
            related[other] += parts.relation[attribute, other]


@compiled_loop
def _represent(
    embedding: FloatArray, related: FloatArray, knowledge: FloatArray, bent: bool, found: FloatArray
) -> None:
    """``found = (embedding * related) . knowledge`` (eq. 4, 5), through a sigmoid if ``bent``."""
    found[:] = 0.0
    for attribute in range(len(related)):
        weight = embedding[attribute] * related[attribute]
        for factor in range(len(found)):
            found[factor] += weight * knowledge[attribute, factor]
    if bent:
        for factor in range(len(found)):
            found[factor] = _sigmoid(found[factor])


@compiled_loop
def _distance(user: FloatArray, item: FloatArray, hidden: FloatArray) -> float:
    """``F = (R_u - R_v) . HM`` (eq. 6, 7)."""
    total = 0.0
    for factor in range(len(hidden)):
        total += (user[factor] - item[factor]) * hidden[factor]
    return total


@compiled_loop
def _mix(parts: Parts, link: Link, item: int, distance: float) -> float:
    """F mixed with the item's slip and guess, where the model has them."""
    if not link.slip_and_guess:
        return distance
    slip, guess = _sigmoid(parts.slip[item] - 1.0), _sigmoid(parts.guess[item] - 1.0)
    return (1.0 - slip) * distance + guess * (1.0 - distance)


@compiled_loop
def predict_pairs(
    model: Model, user_numbers: IntArray, item_numbers: IntArray, found: FloatArray
) -> None:
    """Predictions of (user, item) pairs."""
    parts, items, link = model
    related = np.empty(parts.relation.shape[0])
    user_side, item_side = np.empty(len(parts.hidden)), np.empty(len(parts.hidden))
    for row in range(len(user_numbers)):
        user, item = user_numbers[row], item_numbers[row]
        _relate(parts, items, item, related)
        own, other = parts.user_embeddings[user], parts.item_embeddings[item]
        _represent(own, related, parts.knowledge_user, link.bent, user_side)
        _represent(other, related, parts.knowledge_item, link.bent, item_side)
        mixed = _mix(parts, link, item, _distance(user_side, item_side, parts.hidden))
        found[row] = link.scale * _sigmoid(mixed) if link.sigmoid else mixed


@compiled_loop
def _push_back(
    embedding: FloatArray,
    related: FloatArray,
    knowledge: FloatArray,
    slopes: FloatArray,
    embedding_slopes: FloatArray,
    related_slopes: FloatArray,
    knowledge_slopes: FloatArray,
) -> None:
    """Derivatives of ``(embedding * related) . knowledge`` along ``slopes``, added up."""
    for attribute in range(len(related)):
        weight = embedding[attribute] * related[attribute]
        along = 0.0
        for factor in range(len(slopes)):
            along += knowledge[attribute, factor] * slopes[factor]
            knowledge_slopes[attribute, factor] += weight * slopes[factor]
        embedding_slopes[attribute] += related[attribute] * along
        related_slopes[attribute] += embedding[attribute] * along


@compiled_loop
def _slope_at(
    model: Model, gradient: Parts, item: int, distance: float, score: float, weight: float
) -> float:
    """Derivative of ``weight (prediction - score)^2`` by F; adds those by slip and guess."""
    parts, link = model.parts, model.link
    mixed = _mix(parts, link, item, distance)
    if link.sigmoid:
        share = _sigmoid(mixed)
        slope = 2.0 * weight * (link.scale * share - score) * link.scale * share * (1.0 - share)
    else:
        slope = 2.0 * weight * (mixed - score)
    if link.slip_and_guess:
        slip, guess = _sigmoid(parts.slip[item] - 1.0), _sigmoid(parts.guess[item] - 1.0)
        gradient.slip[item] -= slope * distance * slip * (1.0 - slip)
        gradient.guess[item] += slope * (1.0 - distance) * guess * (1.0 - guess)
        slope *= 1.0 - slip - guess
    return slope


@compiled_loop
def add_gradient(
    model: Model, records: Records, rows: IntArray, gradient: Parts, moving: BoolArray
) -> None:
    """Add the gradient of the mean squared error over ``rows``; mark the embeddings it reaches."""
    parts, items, link = model
    n_factors, n_users = len(parts.hidden), len(parts.user_embeddings)
    related = np.empty(parts.relation.shape[0])
    related_slopes = np.empty(len(related))
    user_side, item_side = np.empty(n_factors), np.empty(n_factors)
    user_slopes, item_slopes = np.empty(n_factors), np.empty(n_factors)
    weight = 1.0 / len(rows)
    for row in rows:
        user, item = records.users[row], records.items[row]
        own, other = parts.user_embeddings[user], parts.item_embeddings[item]
        moving[user] = True
        moving[n_users + item] = True
        _relate(parts, items, item, related)
        _represent(own, related, parts.knowledge_user, link.bent, user_side)
        _represent(other, related, parts.knowledge_item, link.bent, item_side)
        distance = _distance(user_side, item_side, parts.hidden)
        slope = _slope_at(model, gradient, item, distance, records.scores[row], weight)
        for factor in range(n_factors):
            one, two = user_side[factor], item_side[factor]
            gradient.hidden[factor] += slope * (one - two)
            user_slopes[factor] = slope * parts.hidden[factor]
            item_slopes[factor] = -user_slopes[factor]
            if link.bent:
                user_slopes[factor] *= one * (1.0 - one)
                item_slopes[factor] *= two * (1.0 - two)
        related_slopes[:] = 0.0
        _push_back(
            own,
            related,
            parts.knowledge_user,
            user_slopes,
            gradient.user_embeddings[user],
            related_slopes,
            gradient.knowledge_user,
        )
        _push_back(
            other,
            related,
            parts.knowledge_item,
            item_slopes,
            gradient.item_embeddings[item],
            related_slopes,
            gradient.knowledge_item,
        )
        for place in range(items.indptr[item], items.indptr[item + 1]):
            attribute = items.attributes[place]
            for factor in range(len(related)):
                gradient.relation[attribute, factor] += related_slopes[factor]


@compiled_loop
def _adam(
    parameters: FloatArray,
    gradient: FloatArray,
    first: FloatArray,
    second: FloatArray,
    rate: float,
    root: float,
) -> None:
    """A step of Adam on slices, which the compiler turns into vector instructions."""
    for place in range(len(parameters)):
        slope = gradient[place]
        first[place] += (slope - first[place]) * (1.0 - _FIRST_DECAY)
        second[place] = second[place] * _SECOND_DECAY + (1.0 - _SECOND_DECAY) * slope * slope
        spread = np.sqrt(second[place]) * root + _EPSILON
        # ``divide`` and not ``/``, whose check for a zero would keep the loop scalar.
        parameters[place] -= np.divide(rate * first[place], spread)


@compiled_loop
def _sgd(parameters: FloatArray, gradient: FloatArray, rate: float) -> None:
    """A step against the gradient."""
    for place in range(len(parameters)):
        parameters[place] -= rate * gradient[place]


@compiled_loop
def _move(descent: Descent, start: int, stop: int, rate: float, root: float) -> None:
    """One optimiser step on ``parameters[start:stop]``; their gradient is emptied."""
    moved, slopes = descent.parameters[start:stop], descent.gradient[start:stop]
    moments, pull = descent.moments, descent.pull
    if len(pull.strengths) > 0:
        strengths, anchor = pull.strengths[start:stop], pull.anchor[start:stop]
        for place in range(len(moved)):
            slopes[place] += strengths[place] * (moved[place] - anchor[place])
    if descent.adam:
        _adam(moved, slopes, moments.first[start:stop], moments.second[start:stop], rate, root)
    else:
        _sgd(moved, slopes, rate)
    slopes[:] = 0.0


@compiled_loop
def _step(descent: Descent, width: int, learning_rate: float, step: int) -> None:
    """Optimiser step number ``step``, from 1; embeddings that cannot move are skipped."""
    rate, root = learning_rate, 1.0
    if descent.adam:
        rate = learning_rate / (1.0 - _FIRST_DECAY**step)
        root = 1.0 / np.sqrt(1.0 - _SECOND_DECAY**step)
    moving = descent.moments.moving
    row, rows = 0, len(moving)
    while row < rows:
        start = row
        while row < rows and moving[row]:
            row += 1
        if row > start:
            _move(descent, start * width, row * width, rate, root)
        row += 1
    _move(descent, rows * width, len(descent.parameters), rate, root)


@compiled_loop
def run_epoch(
    descent: Descent,
    model: Model,
    slopes: Parts,
    records: Records,
    order: IntArray,
    learning_rate: float,
    batch_size: int,
    step: int,
) -> int:
    """One pass over the records in ``order``; model and ``slopes`` are views of the flats.

    Returns:
        Optimiser steps so far, ``step`` of them before the epoch.
    """
    width = model.parts.relation.shape[0]
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        add_gradient(model, records, rows, slopes, descent.moments.moving)
        step += 1
        _step(descent, width, learning_rate, step)
    return step
