"""A generated rating set with the properties that audits depend on, for use without any download.

Items have a long-tailed popularity, clients a skewed activity, and tastes are low-rank. Gender, age
band and occupation shift a client's taste, and taste decides both how a client rates *and* which
items it rates: an attribute can leak through the ratings and through the mere set of rated items.
"""

import math
from typing import Annotated, Final, NamedTuple

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.movielens import AGE_BANDS, GENDERS, WHOLE_STARS
from secure_fedrec.data.ratings import RatingTable, StrArray
from secure_fedrec.settings import Count, Natural, NonNegative, Settings, Unit, Within

OCCUPATIONS: Final = ("artist", "educator", "engineer", "student", "other")
"""Categories of the attribute ``occupation`` in synthetic sets."""

_FEWEST_RATINGS: Final = 5
# Shares as in ML-1M, roughly: a third of the clients are women, most are 18 to 44.
_SHARES: Final = {
    "gender": (GENDERS, (0.3, 0.7)),
    "age_band": (AGE_BANDS, (0.04, 0.18, 0.35, 0.20, 0.09, 0.08, 0.06)),
    "occupation": (OCCUPATIONS, (0.10, 0.15, 0.25, 0.25, 0.25)),
}
# A group shifts its members' taste vectors by this many standard deviations of individual taste.
_GROUP_SHIFT: Final = 1.0
# How strongly taste, in standard deviations, enters the log-odds of rating an item at all.
_EXPOSURE: Final = 0.9
# In stars: the mean rating, and the spread of generous clients, good items and taste around it.
_MEAN_RATING: Final = 3.5
_CLIENT_SPREAD: Final = 0.3
_ITEM_SPREAD: Final = 0.4
_TASTE_SPREAD: Final = 0.7
# Clients whose tastes are compared with all items at once: at ML-1M's size that takes 16 MB.
_BLOCK: Final = 512


class SyntheticConfig(Settings, section="data"):
    """Size and shape of a synthetic set.

    Args:
        clients: number of clients.
        items: number of items; every client leaves one or more unrated.
        rank: dimension of taste.
        mean_ratings: of a client, on average, before each has 5 at least and ``items - 1`` at
            most.
        popularity_exponent: the item of popularity rank r is drawn with weight
            ``r ** -popularity_exponent``; 0 makes all items alike.
        activity_sigma: standard deviation of the logarithm of a client's number of ratings.
        noise: standard deviation of a rating around its expectation.
        seed: seed of all draws.

    Raises:
        ConfigError: a value is out of its range; the key is ``data.<field>``.
    """

    clients: Count = 200
    items: Annotated[int, Within(least=_FEWEST_RATINGS + 1)] = 300
    rank: Count = 4
    mean_ratings: Annotated[float, Within(least=_FEWEST_RATINGS), Unit("ratings")] = 30.0
    popularity_exponent: NonNegative = 0.9
    activity_sigma: NonNegative = 0.8
    noise: Annotated[NonNegative, Unit("stars")] = 0.6
    seed: Natural

    def _agree(self) -> None:
        if not _FEWEST_RATINGS <= self.mean_ratings <= self.items - 1:
            bounds = f"{_FEWEST_RATINGS} to items - 1 = {self.items - 1}"
            raise self.refusal("mean_ratings", f"must be {bounds}")


class _World(NamedTuple):
    """What is drawn once for the whole set.

    Attributes:
        tastes: float64[clients, rank].
        traits: float64[items, rank]; taste times trait has variance near 1.
        log_weights: float64[items], log popularity.
        counts: int64[clients], ratings per client.
        client_means: float64[clients], in stars.
        item_offsets: float64[items], in stars.
    """

    tastes: FloatArray
    traits: FloatArray
    log_weights: FloatArray
    counts: IntArray
    client_means: FloatArray
    item_offsets: FloatArray


def generate(config: SyntheticConfig) -> RatingTable:
    """Draws a synthetic set.

    Args:
        config: its size, shape and seed.

    Returns:
        The table, 1 to 5 whole stars; attributes ``gender``, ``age_band`` and ``occupation``; no
        timestamps. A function of ``config`` alone.
    """
    rng = np.random.Generator(np.random.PCG64(config.seed))
    demographics, shifts = _draw_demographics(config, rng)
    world = _draw_world(config, shifts, rng)
    blocks = [
        _draw_block(config, world, slice(start, start + _BLOCK), rng)
        for start in range(0, config.clients, _BLOCK)
    ]
    return RatingTable(
        name="synthetic",
        n_clients=config.clients,
        n_items=config.items,
        clients=np.concatenate([clients for clients, _, _ in blocks]),
        items=np.concatenate([items for _, items, _ in blocks]),
        ratings=np.concatenate([ratings for _, _, ratings in blocks]),
        scale=WHOLE_STARS,
        client_labels=np.arange(config.clients, dtype=np.int64),
        item_labels=np.arange(config.items, dtype=np.int64),
        demographics=demographics,
    )


def _draw_demographics(
    config: SyntheticConfig, rng: np.random.Generator
) -> tuple[dict[str, StrArray], FloatArray]:
    """Draws each client's categories, and the taste shift float64[clients, rank] they add up to."""
    demographics = {}
    shifts = np.zeros((config.clients, config.rank))
    for attribute, (categories, shares) in _SHARES.items():
        drawn = np.searchsorted(np.cumsum(shares)[:-1], rng.random(config.clients), side="right")
        demographics[attribute] = np.array(categories, dtype=np.str_)[drawn]
        directions = rng.standard_normal((len(categories), config.rank))
        # One length for all: no attribute is invisible because its draw happened to be short.
        directions *= math.sqrt(config.rank) / np.linalg.norm(directions, axis=1, keepdims=True)
        shifts += _GROUP_SHIFT * directions[drawn]
    return demographics, shifts


def _draw_world(config: SyntheticConfig, shifts: FloatArray, rng: np.random.Generator) -> _World:
    """Draws tastes, traits, popularity and activity."""
    tastes = shifts + rng.standard_normal((config.clients, config.rank))
    tastes /= math.sqrt(1.0 + len(_SHARES) * _GROUP_SHIFT**2)
    traits = rng.standard_normal((config.items, config.rank)) / math.sqrt(config.rank)
    # Item numbers must not reveal popularity: real ids do not either.
    ranks = 1.0 + rng.permutation(config.items)
    # The mean of a log-normal is exp(mu + sigma^2 / 2).
    mu = math.log(config.mean_ratings) - config.activity_sigma**2 / 2
    activity = np.exp(mu + config.activity_sigma * rng.standard_normal(config.clients))
    counts = np.rint(np.clip(activity, _FEWEST_RATINGS, config.items - 1)).astype(np.int64)
    return _World(
        tastes=tastes,
        traits=traits,
        log_weights=-config.popularity_exponent * np.log(ranks),
        counts=counts,
        client_means=_MEAN_RATING + _CLIENT_SPREAD * rng.standard_normal(config.clients),
        item_offsets=_ITEM_SPREAD * rng.standard_normal(config.items),
    )


def _draw_block(
    config: SyntheticConfig, world: _World, block: slice, rng: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray]:
    """Draws (client, item, rating) columns of some clients, sorted by (client, item)."""
    affinity = world.tastes[block] @ world.traits.T
    drawn = [
        _draw_items(config, world, block.start + row, own, rng) for row, own in enumerate(affinity)
    ]
    rows = np.repeat(np.arange(len(drawn)), [len(own) for own in drawn])
    items = np.concatenate(drawn)
    expected = world.client_means[block][rows] + world.item_offsets[items]
    expected += _TASTE_SPREAD * affinity[rows, items]
    noisy = expected + config.noise * rng.standard_normal(len(rows))
    return block.start + rows, items, np.clip(np.rint(noisy), WHOLE_STARS.low, WHOLE_STARS.high)


def _draw_items(
    config: SyntheticConfig,
    world: _World,
    client: int,
    affinity: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Draws the items that a client rates, ascending, given its affinity float64[items] to all."""
    log_odds = world.log_weights + _EXPOSURE * affinity
    # The k largest of Gumbel-perturbed log-weights are k draws without replacement by weight.
    keys = log_odds + rng.gumbel(size=len(log_odds))
    least = config.items - int(world.counts[client])
    return np.flatnonzero(keys >= np.partition(keys, least)[least])
