"""Data sets of top-N recommendation, prepared as in Fed3CR's tables."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.filters import filtered
from secure_fedrec.data.movielens import latest_ml_1m
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.registry import load, locate
from secure_fedrec.errors import ConfigError

FEWEST: Final[Mapping[str, int]] = MappingProxyType(
    {"ml-100k": 10, "ml-1m": 10, "lastfm-2k": 10, "douban-book": 5}
)
"""Fewest interactions of a client that stays, by data set (Fed3CR, Table I)."""


class TopN(NamedTuple):
    """A prepared data set.

    Attributes:
        table: interactions of clients with enough of them; items with at least one interaction.
        latest: int64[n_clients], the last item of every client where its time is not in the table;
            None elsewhere. ``evaluation.protocols.ranking_case`` takes both.
    """

    table: RatingTable
    latest: IntArray | None

    def fingerprint(self) -> str:
        """Of the interactions."""
        return self.table.fingerprint()


def load_top_n(name: str, data_dir: Path | None = None) -> TopN:
    """Load a data set without the clients that the tables leave out.

    Args:
        name: one of ``FEWEST``.
        data_dir: see ``registry.locate``.

    Raises:
        ConfigError: the data set is unknown.
        DataError: as ``registry.load``.
    """
    if name not in FEWEST:
        raise ConfigError("data.name", name, "is not prepared for top-N recommendation", FEWEST)
    whole = load(name, data_dir)
    part = filtered(whole, min_ratings=FEWEST[name], min_raters=1)
    if name != "ml-1m" or whole.timestamps is not None:
        return TopN(part.table, None)
    return TopN(part.table, part.items[latest_ml_1m(locate(name, data_dir))[part.clients]])
