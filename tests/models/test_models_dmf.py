"""DMF: derivatives by finite differences, dropout, negatives, what an epoch is a function of."""

import math

import numpy as np
import pytest

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.dmf.adam import course_of
from secure_fedrec.models.dmf.arrays import Examples, Moving, Parts, Targets
from secure_fedrec.models.dmf.model import DMF, DMFConfig, start_layers, start_vectors
from secure_fedrec.models.dmf.similarity import bring_up
from secure_fedrec.models.dmf.training import (
    DMFTraining,
    Interactions,
    TrainingState,
    examples_of,
    train_epoch,
)
from secure_fedrec.streams import Streams

STREAMS = Streams.from_seed(5)
FREE = (np.zeros((0, 4)), 0.0, 0.0)


def model(users: int = 3, items: int = 5, **settings: object) -> DMF:
    config = DMFConfig(**{"width": 4, "hidden": 6, "dropout": 0.0, "spread": 0.7, **settings})  # type: ignore[arg-type]
    return DMF(config=config, users=users, items=items)


def started(dmf: DMF, seed: int = 1) -> TrainingState:
    generator = np.random.default_rng(seed)
    vectors = start_vectors(dmf.config, dmf.users + dmf.items, generator)
    parameters = np.concatenate([vectors.reshape(-1), start_layers(dmf.config, generator)])
    nothing = np.zeros_like(parameters)
    return TrainingState(
        parameters=parameters, first=nothing, second=nothing.copy(), powers=np.ones(2)
    )


def loss_of(dmf: DMF, parameters: FloatArray, examples: Examples, targets: Targets) -> float:
    """Of one batch, written as in the paper; over all pairs or over those of the batch's items."""
    own = dmf.parts(parameters)
    users, items = own.vectors[examples.users], own.vectors[dmf.users + examples.items]
    hidden = np.maximum(np.hstack([users, items]) @ own.weights.T + own.biases, 0.0)
    found = 1.0 / (1.0 + np.exp(-(hidden @ own.output[:-1] + own.output[-1])))
    loss = float(np.mean((found - examples.labels) ** 2))
    pairs = [
        (item, target)
        for item in (range(dmf.items) if targets.everywhere else set(examples.items.tolist()))
        for target in targets.vectors[targets.indptr[item] : targets.indptr[item + 1]]
    ]
    for item, target in pairs:
        vector = own.vectors[dmf.users + item]
        cosine = float(vector @ target) / float(np.linalg.norm(vector) * np.linalg.norm(target))
        loss += targets.strength / len(pairs) * max(1.0 - cosine, targets.margin)
    return loss


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("margin", [0.0, 0.9, 2.0])
def test_slopes_are_those_of_the_loss(margin: float, everywhere: bool) -> None:
    dmf, generator = model(), np.random.default_rng(3)
    examples = Examples(
        np.array([0, 1, 0, 2, 1], dtype=np.int32),
        np.array([1, 1, 4, 0, 2], dtype=np.int32),
        np.array([1.0, 0.0, 0.0, 1.0, 1.0]),
    )
    vectors = generator.standard_normal((5, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    targets = Targets(np.array([0, 1, 3, 3, 5, 5]), vectors, 2.5, margin, everywhere)
    state = started(dmf)
    before = state.parameters.copy()
    train_epoch(dmf, state, examples, targets, DMFTraining(batch_size=5), key=0)
    slopes = state.first / 0.1  # Adam's first mean after one step
    for place in range(dmf.size):
        found = []
        for sign in (1.0, -1.0):
            moved = before.copy()
            moved[place] += sign * 1e-6
            found.append(loss_of(dmf, moved, examples, targets))
        assert (found[0] - found[1]) / 2e-6 == pytest.approx(slopes[place], abs=2e-7)
    touched = np.abs(slopes) > 1e-12
    assert np.array_equal(state.parameters[~touched], before[~touched])
    step = np.abs(state.parameters - before)[touched]
    assert np.allclose(step, 1e-3, rtol=1e-3)  # Adam's first step, of any slope


def test_rows_that_no_batch_touched_are_moved_on_as_by_adam() -> None:
    """Against Adam on all rows in every step; far from the start, where corrections are settled."""
    dmf, generator = model(users=2, items=6), np.random.default_rng(4)
    examples = Examples(
        np.array([0, 1, 0, 0, 1, 0], dtype=np.int32),
        np.array([0, 3, 1, 4, 0, 1], dtype=np.int32),
        np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),
    )
    free = Targets(np.zeros(7, dtype=np.int64), *FREE)
    state, config = started(dmf), DMFTraining(batch_size=1)
    state.first[:] = 1e-3 * generator.standard_normal(dmf.size)
    state.second[:] = 1e-4 * generator.random(dmf.size) + 1e-5
    state.powers[:] = 0.0
    values, first, second = state.parameters.copy(), state.first.copy(), state.second.copy()
    for place in range(6):
        one = Examples(*(column[place : place + 1] for column in examples))  # type: ignore[arg-type]
        probe = TrainingState(
            parameters=values.copy(),
            first=np.zeros(dmf.size),
            second=np.zeros(dmf.size),
            powers=np.ones(2),
        )
        train_epoch(dmf, probe, one, free, config, key=0)
        slope = probe.first / 0.1
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        values -= 1e-3 * first / (np.sqrt(second) + 1e-8)
    train_epoch(dmf, state, examples, free, config, key=0)
    assert np.allclose(state.parameters, values, rtol=0, atol=1e-8)
    assert np.allclose(state.first, first, rtol=1e-5, atol=1e-12)
    assert np.allclose(state.second, second, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2, 1.5])
@pytest.mark.parametrize("began", [0, 2000])
def test_an_item_that_batches_do_not_touch_takes_every_step_of_its_pairs(
    began: int, margin: float
) -> None:
    """Against Adam step by step, with memories of many sizes: moved on at once, it is there too."""
    generator, width, steps = np.random.default_rng(6), 4, 400
    course = course_of(np.array([0.9**began, 0.999**began]), 1e-3, steps)
    for _ in range(60):
        vectors = generator.standard_normal((2, width)) * 0.2 + 1.0
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        targets = Targets(np.array([0, 2]), vectors, 2.0, margin)
        size = 10.0 ** generator.uniform(-7, -1)
        values = vectors[0] * 0.5 + 0.1 * generator.standard_normal(width)
        first = 0.2 * size * generator.standard_normal(width)
        second = 0.1 * size**2 * generator.uniform(1e-2, 1.0, width)
        empty = np.zeros((1, 2 * width)), np.zeros(1), np.zeros(2)
        held = Moving(*(Parts(each[None].copy(), *empty) for each in (values, first, second)))
        bring_up(held, targets, 0, 0, 5, steps, course)
        for step in range(6, steps + 1):
            slope, length = np.zeros(width), float(np.linalg.norm(values))
            for target in vectors:
                cosine = float(values @ target) / length
                if 1.0 - cosine > margin:
                    slope -= (target - cosine * values / length) / length
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            spread = np.sqrt(second) / course.settled[step] + 1e-8
            values = values - course.rates[step] * first / spread
        assert np.allclose(held.parts.vectors[0], values, rtol=0, atol=1e-6)
        assert np.allclose(held.second.vectors[0], second, rtol=1e-4, atol=0)


def test_a_pair_within_the_margin_is_left_alone() -> None:
    dmf = model()
    examples = Examples(np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1))
    ends, state, free = np.array([0, 1, 1, 1, 1, 1]), started(dmf), started(dmf)
    vector = dmf.items_of(state.parameters)[:1]
    near = vector / np.linalg.norm(vector) + 0.1
    near /= np.linalg.norm(near)
    assert 0.8 < float((near @ vector.T)[0, 0]) / float(np.linalg.norm(vector)) < 1.0
    for held, strength in ((state, 100.0), (free, 0.0)):
        train_epoch(dmf, held, examples, Targets(ends, near, strength, 0.2), DMFTraining(), key=0)
    assert np.array_equal(state.parameters, free.parameters)


def test_dropout_leaves_out_its_share_and_follows_its_key() -> None:
    dmf = model(hidden=64, dropout=0.5)
    examples = Examples(np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1))
    targets, moved = Targets(np.zeros(6, dtype=np.int64), *FREE), []
    always = np.maximum(0.0, started(dmf).parameters)  # every unit is above 0 before dropout
    for key in range(100):
        state = started(dmf)
        state.parameters[:] = always + 0.01
        train_epoch(dmf, state, examples, targets, DMFTraining(), key=key << 20)
        moved.append(dmf.parts(state.first).output[:-1] != 0.0)
    shares = np.mean(moved, axis=0)
    assert abs(float(shares.mean()) - 0.5) < 4 * 0.5 / math.sqrt(6400)
    assert shares.min() > 0.25
    assert shares.max() < 0.75
    assert len({tuple(each) for each in moved}) == 100


def known(counts: tuple[int, ...] = (3, 7, 0, 1), items: int = 8) -> Interactions:
    generator = np.random.default_rng(2)
    own = [np.sort(generator.choice(items, count, replace=False)) for count in counts]
    users = np.repeat(np.arange(len(counts)), counts)
    return Interactions.of_pairs(users, np.concatenate(own), model(len(counts), items))


def test_negatives_are_fresh_even_and_never_positives() -> None:
    interactions, config = known(), DMFTraining(negatives=4)
    seen = np.zeros((4, 8))
    for round_ in range(1, 201):
        found = examples_of(interactions, config, STREAMS, epoch=round_, client=3)
        assert np.bincount(found.labels.astype(int)).tolist() == [44, 11]
        np.add.at(seen, (found.users[found.labels == 0], found.items[found.labels == 0]), 1)
    for user, count in enumerate(interactions.counts.tolist()):
        own = interactions.items[interactions.indptr[user] : interactions.indptr[user + 1]]
        assert not seen[user, own].any()
        free = np.setdiff1d(np.arange(8), own)
        if count:
            due = 800 * count / len(free)
            assert np.all(np.abs(seen[user, free] - due) < 5 * math.sqrt(due))


def test_who_has_everything_has_no_negative() -> None:
    full = known((8, 2))
    found = examples_of(full, DMFTraining(negatives=2), STREAMS, epoch=1, client=0)
    assert np.bincount(found.users[found.labels == 0], minlength=2).tolist() == [0, 4]


def test_all_pairs_are_all_pairs_once() -> None:
    interactions = known()
    found = examples_of(interactions, DMFTraining(negatives=None), STREAMS, epoch=1, client=0)
    assert len({*zip(found.users.tolist(), found.items.tolist(), strict=True)}) == 32
    positive = found.labels == 1
    users = np.repeat(np.arange(4), interactions.counts)
    due = {*zip(users.tolist(), interactions.items.tolist(), strict=True)}
    assert {*zip(found.users[positive], found.items[positive], strict=True)} == due


def test_pools_of_a_pooled_model_are_those_of_its_users() -> None:
    pools = (np.array([0, 1, 2, 5]), np.array([0, 3, 4, 5, 6]))
    pooled = Interactions(
        indptr=np.array([0, 2, 3]),
        items=np.array([1, 5, 4]),
        pools=pools,
        kinds=np.array([0, 1]),
    )
    config = DMFTraining(negatives=50)
    found = examples_of(pooled, config, STREAMS, epoch=1, client=0)
    for user, own in ((0, {0, 2}), (1, {0, 3, 5, 6})):
        assert {*found.items[(found.users == user) & (found.labels == 0)].tolist()} == own


def test_an_epoch_is_a_function_of_seed_round_and_client() -> None:
    interactions, config = known(), DMFTraining()
    draws = [
        examples_of(interactions, config, STREAMS, epoch=round_, client=client)
        for round_, client in ((1, 0), (1, 0), (2, 0), (1, 1))
    ]
    first, again, later, other = draws
    assert np.array_equal(first.items, again.items)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.items, later.items)
    assert not np.array_equal(first.items, other.items)


def test_scores_are_those_of_the_formula_for_anybodys_vectors() -> None:
    dmf = model()
    state, strangers = started(dmf), np.random.default_rng(9).standard_normal((7, 4))
    own = dmf.parts(state.parameters)
    found = dmf.scores(state.parameters, np.array([2, 0]), strangers)
    for row, user in enumerate((2, 0)):
        for place, vector in enumerate(strangers):
            inputs = np.concatenate([own.vectors[user], vector])
            hidden = np.maximum(own.weights @ inputs + own.biases, 0.0)
            logit = float(hidden @ own.output[:-1] + own.output[-1])
            assert found[row, place] == pytest.approx(1.0 / (1.0 + math.exp(-logit)), rel=1e-12)
    orders = np.argsort(dmf.scores(state.parameters, np.arange(3), strangers), axis=1)
    assert len({tuple(order) for order in orders}) > 1  # users differ in their order of items


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.width = 5: must be even"):
        DMFConfig(width=5)
    with pytest.raises(ValueError, match="parameters of shape"):
        model().parts(np.zeros(3))
    with pytest.raises(ValueError, match="item vectors of shape"):
        model().scores(started(model()).parameters, np.array([0]), np.zeros((2, 3)))
