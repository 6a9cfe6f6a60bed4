"""Rows proven virtual: what is no proof gains nothing."""

import numpy as np

from attacks.scoring.gains import Gain
from attacks.scoring.virtual_rows import UnmaskedClaim
from tests.attacks.made import scored_by, table_of_marks


def test_proving_all_that_was_seen_gains_nothing_of_clients_whose_rated_rows_were_not() -> None:
    rng = np.random.default_rng(4)
    rated = rng.random((60, 40)) < 0.2
    visible = rated | (rng.random(rated.shape) < 0.2)
    visible[::2] &= ~rated[::2]
    claim = UnmaskedClaim(clients=np.arange(60), visible=visible, proven=visible)
    scored = scored_by(claim, train=table_of_marks(rated))
    figures, gain = scored.figures, scored.gains["unmasked_lift"]
    assert figures["unmasked_share"] == 1.0
    assert isinstance(gain, Gain)
    assert np.isnan(gain.values[::2]).all() and (gain.values[1::2] == 0.0).all()


def test_naming_the_least_popular_rows_gains_nothing_and_a_proof_does() -> None:
    rng = np.random.default_rng(5)
    chances = 0.9 / np.sqrt(np.arange(1, 121))  # few items are popular, as anywhere
    rated = rng.random((80, 120)) < chances
    visible = rated | (rng.random(rated.shape) < 0.15)
    held_by_others = rated.sum(axis=0, dtype=np.float64)[None, :] - rated
    popularity = np.where(visible, held_by_others, np.nan)
    unpopular = popularity <= np.nanmedian(popularity, axis=1)[:, None]
    guessed = UnmaskedClaim(clients=np.arange(80), visible=visible, proven=unpopular)
    scored = scored_by(guessed, train=table_of_marks(rated))
    figures, gain = scored.figures, scored.gains["unmasked_lift"]
    assert isinstance(gain, Gain)
    assert figures["unmasked_share"] is not None
    assert figures["unmasked_share"] > 0.6  # which would look like much
    assert abs(np.nanmean(gain.values)) < 0.03
    proved = UnmaskedClaim(clients=np.arange(80), visible=visible, proven=visible & ~rated)
    known = scored_by(proved, train=table_of_marks(rated)).gains["unmasked_lift"]
    assert isinstance(known, Gain)
    assert np.nanmean(known.values) > 0.3
