"""Data sets of top-N recommendation have the sizes that tables state."""

import os
from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.data import latest_ml_1m, load, locate
from secure_fedrec.data.top_n import FEWEST, load_top_n
from secure_fedrec.errors import ConfigError

FOLDER = os.environ.get("SECURE_FEDREC_DATA")
with_data = pytest.mark.skipif(not FOLDER, reason="SECURE_FEDREC_DATA is not set")

SIZES = {
    "ml-100k": (943, 1682, 100_000),
    "ml-1m": (6040, 3706, 1_000_209),
    "lastfm-2k": (1874, 17_612, 92_780),
    "douban-book": (1696, 6777, 95_107),
}


def test_every_prepared_set_is_tested() -> None:
    assert set(SIZES) == set(FEWEST)
    with pytest.raises(ConfigError, match="top-N"):
        load_top_n("assist2009")


@pytest.mark.data
@with_data
@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_tables(name: str) -> None:
    table, latest = load_top_n(name, Path(str(FOLDER)))
    assert (table.n_clients, table.n_items, len(table)) == SIZES[name]
    assert table.counts().min() >= FEWEST[name]
    assert table.item_popularity().min() >= 1
    if name != "ml-1m":
        assert latest is None
        return
    whole = load(name, Path(str(FOLDER)))
    asked = latest_ml_1m(locate(name, Path(str(FOLDER))))
    assert latest is not None
    assert np.array_equal(table.item_labels[latest], whole.item_labels[asked])
