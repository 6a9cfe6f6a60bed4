"""Generated organisations, for use without any download.

Every client lists its own part of a common catalogue. A score rises with the user's taste for the
item's attributes and with the item's quality, and the users of a client share a shift of taste: the
clients are not identically distributed, but attributes have the same meaning for all.
"""

from typing import Annotated, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data.organisations.split import SplitShares, draw_parts
from secure_fedrec.data.organisations.tables import Organisations, organise
from secure_fedrec.settings import Count, Natural, NonNegative, Rate, Settings, Unit, Within

_FEWEST_RECORDS: Final = 5
# In stars: the mean score, and the spread of taste and of quality around it.
_MEAN: Final = 3.4
_TASTE_SPREAD: Final = 0.9
_ITEM_SPREAD: Final = 0.5
# Steepness of the probability of a right answer, per star above the mean.
_STEEPNESS: Final = 2.0


class SyntheticOrganisationsConfig(Settings, section="data"):
    """Size and shape of synthetic organisations.

    Args:
        clients: number of organisations.
        users: users per organisation.
        items: size of the common catalogue.
        listed: share of the catalogue that an organisation lists; at least 10 items.
        attributes: number of attributes; an item has one to three.
        mean_records: records per user on average.
        shift: standard deviation of a client's shift of taste over that of a user's taste.
        noise: standard deviation of a score around its expectation.
        binary: whether scores are 0 and 1 instead of 1 to 5.
        seed: seed of all draws.

    Raises:
        ConfigError: a value is out of its range; the key is ``data.<field>``.
    """

    clients: Count = 4
    users: Count = 30
    items: Annotated[int, Within(least=10)] = 60
    listed: Rate = 0.6
    attributes: Count = 6
    mean_records: Annotated[float, Within(least=_FEWEST_RECORDS)] = 20.0
    shift: NonNegative = 1.0
    noise: Annotated[NonNegative, Unit("stars")] = 0.4
    binary: bool = False
    seed: Natural


def generate_organisations(
    config: SyntheticOrganisationsConfig, *, shares: SplitShares | None = None
) -> Organisations:
    """Draws synthetic organisations.

    Args:
        config: their size, shape and seed.
        shares: of every user's records, held out; 20 % and 10 % by default.

    Returns:
        The organisations, a function of the arguments alone.
    """
    rng = np.random.Generator(np.random.PCG64(config.seed))
    attributes = _draw_attributes(config, rng)
    quality = _ITEM_SPREAD * rng.standard_normal(config.items)
    drawn = [_draw_client(config, attributes, quality, rng) for _ in range(config.clients)]
    counts = [len(scores) for _, _, scores in drawn]
    clients = np.repeat(np.arange(config.clients), counts)
    users = np.concatenate([users for users, _, _ in drawn]) + clients * config.users
    items = np.concatenate([items for _, items, _ in drawn])
    return organise(
        name="synthetic",
        names=[f"organisation {client}" for client in range(config.clients)],
        clients=clients,
        users=users,
        items=items,
        scores=np.concatenate([scores for _, _, scores in drawn]),
        parts=draw_parts(users, items, shares=shares or SplitShares(), seed=config.seed),
        attributes=attributes,
        attribute_names=[f"attribute {number}" for number in range(config.attributes)],
        levels=np.array([0.0, 1.0]) if config.binary else np.arange(1.0, 6.0),
    )


def _draw_attributes(config: SyntheticOrganisationsConfig, rng: np.random.Generator) -> BoolArray:
    """bool[items, K], one to three attributes each."""
    keys = rng.random((config.items, config.attributes))
    wanted = rng.integers(1, 1 + min(3, config.attributes), size=config.items)
    ranks = np.argsort(np.argsort(keys, axis=1), axis=1)
    own: BoolArray = ranks < wanted[:, None]
    return own


def _draw_client(
    config: SyntheticOrganisationsConfig,
    attributes: BoolArray,
    quality: FloatArray,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Users 0 .. users - 1, items and scores of one client."""
    listed = max(10, round(config.listed * config.items))
    catalogue = rng.permutation(config.items)[:listed]
    shift = config.shift * rng.standard_normal(config.attributes)
    tastes = shift + rng.standard_normal((config.users, config.attributes))
    tastes /= np.sqrt(1.0 + config.shift**2)
    counts = np.clip(rng.poisson(config.mean_records, config.users), _FEWEST_RECORDS, listed)
    users = np.repeat(np.arange(config.users), counts)
    items = np.concatenate([catalogue[rng.permutation(listed)[:count]] for count in counts])
    own = attributes[items]
    liking = (tastes[users] * own).sum(axis=1) / own.sum(axis=1)
    score = _TASTE_SPREAD * liking + quality[items] + config.noise * rng.standard_normal(len(items))
    if config.binary:
        right = rng.random(len(items)) < 1.0 / (1.0 + np.exp(-_STEEPNESS * score))
        return users, items, right.astype(np.float64)
    return users, items, np.clip(np.rint(_MEAN + score), 1.0, 5.0)
