"""GUM: every form of the model against a transcription of the paper's equations."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.gum.arrays import Parts
from secure_fedrec.models.gum.model import GUM, GUMConfig, GUMLayout

USERS, ITEMS, ATTRIBUTES = 6, 9, 4

FORMS: list[dict[str, Any]] = [
    {"link": link, "activation": activation, "slip_and_guess": extras, "scale": scale}
    for link, activation, extras, scale in product(
        ("identity", "sigmoid"), ("identity", "sigmoid"), (False, True), (1.0, 5.0)
    )
    if link == "sigmoid" or scale == 1.0
]


def attributes() -> BoolArray:
    """Items with one to three attributes."""
    rng = np.random.default_rng(3)
    flags = rng.random((ITEMS, ATTRIBUTES)) < 0.4
    flags[np.arange(ITEMS), rng.integers(0, ATTRIBUTES, ITEMS)] = True
    return np.asarray(flags)


def model(**form: Any) -> tuple[GUM, FloatArray]:
    """A model with parameters of the size they have after some training."""
    gum = GUM(GUMConfig(hidden=3, **form), n_users=USERS, attributes=attributes())
    return gum, np.random.default_rng(1).normal(size=gum.layout.size)


def pairs() -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng(2)
    return rng.integers(0, USERS, 40), rng.integers(0, ITEMS, 40)


def sigmoid(values: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-values)))


def transcribed(gum: GUM, parts: Parts, users: IntArray, items: IntArray) -> FloatArray:
    """Eq. 4 to 7 as they are printed, with the deviations that settings name."""
    config = gum.config
    related = attributes()[items].astype(np.float64) @ parts.relation
    user_side = (parts.user_embeddings[users] * related) @ parts.knowledge_user
    item_side = (parts.item_embeddings[items] * related) @ parts.knowledge_item
    if config.activation == "sigmoid":
        user_side, item_side = sigmoid(user_side), sigmoid(item_side)
    found = (user_side - item_side) @ parts.hidden
    if config.slip_and_guess:
        slip, guess = sigmoid(parts.slip[items] - 1), sigmoid(parts.guess[items] - 1)
        found = (1 - slip) * found + guess * (1 - found)
    return np.asarray(config.scale * sigmoid(found) if config.link == "sigmoid" else found)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_predictions_are_the_printed_equations(form: dict[str, Any]) -> None:
    gum, parameters = model(**form)
    users, items = pairs()
    found = gum.predict(parameters, users, items)
    expected = transcribed(gum, gum.layout.parts(parameters), users, items)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_a_prediction_does_not_depend_on_its_batch() -> None:
    gum, parameters = model(activation="sigmoid")
    users, items = pairs()
    whole = gum.predict(parameters, users, items)
    alone = [gum.predict(parameters, users[[n]], items[[n]])[0] for n in range(len(users))]
    assert whole.tolist() == alone


def test_characteristics_are_equation_8_row_by_row() -> None:
    gum, parameters = model()
    parts = gum.layout.parts(parameters)
    found = gum.characteristics(parameters)
    for user, attribute in product(range(USERS), range(ATTRIBUTES)):
        knowledge = sum(parts.knowledge_user[attribute] * parts.hidden)
        assert found[user, attribute] == pytest.approx(
            parts.user_embeddings[user, attribute] * knowledge
        )


def test_the_parts_cover_the_vector_once_private_ones_first() -> None:
    layout = GUMLayout(users=2, items=3, attributes=4, hidden=5, slip_and_guess=True)
    flat = np.arange(float(layout.size))
    parts = layout.parts(flat)
    pieces = [part.reshape(-1) for part in parts]
    np.testing.assert_array_equal(np.concatenate(pieces), flat)
    assert all(np.shares_memory(part, flat) for part in parts)
    assert [len(piece) for piece in pieces] == [8, 12, 3, 3, 20, 20, 16, 5]
    np.testing.assert_array_equal(flat[layout.private], np.concatenate(pieces[:4]))
    np.testing.assert_array_equal(flat[layout.private.stop : -5], np.concatenate(pieces[4:7]))
    with pytest.raises(ValueError, match="shape"):
        layout.parts(flat[:-1])


def test_xavier_fills_every_table_up_to_its_bound() -> None:
    gum = GUM(GUMConfig(slip_and_guess=True), n_users=300, attributes=np.ones((200, 19), bool))
    parts = gum.layout.parts(gum.start(np.random.default_rng(0)))
    for part in parts:
        rows, columns = part.shape if part.ndim == 2 else (len(part), 1)
        bound = np.sqrt(6 / (rows + columns))
        assert 0.6 * bound < np.abs(part).max() <= bound


def test_the_identity_start_knows_no_user_and_no_relation() -> None:
    config = GUMConfig(start="identity", slip_and_guess=True)
    gum = GUM(config, n_users=USERS, attributes=attributes())
    parts = gum.layout.parts(gum.start(np.random.default_rng(0)))
    for part in (parts.user_embeddings, parts.item_embeddings, parts.slip, parts.guess):
        assert not part.any()
    np.testing.assert_array_equal(parts.relation, np.eye(ATTRIBUTES))
    bound = np.sqrt(2) * np.sqrt(6 / (ATTRIBUTES + 5))
    for knowledge in (parts.knowledge_user, parts.knowledge_item):
        assert 0.5 * bound < np.abs(knowledge).max() <= bound
    assert 0 < np.abs(parts.hidden).max() <= np.sqrt(2) * np.sqrt(6 / (5 + 1))


def test_an_item_without_attributes_is_predicted_at_distance_zero() -> None:
    flags = attributes()
    flags[2] = False
    gum = GUM(GUMConfig(link="identity"), n_users=USERS, attributes=flags)
    parameters = np.random.default_rng(1).normal(size=gum.layout.size)
    assert gum.predict(parameters, np.array([1]), np.array([2])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("users", "items", "problem"),
    [
        ([USERS], [0], "user"),
        ([-1], [0], "user"),
        ([0], [ITEMS], "item"),
        ([0], [-1], "item"),
        ([0, 1], [0], "2 users"),
    ],
)
def test_pairs_of_another_organisation_are_refused(
    users: list[int], items: list[int], problem: str
) -> None:
    gum, parameters = model()
    with pytest.raises(ValueError, match=problem):
        gum.predict(parameters, np.array(users), np.array(items))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"hidden": 0}, "gum.hidden"),
        ({"scale": 0.0}, "gum.scale"),
        ({"scale": float("nan")}, "gum.scale"),
        ({"link": "identity", "scale": 5.0}, "gum.scale"),
        ({"link": "logit"}, "gum.link"),
        ({"activation": "tanh"}, "gum.activation"),
        ({"start": "zeros"}, "gum.start"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GUMConfig(**settings)
    assert caught.value.key == key


@pytest.mark.parametrize("shape", [(0, 4), (9, 0)])
def test_an_organisation_without_items_or_attributes_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="needs users, items and attributes"):
        GUM(GUMConfig(), n_users=3, attributes=np.zeros(shape, dtype=np.bool_))
