"""What an attack claimed, by kind."""

import numpy as np

from attacks import Claims
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.statistics import ScoreTable, per_client_auc
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.evaluation.intervals import Interval, mean_interval


def rated_of(claims: Claims) -> RatedSetClaim:
    """The rated sets."""
    return claims.of(RatedSetClaim)[0]


def predicted_of(claims: Claims) -> BoolArray:
    """The rated sets as guessed outright."""
    guessed = rated_of(claims).predicted
    assert guessed is not None
    return guessed


def proven_of(claims: Claims) -> BoolArray:
    """Items proven to be virtual; none where no such claim is made."""
    told = claims.of(UnmaskedClaim)
    return told[0].proven if told else np.zeros_like(rated_of(claims).visible)


def mean_auc_interval(
    table: ScoreTable, *, seed: int, confidence: float = 0.95, draws: int = 2000
) -> Interval:
    """Mean of the defined per-client AUCs, each client weighing the same, with its interval."""
    aucs = per_client_auc(table)
    return mean_interval(aucs, seed=seed, confidence=confidence, draws=draws, span=1.0)
