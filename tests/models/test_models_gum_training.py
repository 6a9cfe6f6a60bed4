"""Closed-form training of GUM against automatic differentiation and the optimisers of torch."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.gum.arrays import Pull, Records
from secure_fedrec.models.gum.loops import add_gradient
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, Trained, train

USERS, ITEMS, ATTRIBUTES = 7, 11, 4
NAMES = (
    "user_embeddings",
    "item_embeddings",
    "slip",
    "guess",
    "knowledge_user",
    "knowledge_item",
    "relation",
    "hidden",
)
FORMS: list[dict[str, Any]] = [
    {"link": link, "activation": activation, "slip_and_guess": extras, "scale": scale}
    for link, scale, activation, extras in product(
        ("sigmoid",), (1.0, 5.0), ("identity", "sigmoid"), (False, True)
    )
] + [{"link": "identity"}, {"link": "identity", "activation": "sigmoid", "slip_and_guess": True}]


def attributes() -> BoolArray:
    rng = np.random.default_rng(5)
    flags = rng.random((ITEMS, ATTRIBUTES)) < 0.4
    flags[np.arange(ITEMS), rng.integers(0, ATTRIBUTES, ITEMS)] = True
    return np.asarray(flags)


def model(seed: int = 1, **form: Any) -> tuple[GUM, FloatArray]:
    gum = GUM(GUMConfig(hidden=3, **form), n_users=USERS, attributes=attributes())
    return gum, np.random.default_rng(seed).normal(size=gum.layout.size) * 0.7


def records(size: int, seed: int, *, users: int = USERS, items: int = ITEMS) -> Records:
    rng = np.random.default_rng(seed)
    return Records(
        users=rng.integers(0, users, size),
        items=rng.integers(0, items, size),
        scores=rng.integers(1, 6, size).astype(np.float64),
    )


def tensors(gum: GUM, parameters: FloatArray) -> dict[str, Tensor]:
    """The model's parameters as leaves of an automatic differentiation."""
    parts = gum.layout.parts(parameters)
    return {
        name: torch.tensor(part, requires_grad=True)
        for name, part in zip(NAMES, parts, strict=True)
    }


def flat(parts: dict[str, Tensor]) -> FloatArray:
    return np.concatenate([parts[name].detach().numpy().reshape(-1) for name in NAMES])


def loss(gum: GUM, parts: dict[str, Tensor], batch: Records) -> Tensor:
    """Mean squared error, in torch operations."""
    users, items = torch.tensor(batch.users), torch.tensor(batch.items)
    related = torch.tensor(attributes()[batch.items].astype(np.float64)) @ parts["relation"]
    user_side = (parts["user_embeddings"][users] * related) @ parts["knowledge_user"]
    item_side = (parts["item_embeddings"][items] * related) @ parts["knowledge_item"]
    if gum.config.activation == "sigmoid":
        user_side, item_side = user_side.sigmoid(), item_side.sigmoid()
    found = (user_side - item_side) @ parts["hidden"]
    if gum.config.slip_and_guess:
        slip = (parts["slip"][items] - 1).sigmoid()
        guess = (parts["guess"][items] - 1).sigmoid()
        found = (1 - slip) * found + guess * (1 - found)
    if gum.config.link == "sigmoid":
        found = gum.config.scale * found.sigmoid()
    return ((found - torch.tensor(batch.scores)) ** 2).mean()


def take(batch: Records, rows: Any) -> Records:
    return Records(*(column[rows] for column in batch))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_gradient_is_that_of_automatic_differentiation(form: dict[str, Any]) -> None:
    gum, parameters = model(**form)
    batch, rows = records(50, 2), np.arange(5, 38)
    found = np.zeros(gum.layout.size)
    add_gradient(
        gum.model(parameters),
        batch,
        rows,
        gum.layout.parts(found),
        np.zeros(USERS + ITEMS, dtype=np.bool_),
    )
    parts = tensors(gum, parameters)
    loss(gum, parts, take(batch, rows)).backward()  # type: ignore[no-untyped-call]
    grads = {
        name: torch.zeros_like(part) if part.grad is None else part.grad
        for name, part in parts.items()
    }
    np.testing.assert_allclose(found, flat(grads), rtol=1e-11, atol=1e-13)


def trained_by_torch(
    gum: GUM, parameters: FloatArray, learnt: Records, config: GUMTraining, pull: Pull | None
) -> FloatArray:
    """A plain training loop: automatic differentiation and torch's own optimiser."""
    parts = tensors(gum, parameters)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(parts.values(), lr=config.learning_rate)
    rng, size = np.random.default_rng(9), len(learnt.scores)
    batch_size = size if config.batch_size is None else config.batch_size
    for _ in range(config.epochs):
        order = rng.permutation(size)
        for begin in range(0, size, batch_size):
            optimizer.zero_grad()
            total = loss(gum, parts, take(learnt, order[begin : begin + batch_size]))
            if pull is not None:
                now = torch.cat([part.reshape(-1) for part in parts.values()])
                apart = (now - torch.tensor(pull.anchor)) ** 2
                total = total + 0.5 * (torch.tensor(pull.strengths) * apart).sum()
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return flat(parts)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize(
    "form", [{"scale": 5.0}, {"activation": "sigmoid", "slip_and_guess": True}], ids=str
)
def test_training_ends_where_torch_ends(
    form: dict[str, Any], pulled: bool, batch_size: int | None, optimizer: str
) -> None:
    torch.set_num_threads(1)
    gum, parameters = model(**form)
    # Some users and items have no record: they must stay, or follow the pull alone.
    learnt = records(45, 4, users=USERS - 2, items=ITEMS - 3)
    config = GUMTraining(
        optimizer=optimizer,
        learning_rate=0.02,
        batch_size=batch_size,
        epochs=4,
        patience=0,
        keep="last",
    )
    pull = None
    if pulled:
        strengths = np.zeros(gum.layout.size)
        strengths[gum.layout.private.stop : -gum.layout.hidden] = 0.3
        embeddings = strengths[: (USERS + ITEMS) * ATTRIBUTES].reshape(-1, ATTRIBUTES)
        embeddings[[0, USERS - 1, USERS + ITEMS - 1]] = 0.1  # two of them have no record
        pull = Pull(strengths=strengths, anchor=parameters + 0.5)
    found = train(
        gum, parameters, learnt, records(0, 0), config, np.random.default_rng(9), pull=pull
    )
    expected = trained_by_torch(gum, parameters, learnt, config, pull)
    np.testing.assert_allclose(found.parameters, expected, rtol=0, atol=1e-10)
    assert np.abs(found.parameters - parameters).max() > 1e-3


def test_embeddings_without_a_record_do_not_move() -> None:
    gum, parameters = model()
    config = GUMTraining(learning_rate=0.05, batch_size=4)
    learnt = records(30, 4, users=3, items=5)
    found = train(gum, parameters, learnt, records(9, 5), config, np.random.default_rng(0))
    before, after = gum.layout.parts(parameters), gum.layout.parts(found.parameters)
    np.testing.assert_array_equal(after.user_embeddings[3:], before.user_embeddings[3:])
    np.testing.assert_array_equal(after.item_embeddings[5:], before.item_embeddings[5:])
    assert found.kept == 0 or np.all(after.user_embeddings[:3] != before.user_embeddings[:3])


def run(config: GUMTraining, seed: int = 0) -> tuple[Trained, float]:
    """Training that overfits: few records, as many parameters."""
    gum, parameters = model(scale=5.0)
    before = parameters.copy()
    found = train(
        gum, parameters, records(20, 4), records(25, 5), config, np.random.default_rng(seed)
    )
    np.testing.assert_array_equal(parameters, before)
    validation = records(25, 5)
    predicted = gum.predict(found.parameters, validation.users, validation.items)
    return found, float(np.mean((predicted - validation.scores) ** 2))


def test_the_epoch_of_the_smallest_validation_error_is_kept() -> None:
    found, error = run(GUMTraining(learning_rate=0.05, epochs=30, patience=0))
    assert found.epochs == 30
    assert len(found.errors) == 31
    assert 0 < found.kept < 30
    assert found.kept == int(np.argmin(found.errors))
    assert error == found.errors.min()


def test_patience_ends_training_and_changes_nothing_else() -> None:
    endless, _ = run(GUMTraining(learning_rate=0.05, epochs=30, patience=0))
    patient, _ = run(GUMTraining(learning_rate=0.05, epochs=30, patience=3))
    assert patient.epochs == patient.kept + 3
    assert patient.kept < endless.epochs
    np.testing.assert_array_equal(patient.errors, endless.errors[: patient.epochs + 1])


def test_training_that_only_harms_is_undone() -> None:
    gum, good = model(scale=5.0)
    asked = records(25, 5)
    perfect = asked._replace(scores=gum.predict(good, asked.users, asked.items))
    undone = train(gum, good, records(20, 4), perfect, GUMTraining(), np.random.default_rng(0))
    assert undone.kept == 0
    assert undone.errors[0] == 0 < undone.errors[1:].min()
    np.testing.assert_array_equal(undone.parameters, good)


def test_the_last_epoch_is_kept_on_request() -> None:
    found, error = run(GUMTraining(learning_rate=0.05, epochs=30, patience=0, keep="last"))
    assert found.kept == found.epochs == 30
    assert error == found.errors[-1]
    assert error > found.errors.min()


def test_equal_generators_give_equal_bits_and_others_another_order() -> None:
    config = GUMTraining(epochs=2, batch_size=4)
    first, again, other = (run(config, seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert not np.array_equal(first.parameters, other.parameters)


@pytest.mark.parametrize(
    ("learnt", "validation", "problem"),
    [
        (records(0, 1), records(3, 2), "records to learn from"),
        (records(3, 1), records(0, 2), "needs a validation record"),
        (records(3, 1)._replace(users=np.array([0, 1, USERS])), records(3, 2), "user number"),
        (records(3, 1), records(3, 2)._replace(items=np.array([0, 1, -1])), "item number"),
    ],
)
def test_records_that_cannot_be_trained_on_are_refused(
    learnt: Records, validation: Records, problem: str
) -> None:
    gum, parameters = model()
    with pytest.raises(ValueError, match=problem):
        train(gum, parameters, learnt, validation, GUMTraining(), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"optimizer": "rmsprop"}, "training.optimizer"),
        ({"keep": "first"}, "training.keep"),
        ({"learning_rate": 0.0}, "training.learning_rate"),
        ({"batch_size": 0}, "training.batch_size"),
        ({"epochs": 0}, "training.epochs"),
        ({"patience": -1}, "training.patience"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GUMTraining(**settings)
    assert caught.value.key == key
