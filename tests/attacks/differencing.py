"""Two releases of a mean that differ by one member give that member away.

A client of hierarchical personalization with few users sends a single draft, their mean. If one of
them leaves and nothing else changes, n times the old mean less n - 1 times the new one is the
vector of who left (Denning and Schlörer 1983). It is no attack of the suite: a recorded run has one
membership throughout, so the game is played on the release alone.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from secure_fedrec.core.arrays import FloatArray

Release: TypeAlias = Callable[[FloatArray], FloatArray]
"""What a client gives for its members' vectors: float64[drafts, d] from float64[n, d]."""


def leaver(before: FloatArray, after: FloatArray, members: int) -> FloatArray:
    """The vector of the member that left.

    Args:
        before: float64[d], mean of all members.
        after: float64[d], mean of the others.
        members: how many there were, at least 2.
    """
    if members < 2:
        raise ValueError("of a single member nobody stays to take the difference from")
    return np.asarray(members * before - (members - 1) * after)


def leaver_cosines(members: FloatArray, release: Release) -> FloatArray:
    """Cosine of the found and the true vector, had each member of a client been the one to leave.

    Args:
        members: float64[n, d], at least two.
        release: how the client makes its drafts.

    Returns:
        float64[n]; empty where the client gives more than one draft.
    """
    everybody = release(members)
    if len(everybody) != 1:
        return np.zeros(0)
    found = []
    for one in range(len(members)):
        others = release(np.delete(members, one, axis=0))
        vector = leaver(everybody[0], others[0], len(members))
        length = np.linalg.norm(vector) * np.linalg.norm(members[one])
        found.append(float(vector @ members[one] / length) if length > 0 else 0.0)
    return np.array(found)
