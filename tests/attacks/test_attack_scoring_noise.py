"""What the judgement makes of strange claims: no number, counts of all, limits of skewed gains."""

import numpy as np
import pytest

from attacks.scoring.attributes import FeatureClaim, People, score_attributes
from attacks.scoring.drafts import DraftClaim, Matches, Members
from attacks.scoring.gains import Gain, Level
from attacks.scoring.profiles import HistogramClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.truth import Scored
from attacks.scoring.vectors import VectorClaim
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import BlockStore, Truth
from tests.attacks.made import scored_by

CLIENTS = np.arange(50)
NOBODY: frozenset[int] = frozenset()
STRANGE = [np.nan, np.inf, -np.inf]


def mostly(strange: float, right: FloatArray) -> FloatArray:
    """Right about five clients, and no number about all others."""
    claimed = right.copy()
    claimed[5:] = strange
    return claimed


@pytest.mark.parametrize("strange", STRANGE)
def test_a_claim_that_is_no_number_is_refused_and_not_left_out(strange: float) -> None:
    """Left out, five vectors named of fifty would read "100 % of the vectors are named"."""
    rng = np.random.default_rng(0)
    vectors, records = rng.standard_normal((50, 5)), rng.poisson(3.0, (50, 6)).astype(np.float64)
    records += 1
    store = BlockStore(None)
    store.append(1, "private-user_vectors", {"values": vectors})
    store.seal(1)
    named = VectorClaim(round=1, clients=CLIENTS, vectors=mostly(strange, vectors))
    with pytest.raises(ValueError, match="claimed vectors must be finite"):
        scored_by(named, Truth(store), NOBODY, 0)
    shares = mostly(strange, records / records.sum(axis=1, keepdims=True))
    read = HistogramClaim(name="h", clients=CLIENTS, shares=shares, activity=np.ones(50))
    with pytest.raises(ValueError, match="claimed histograms must be finite"):
        HistogramClaim.judged(read, records, NOBODY, 0)
    features = FeatureClaim(clients=CLIENTS, features=mostly(strange, vectors)).features
    with pytest.raises(ValueError, match="features must be finite"):
        score_attributes(People(features, {"a": CLIENTS % 2}, None), seed=0)
    drafts = DraftClaim(
        round=1, table="users", vectors=mostly(strange, vectors), owners=CLIENTS.copy()
    )
    with pytest.raises(ValueError, match="drafts must be finite"):
        Matches.of(drafts, Members(vectors, CLIENTS), NOBODY)


def test_counts_of_all_clients_tell_no_set_of_one() -> None:
    lifts = []
    for seed in range(10):
        sets = np.random.default_rng(seed).random((20, 12)) < 0.3
        counts = np.tile(sets.sum(axis=0).astype(np.float64), (20, 1))
        said = SetClaim(name="set", clients=np.arange(20), scores=counts)
        scored = SetClaim.judged(said, sets, NOBODY, 0)
        assert isinstance(scored, Scored)
        figures = scored.at(Level(seed=0))
        lift, limit = figures["set_lift"], figures["set_lift_certain"]
        assert lift is not None
        assert limit is not None
        assert limit < 0
        lifts.append(lift)
    assert lifts.count(0.0) >= 6  # elsewhere counts are not clearly better than chance


def test_few_that_lose_much_are_allowed_for() -> None:
    """One in ten loses 0.9 and the others gain 0.1: no gain, and Student's limit alone forgets."""
    rng, level = np.random.default_rng(1), Level(seed=0)
    wrong = 0
    for _ in range(2000):
        loses = rng.random(60) < 0.1
        gains = np.where(loses, -0.9, 0.1) + 1e-3 * rng.standard_normal(60)
        limit = Gain(gains).certain(level)
        assert limit is not None
        wrong += limit > 0
    assert wrong <= 8
