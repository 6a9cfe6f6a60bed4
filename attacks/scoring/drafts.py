"""Figures of drafts: which members' vectors they give away, and where members are.

A draft is the mean of some members' vectors. It *discloses* a member if it equals the member's own
vector, and it *places* a member if the draft closest to its vector came from its client. The
adversary would need the vector to look up a place: that figure is an upper bound.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attacks.base import NotApplicable
from attacks.claims import DraftClaim
from attacks.scoring.scored import (
    Figures,
    Scored,
    hit_interval,
    hit_null,
    interval_figures,
    is_honest,
    shifted,
)
from secure_fedrec.arrays import FloatArray, IntArray
from secure_fedrec.wire import Truth

__all__ = ["Members", "of_disclosed", "score_drafts"]

_EQUAL = 1e-6
"""Relative distance below which a draft is the member's vector."""

_BLOCK = 1 << 22


class Members(NamedTuple):
    """The members of all clients when they gave their drafts.

    Attributes:
        vectors: float64[M, d].
        clients: int64[M], whose members they are.
    """

    vectors: FloatArray
    clients: IntArray

    @classmethod
    def of(cls, claim: DraftClaim, recorded: Truth) -> "Members | None":
        """Read the truth: what a client's vault held when the next round began."""
        columns = recorded.columns(claim.round + 1, f"private-{claim.table}")
        if columns is None:
            return None
        lengths = columns["lengths"]
        return cls(columns["values"], np.repeat(np.arange(len(lengths)), lengths))


def score_drafts(
    claim: DraftClaim, members: Members, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge drafts of one kind.

    - ``disclosed_share``: members whose vector is a draft;
    - ``holder_accuracy``: members whose closest draft came from their client, where drafts arrive
      under a name; ``_chance``: had drafts been dealt to clients at random; ``_lift``: above it.

    Args:
        claim: the claim.
        members: the truth.
        corrupted: the adversary's own clients; their members and drafts are left out.
        seed: of the bootstrap and of the null control.
    """
    judged = is_honest(members.clients, corrupted)
    given = is_honest(claim.owners, corrupted)
    if not judged.any() or not given.any():
        return NotApplicable(reason="there is no draft, or no member, of another client")
    vectors, clients = members.vectors[judged], members.clients[judged]
    drafts, owners = claim.vectors[given], claim.owners[given]
    nearest, distances = _nearest(vectors, drafts)
    sizes = np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(np.float64).tiny)
    disclosed = (distances < _EQUAL * sizes).astype(np.float64)
    figures: Figures = interval_figures("disclosed_share", hit_interval(disclosed, seed=seed))
    null = None
    if (owners >= 0).all():
        placed = owners[nearest] == clients
        chance = _chance(owners[nearest], clients)
        share = hit_interval(placed.astype(np.float64), seed=seed)
        figures |= {
            **interval_figures("holder_accuracy", share),
            "holder_chance": chance,
            **interval_figures("holder_lift", shifted(share, chance)),
        }
        dealt = np.random.default_rng(seed).permutation(clients)
        hits = (owners[nearest] == dealt).astype(np.float64)
        null = hit_null(f"{claim.prefix}holder_accuracy", hits, chance)
    return Scored(
        figures={f"{claim.prefix}{name}": value for name, value in figures.items()},
        units={"clients": len(vectors), "pairs": vectors.size, "positives": int(disclosed.sum())},
        details={f"{claim.prefix}drafts": len(drafts)},
        null_control=null,
    )


def of_disclosed(told: Scored) -> Scored:
    """What members' own vectors tell of their attributes, which is what a disclosed one gives away.

    Drafts themselves are not asked: to look a member's draft up by its vector would bring in the
    vector, and any set of points, however noisy, would then seem to tell its attributes.
    """
    names = ("attribute_auc", "attribute_auc_low", "attribute_auc_high")
    figures = {f"disclosed_{name}": told.figures[name] for name in names}
    return replace(told, figures=figures)


def _nearest(vectors: FloatArray, drafts: FloatArray) -> tuple[IntArray, FloatArray]:
    """The draft closest to each vector, and its distance: int64[M], float64[M].

    Args:
        vectors: float64[M, d].
        drafts: float64[N, d], N > 0.
    """
    nearest = np.empty(len(vectors), dtype=np.int64)
    distances = np.empty(len(vectors))
    step = max(1, _BLOCK // drafts.size)
    for start in range(0, len(vectors), step):
        part = slice(start, start + step)
        # Differences and not the products of a quick formula, in which equal vectors are not at 0.
        found = np.linalg.norm(vectors[part, None] - drafts[None], axis=2)
        nearest[part] = found.argmin(axis=1)
        distances[part] = found.min(axis=1)
    return nearest, distances


def _chance(guesses: IntArray, clients: IntArray) -> float:
    """Share of hits if the guesses were dealt to the members at random."""
    size = int(max(guesses.max(), clients.max())) + 1
    shares = [np.bincount(each, minlength=size) / len(each) for each in (guesses, clients)]
    return float((shares[0] * shares[1]).sum())
