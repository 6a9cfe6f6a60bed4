"""Rows proven virtual: what is no proof gains nothing."""

import numpy as np

from attacks.scoring.gains import Gain
from attacks.scoring.virtual_rows import UnmaskedClaim, unmasked_figures


def test_proving_all_that_was_seen_gains_nothing_of_clients_whose_rated_rows_were_not() -> None:
    rng = np.random.default_rng(4)
    rated = rng.random((60, 40)) < 0.2
    visible = rated | (rng.random(rated.shape) < 0.2)
    visible[::2] &= ~rated[::2]
    claim = UnmaskedClaim(clients=np.arange(60), visible=visible, proven=visible)
    figures, gains = unmasked_figures(claim, rated, frozenset())
    gain = gains["unmasked_lift"]
    assert figures["unmasked_share"] == 1.0
    assert isinstance(gain, Gain)
    assert np.isnan(gain.values[::2]).all() and (gain.values[1::2] == 0.0).all()
