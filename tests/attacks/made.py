"""What an attack claimed, by kind."""

import numpy as np

from attacks import Claims
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import BoolArray


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
