"""What an attack is: a reader of one adversary's view that makes claims about clients.

An attack never sees the truth. It states what it claims (which items a client rated, with what
ratings, what the client's vector is, who sent an anonymous message, and what ``claims`` lists
beside these); the harness in ``games`` opens the truth and scores the claims. Where a view lacks
what an attack needs, it answers ``NotApplicable`` with the reason, never a silent coin flip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attacks.claims import DraftClaim, FeatureClaim, HistogramClaim, LabelClaim, SetClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, WordArray
from secure_fedrec.wire import View

__all__ = [
    "AnonymousRowClaim",
    "Attack",
    "AttackCard",
    "Claims",
    "LinkClaim",
    "NotApplicable",
    "RatedSetClaim",
    "RatingClaim",
    "VectorClaim",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackCard:
    """An attack in words.

    Args:
        game: what the adversary has to tell apart.
        adversary: the threat model.
        needs: what its view must hold.
        statistic: how claims are computed.
        reference: where the idea comes from.
        limits: when it does not work, and what it does not show.
    """

    game: str
    adversary: str
    needs: str
    statistic: str
    reference: str
    limits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """The view lacks what the attack needs.

    Args:
        reason: what is missing.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedSetClaim:
    """How likely each item is to be in a client's rated set.

    Args:
        clients: int64[B], whom the claim is about.
        scores: float64[B, m], higher means more likely rated.
        visible: bool[B, m], items the adversary saw in any message of that client.
        predicted: bool[B, m], the rated set as guessed outright; None if the attack only ranks.
        history: round count -> float[B, m], scores had the adversary stopped after so many rounds.
    """

    clients: IntArray
    scores: FloatArray
    visible: BoolArray
    predicted: BoolArray | None = None
    history: Mapping[int, FloatArray] = field(default_factory=dict)

    @classmethod
    def about_nobody(cls) -> "RatedSetClaim":
        """No claim: about no client."""
        grid = np.zeros((0, 0))
        return cls(clients=np.zeros(0, dtype=np.int64), scores=grid, visible=grid > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingClaim:
    """Ratings of (client, item) pairs.

    Args:
        clients: int64[N].
        items: int64[N].
        ratings: float64[N].
    """

    clients: IntArray
    items: IntArray
    ratings: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VectorClaim:
    """Private vectors of clients at the start of a round.

    Args:
        round: which round.
        clients: int64[B].
        vectors: float64[B, d].
        table: name of the private table whose rows they are.
    """

    round: int
    clients: IntArray
    vectors: FloatArray
    table: str = "user_vectors"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkClaim:
    """Senders of the anonymous messages of a round, by several kinds of evidence.

    Args:
        round: which round.
        tags: uint64[K], the messages.
        senders: int64[B], the clients that could have sent them.
        fits: evidence -> bool[K, B], which of them fit which message.
    """

    round: int
    tags: WordArray
    senders: IntArray
    fits: Mapping[str, BoolArray]

    @property
    def candidates(self) -> dict[str, IntArray]:
        """Evidence -> int64[K], how many clients fit."""
        return {kind: fit.sum(axis=1) for kind, fit in self.fits.items()}

    @property
    def guesses(self) -> dict[str, IntArray]:
        """Evidence -> int64[K], the one client that fits; -1 where none or several do."""
        return {
            kind: np.where(fit.sum(axis=1) == 1, self.senders[fit.argmax(axis=1)], -1)
            for kind, fit in self.fits.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnonymousRowClaim:
    """Rows of single clients, read off the sum of a round without knowing whose they are.

    Args:
        round: which round.
        items: int64[N], items that exactly one client of the round is said to have rated.
        groups: int64[N], rows of one group are said to be of one client: numbers below G.
        ratings: float64[N]; counts where ``named``.
        named: bool[N], whether the rating is claimed.
        vectors: float64[G, d], private vectors of the groups; count where ``solved``.
        solved: bool[G], whether the vector is claimed.
        owners: int64[G], the client of each group; -1 where none is named.
    """

    round: int
    items: IntArray
    groups: IntArray
    ratings: FloatArray
    named: BoolArray
    vectors: FloatArray
    solved: BoolArray
    owners: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """Everything an attack claims.

    Args:
        rounds: rounds whose messages it used.
        rated: rated sets; about no client where an attack claims none.
        ratings: ratings.
        vectors: private vectors, one claim per round.
        links: senders, one claim per round.
        rows: rows whose clients are not named, one claim per round.
        unmasked: bool[B, m] aligned with ``rated``: visible items proven to be virtual.
        labels: a secret class of each client.
        sets: secret sets that are not rated sets.
        histograms: secret counts of each client, as shares.
        features: from which attributes of the clients may be told.
        drafts: vectors of members of clients, one claim per kind.
        details: what else is worth reporting, as JSON values.
    """

    rounds: tuple[int, ...]
    rated: RatedSetClaim = field(default_factory=RatedSetClaim.about_nobody)
    ratings: RatingClaim | None = None
    vectors: tuple[VectorClaim, ...] = ()
    links: tuple[LinkClaim, ...] = ()
    rows: tuple[AnonymousRowClaim, ...] = ()
    unmasked: BoolArray | None = None
    labels: LabelClaim | None = None
    sets: tuple[SetClaim, ...] = ()
    histograms: HistogramClaim | None = None
    features: FeatureClaim | None = None
    drafts: tuple[DraftClaim, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Attack(Protocol):
    """An attack.

    One that decodes the payloads of a single round says so with ``reads_one_round = True``; the
    harness then tries it on every recorded round. One that does not take the rows of the shared
    table for items says so with ``reads_item_rows = False``; the others are not asked where they
    are something else.
    """

    @property
    def name(self) -> str:
        """Its name on the command line and in reports."""
        ...

    @property
    def card(self) -> AttackCard:
        """Its description."""
        ...

    def run(self, view: View) -> Claims | NotApplicable:
        """Make claims from a view."""
        ...


def client_grid(
    clients: IntArray, senders: IntArray, rows: IntArray, n_items: int
) -> tuple[IntArray, BoolArray]:
    """Positions of (sender, row) pairs in a [client, item] grid.

    Args:
        clients: int64[B], ascending.
        senders: int64[N], each one of ``clients``.
        rows: int64[N].
        n_items: m.

    Returns:
        (flat positions int64[N], bool[B, m] with those positions set).
    """
    flat = np.searchsorted(clients, senders) * n_items + rows
    grid = np.zeros(len(clients) * n_items, dtype=bool)
    grid[flat] = True
    return flat, grid.reshape(len(clients), n_items)
