"""Figures of drafts: which members' vectors they disclose, and to which client members belong.

A draft is the mean of some members' vectors. It *discloses* a member if it equals the member's own
vector, and it *places* a member if the draft closest to its vector came from its client. The
adversary would need the vector to look up the client, so this figure is an upper bound. Attributes
are predicted from the vectors of disclosed members only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from attacks.base import InapplicableError, need
from attacks.scoring.attributes import KIND, People, score_attributes
from attacks.scoring.chance import by_client, hit_interval, hit_null
from attacks.scoring.gains import Figures, Gain, Gains, interval_figures
from attacks.scoring.truth import Case, Scored, is_honest, require_finite
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.intervals import mean_interval
from secure_fedrec.wire import Truth

_EQUAL = 1e-6
"""Relative distance below which a draft is the member's vector."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftClaim:
    """Vectors that clients gave in the place of their members' own.

    Args:
        round: the round they were given in, after its local training.
        table: private table of the members' vectors.
        vectors: float64[N, d].
        owners: int64[N], the client each came from; -1 if not named.
        prefix: put before the names of the figures.
        tells_people: whether the members are the persons with known attributes.
    """

    round: int
    table: str
    vectors: FloatArray
    owners: IntArray
    prefix: str = ""
    tells_people: bool = False

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the members' vectors, and what disclosed ones tell of their attributes."""
        missing = f"the truth holds no {self.table} of round {self.round + 1}"
        members = need(Members.of(self, case.truth.recorded), missing)
        matches = Matches.of(self, members, case.corrupted)
        yield score_drafts(matches, prefix=self.prefix, seed=case.seed)
        attributes = case.truth.of_kind(KIND)
        if self.tells_people and attributes:
            yield score_disclosed(matches, attributes, seed=case.seed)


class Members(NamedTuple):
    """The members of all clients when they gave their drafts.

    Attributes:
        vectors: float64[M, d].
        clients: int64[M], the clients that the members belong to.
    """

    vectors: FloatArray
    clients: IntArray

    @classmethod
    def of(cls, claim: DraftClaim, recorded: Truth) -> "Members | None":
        """Read the truth: the members' vectors in clients' vaults when the next round began."""
        columns = recorded.columns(claim.round + 1, f"private-{claim.table}")
        if columns is None:
            return None
        lengths = columns["lengths"]
        return cls(columns["values"], np.repeat(np.arange(len(lengths)), lengths))


class Matches(NamedTuple):
    """The members that are judged, each beside the draft closest to its vector.

    Attributes:
        members: int64[M'], positions among all members.
        vectors: float64[M', d], theirs.
        clients: int64[M'], theirs.
        holders: int64[M'], the sender of the closest draft; -1 without a name.
        disclosed: bool[M'], whether that draft is the member's vector.
        drafts: number of drafts.
        named: whether all of them came under a name.
    """

    members: IntArray
    vectors: FloatArray
    clients: IntArray
    holders: IntArray
    disclosed: BoolArray
    drafts: int
    named: bool

    @classmethod
    def of(cls, claim: DraftClaim, members: Members, corrupted: frozenset[int]) -> "Matches":
        """Match members and drafts of clients that are not the adversary's own.

        Args:
            claim: the claim.
            members: the truth.
            corrupted: the adversary's own clients; their members and drafts are left out.

        Raises:
            ValueError: a draft is not finite.
        """
        from scipy.spatial import KDTree  # noqa: PLC0415 - who only reads of attacks need not wait

        require_finite("drafts", claim.vectors)
        judged = np.flatnonzero(is_honest(members.clients, corrupted))
        given = is_honest(claim.owners, corrupted)
        need(len(judged) and given.any(), "another client's draft or member is missing")
        vectors, owners = members.vectors[judged], claim.owners[given]
        distances, nearest = KDTree(claim.vectors[given]).query(vectors)
        sizes = np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(np.float64).tiny)
        return cls(
            members=judged,
            vectors=vectors,
            clients=members.clients[judged],
            holders=owners[nearest],
            disclosed=distances < _EQUAL * sizes,
            drafts=len(owners),
            named=bool((owners >= 0).all()),
        )


def score_drafts(matches: Matches, *, prefix: str, seed: int) -> Scored:
    """Judge drafts of one kind.

    - ``disclosed_share``: members whose vector is a draft;
    - ``holder_accuracy``: members whose closest draft came from their client, where drafts arrive
      under a name; ``_chance``: if drafts were assigned to clients at random; ``_lift``: the gain
      over that. Intervals and limits resample clients, whose members are placed together.

    Args:
        matches: members beside their closest drafts.
        prefix: prefix of the figures' names.
        seed: seed of the bootstrap and of the null control.
    """
    clients, holders = matches.clients, matches.holders
    disclosed = matches.disclosed.astype(np.float64)
    figures: Figures = interval_figures("disclosed_share", hit_interval(disclosed, seed=seed))
    null = None
    gains: Gains = {}
    if matches.named:
        placed = (holders == clients).astype(np.float64)
        chance = _chance(holders, clients)
        share = mean_interval(by_client(placed, clients), seed=seed, span=1.0)
        # Clients are weighted by members, so a resampled share may exceed 1.
        share = replace(share, low=max(0.0, share.low), high=min(1.0, share.high))
        figures |= {**interval_figures("holder_accuracy", share), "holder_chance": chance}
        gains = {f"{prefix}holder_lift": Gain(by_client(placed - chance, clients))}
        dealt = np.random.default_rng(seed).permutation(clients)
        hits = (holders == dealt).astype(np.float64)
        null = hit_null(f"{prefix}holder_accuracy", hits, chance)
    vectors = matches.vectors
    return Scored(
        figures={f"{prefix}{name}": value for name, value in figures.items()},
        gains=gains,
        units={"clients": len(vectors), "pairs": vectors.size, "positives": int(disclosed.sum())},
        details={f"{prefix}drafts": matches.drafts},
        null_control=null,
    )


def score_disclosed(matches: Matches, attributes: Mapping[str, IntArray], *, seed: int) -> Scored:
    """Score how well the vectors of disclosed members predict their attributes.

    The vectors of all others, which no party has seen, are used neither to train nor to judge the
    classifier. Nor is the draft closest to such a vector: looking it up would use the vector, and
    any set of points, however noisy, would then seem to reveal its attributes.

    Args:
        matches: members beside their closest drafts.
        attributes: name -> int64[M], class of every member of every client; -1 where unknown.
        seed: seed of folds, bootstrap and null control.

    Returns:
        ``disclosed_attribute_auc`` and its interval, None where too few members are disclosed.
    """
    members = matches.members[matches.disclosed]
    own = {name: classes[members] for name, classes in attributes.items()}
    people = People(matches.vectors[matches.disclosed], own, ceiling=None)
    try:
        told = score_attributes(people, seed=seed)
    except InapplicableError:
        return Scored(figures=interval_figures("disclosed_attribute_auc", None), units={})
    names = ("attribute_auc", "attribute_auc_low", "attribute_auc_high")
    figures = {f"disclosed_{name}": told.figures[name] for name in names}
    return replace(told, figures=figures, gains={})


def _chance(guesses: IntArray, clients: IntArray) -> float:
    """Share of hits if the guesses were assigned to the members at random."""
    size = int(max(guesses.max(), clients.max())) + 1
    shares = [np.bincount(each, minlength=size) / len(each) for each in (guesses, clients)]
    return float((shares[0] * shares[1]).sum())
