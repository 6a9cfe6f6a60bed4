"""The synthetic sticker task: text tells a little, the user a lot, both together most."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import stickers
from secure_fedrec.data.stickers import StickersConfig, generate_stickers
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import area_under_curve


def test_it_is_a_function_of_its_settings() -> None:
    one, again, other = (
        generate_stickers(StickersConfig(users=20, seed=seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.text, again.text)
    np.testing.assert_array_equal(one.label, again.label)
    assert not np.array_equal(one.label, other.label)


def test_its_shape() -> None:
    data = generate_stickers(StickersConfig(users=20, messages=30))
    assert data.classes == ("no click", "click")
    assert data.counts("train").tolist() == [24] * 20
    assert data.counts("test").tolist() == [3] * 20
    assert 0.05 < data.label.mean() < 0.5
    assert data.length.max() <= data.text.shape[1] == 48


def test_personalization_has_something_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUC of the true log-odds, against what text alone and user alone can know of them."""
    drawn: dict[str, Any] = {}
    true_odds = stickers._log_odds

    def spy(config: Any, users: Any, topics: Any, rng: Any) -> Any:
        drawn.update(topics=topics, odds=true_odds(config, users, topics, rng))
        return drawn["odds"]

    monkeypatch.setattr(stickers, "_log_odds", spy)
    data = generate_stickers(StickersConfig())
    odds, clicked = drawn["odds"], data.label == 1

    def mean_by(groups: Any) -> Any:
        return (np.bincount(groups, odds) / np.bincount(groups))[groups]

    areas = [
        area_under_curve(scores, clicked)
        for scores in (mean_by(drawn["topics"]), mean_by(data.users), odds)
    ]
    text, user, both = (area for area in areas if area is not None)
    assert 0.55 < text < user - 0.05 < both - 0.1 < 0.75


def test_the_text_tells_the_topic() -> None:
    """With one topic word per message at least, messages of a topic share words."""
    rng = np.random.Generator(np.random.PCG64(3))
    topics = np.repeat(np.arange(3), 40)
    messages = stickers._messages(StickersConfig(topics=3), topics, rng)
    words = [set(message.split()) for message in messages]
    for topic in range(3):
        own = [each for each, its in zip(words, topics, strict=True) if its == topic]
        rest = set().union(*(each for each, its in zip(words, topics, strict=True) if its != topic))
        assert all(each - rest for each in own)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("users", 0),
        ("messages", 9),
        ("topics", 0),
        ("rank", 0),
        ("tendency", -1.0),
        ("strength", float("inf")),
        ("base_rate", 0.0),
        ("base_rate", 1.0),
        ("length", 0),
        ("seed", -1),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        StickersConfig(**{key: value})
    assert refused.value.key == f"data.{key}"
