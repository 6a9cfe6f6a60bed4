"""Drafts of noise place nobody, however alike the members of one client are."""

import numpy as np
import pytest

from attacks.scoring.drafts import DraftClaim, Matches, Members, score_drafts
from attacks.scoring.gains import Level

FEDERATIONS = 60


@pytest.mark.parametrize("apart", [1.0, 3.0])
def test_members_that_are_placed_together_are_one_guess(apart: float) -> None:
    """Members of a client lie around a centre: one draft of noise is the closest to all of them."""
    certain, mean = 0, 0.0
    for seed in range(FEDERATIONS):
        rng = np.random.default_rng(seed)
        clients = np.repeat(np.arange(10), 60)
        centres = apart * rng.standard_normal((10, 6))
        members = Members(centres[clients] + rng.standard_normal((600, 6)), clients)
        claim = DraftClaim(
            round=1,
            table="user_embeddings",
            vectors=np.hypot(1.0, apart) * rng.standard_normal((50, 6)),
            owners=np.repeat(np.arange(10), 5),
        )
        matches = Matches.of(claim, members, frozenset())
        assert isinstance(matches, Matches)
        figures = score_drafts(matches, prefix="", seed=seed).at(Level(seed=seed))
        lift, limit = figures["holder_lift"], figures["holder_lift_certain"]
        assert lift is not None
        assert limit is not None
        mean += lift / FEDERATIONS
        certain += limit > 0
    assert abs(mean) < 0.03
    assert certain == 0
