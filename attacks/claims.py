"""Claims about what split and hierarchical personalization keep at home, beside rated sets.

A claim has the name by which the harness knows the truth about it (in ``GroundTruth.labels``,
``sets`` and ``histograms``); a private table has its name in the vault.
"""

from dataclasses import dataclass

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

__all__ = ["DraftClaim", "FeatureClaim", "HistogramClaim", "LabelClaim", "SetClaim"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelClaim:
    """How likely each class is to be a client's own.

    Args:
        name: what the classes are.
        clients: int64[B].
        scores: float64[B, C], the highest is the guess.
    """

    name: str
    clients: IntArray
    scores: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetClaim:
    """How likely each element is to be in a client's set.

    Args:
        name: what the elements are.
        clients: int64[B].
        scores: float64[B, C], higher means more likely.
        predicted: bool[B, C], the set as guessed outright; None if the attack only ranks.
    """

    name: str
    clients: IntArray
    scores: FloatArray
    predicted: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistogramClaim:
    """How a client's records are distributed.

    Args:
        name: what the bins are.
        clients: int64[B].
        shares: float64[B, K], at least 0, of sum 1 for each client.
        activity: float64[B], grows with the number of records.
    """

    name: str
    clients: IntArray
    shares: FloatArray
    activity: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureClaim:
    """What was recovered of each client, to tell its attributes from.

    The adversary knows the attributes of some clients and trains a classifier on their features;
    the harness plays that part, as it has the labels.

    Args:
        clients: int64[B].
        features: float64[B, F].
    """

    clients: IntArray
    features: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftClaim:
    """Vectors that clients gave in the place of their members' own.

    Args:
        round: the round they were given in, after its local training.
        table: private table of the members' vectors.
        vectors: float64[N, d].
        owners: int64[N], the client each came from; -1 where nobody is named.
        prefix: put before the names of the figures.
        tells_people: whether the members are the people whose attributes are known.
    """

    round: int
    table: str
    vectors: FloatArray
    owners: IntArray
    prefix: str = ""
    tells_people: bool = False
