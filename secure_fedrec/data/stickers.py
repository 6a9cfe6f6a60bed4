"""A made-up task in the manner of FURL's *Sticker*: will this user click on a suggested sticker?

The real data are private. Here every user has a latent taste and a tendency to click, and every
message a topic that shows in its characters. A click depends on all three:

    log-odds = tendency_u + strength * taste_u[topic] + appeal[topic]

Tastes are low-rank across topics, as people's are: taste_u = factors_u . loadings. The text tells
the topic, hence ``appeal``, which is all that a global model can use; only a user vector can
represent who clicks often and who likes what. Clicks are rare, so the measure is AUC.
"""

from typing import Annotated, Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.user_texts import UserTexts, encode_texts, split_by_user
from secure_fedrec.settings import Count, Natural, NonNegative, Settings, Unit, Within

_LETTERS: Final = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_WORD_LENGTH: Final = 4
_WORDS_PER_TOPIC: Final = 6
# Words of a message, and how many of them come from its topic rather than from common speech.
_WORDS: Final = (4, 9)
_TOPIC_SHARE: Final = 0.5
_COMMON_WORDS: Final = 40
_APPEAL_SPREAD: Final = 0.4
_CLASSES: Final = ("no click", "click")


class StickersConfig(Settings, section="data"):
    """Size and shape.

    Args:
        users: number of users.
        messages: messages of each user; 10 at least, so that every part of the split has some.
        topics: number of topics.
        rank: dimension of taste.
        tendency: spread of users' tendency to click.
        strength: spread of a user's taste over topics.
        base_rate: click rate of an average user on an average topic.
        length: characters kept of a message.
        seed: seed of all draws.

    Raises:
        ConfigError: a field is out of range.
    """

    users: Count = 300
    messages: Annotated[int, Within(least=10)] = 40
    topics: Count = 8
    rank: Count = 3
    tendency: Annotated[NonNegative, Unit("log-odds")] = 1.0
    strength: Annotated[NonNegative, Unit("log-odds")] = 1.0
    base_rate: Annotated[float, Within(above=0, below=1)] = 0.2
    length: Annotated[Count, Unit("characters")] = 48
    seed: Natural = 1


def generate_stickers(config: StickersConfig) -> UserTexts:
    """Draws messages and clicks.

    Returns:
        Texts of two classes, "no click" and "click"; a function of ``config`` alone.
    """
    rng = np.random.Generator(np.random.PCG64(config.seed))
    users = np.repeat(np.arange(config.users), config.messages)
    topics = rng.integers(config.topics, size=len(users))
    odds = _log_odds(config, users, topics, rng)
    clicked = rng.random(len(users)) < 1 / (1 + np.exp(-odds))
    text, length = encode_texts(_messages(config, topics, rng), config.length)
    return UserTexts(
        name="stickers",
        classes=_CLASSES,
        user_labels=np.arange(config.users),
        users=users,
        text=text,
        length=length,
        label=clicked.astype(np.int64),
        part=split_by_user(users, seed=config.seed),
    )


def _log_odds(
    config: StickersConfig, users: IntArray, topics: IntArray, rng: np.random.Generator
) -> FloatArray:
    """float64[N], of a click."""
    tendency = config.tendency * rng.standard_normal(config.users)
    factors = rng.standard_normal((config.users, config.rank))
    loadings = rng.standard_normal((config.rank, config.topics)) / np.sqrt(config.rank)
    taste = config.strength * (factors @ loadings)
    appeal = _APPEAL_SPREAD * rng.standard_normal(config.topics)
    base = np.log(config.base_rate / (1 - config.base_rate))
    return np.asarray(base + tendency[users] + taste[users, topics] + appeal[topics])


def _messages(config: StickersConfig, topics: IntArray, rng: np.random.Generator) -> list[str]:
    """Words of the topic among common ones."""
    common = _words(_COMMON_WORDS, rng)
    own = [_words(_WORDS_PER_TOPIC, rng) for _ in range(config.topics)]
    found = []
    for topic in topics.tolist():
        size = int(rng.integers(*_WORDS))
        from_topic = rng.random(size) < _TOPIC_SHARE
        from_topic[rng.integers(size)] = True  # at least one word tells the topic
        words = np.where(from_topic, rng.choice(own[topic], size), rng.choice(common, size))
        found.append(" ".join(words.tolist()))
    return found


def _words(count: int, rng: np.random.Generator) -> list[str]:
    return ["".join(rng.choice(_LETTERS, _WORD_LENGTH).tolist()) for _ in range(count)]
