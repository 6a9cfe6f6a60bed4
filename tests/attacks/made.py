"""What an attack claimed, by kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks import Claims, GroundTruth, NotApplicable
from attacks.base import Claim
from attacks.families.ratings.lattice import Lattice
from attacks.scoring.item_sets import ItemSets, Joined, joined
from attacks.scoring.ranking import table_of
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.tables import ScoreTable
from attacks.scoring.truth import Case, Scored
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.evaluation.intervals import Interval, mean_interval
from secure_fedrec.wire import BlockStore, Truth, View


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedGrids(RatedSetClaim):
    """A claim whose fields are grids."""

    scores: FloatArray
    visible: BoolArray
    predicted: BoolArray | None = None
    history: Mapping[int, FloatArray] = field(default_factory=dict)


class LatticeAt:
    """The lattice decode of a round that is asked for."""

    name, card = Lattice.name, Lattice.card

    def __init__(self, round_: int) -> None:
        self._round = round_

    def run(self, view: View) -> Claims | NotApplicable:
        """Claims from that round alone."""
        return Lattice().run(view.at(self._round))


def table_of_marks(rated: BoolArray) -> RatingTable:
    """Ratings of one value where a grid is marked."""
    clients, items = np.nonzero(rated)
    return RatingTable.from_columns(
        name="marks",
        n_clients=len(rated),
        n_items=rated.shape[1],
        clients=clients,
        items=items,
        ratings=np.ones(len(items)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(len(rated)),
        item_labels=np.arange(rated.shape[1]),
    )


def scored_by(
    claim: Claim,
    recorded: Truth | None = None,
    corrupted: frozenset[int] = frozenset(),
    seed: int = 0,
    *,
    train: RatingTable | None = None,
) -> Scored:
    """A claim that yields one judgement."""
    truth = GroundTruth(recorded=recorded or Truth(BlockStore(None)), train=train)
    (scored,) = claim.scored(Case(truth=truth, corrupted=corrupted, seed=seed))
    return scored


def rated_of(claims: Claims) -> RatedGrids:
    """The rated sets."""
    return rated_grids(claims.of(RatedSetClaim)[0])


def rated_grids(claim: RatedSetClaim) -> RatedGrids:
    """The claim as grids."""
    guessed = claim.predicted
    return RatedGrids(
        clients=claim.clients,
        scores=grid_of(claim.scores),
        visible=grid_of(claim.visible),
        predicted=None if guessed is None else grid_of(guessed),
        history={rounds: grid_of(each) for rounds, each in claim.history.items()},
    )


def grid_of(said: npt.NDArray[Any] | Rows) -> npt.NDArray[Any]:
    """What is said of every client and item: [B, m]."""
    return said.grid() if isinstance(said, Rows) else said


def predicted_of(claims: Claims) -> BoolArray:
    """The rated sets as guessed outright."""
    guessed = rated_of(claims).predicted
    assert guessed is not None
    return guessed


def proven_of(claims: Claims) -> BoolArray:
    """Items proven to be virtual; none where no such claim is made."""
    told = claims.of(UnmaskedClaim)
    return grid_of(told[0].proven) if told else np.zeros_like(rated_of(claims).visible)


def table_of_grids(scores: FloatArray, labels: BoolArray) -> ScoreTable:
    """The game of a grid of scores against a grid of marks."""
    return table_of(Rows.of_grid(scores), joined_grids(labels))


def joined_grids(labels: BoolArray) -> Joined:
    """All pairs of a grid of marks."""
    whole, span = ItemSets.whole(*labels.shape), slice(0, len(labels))
    return joined(whole, ItemSets.of_grid(labels), span)


def mean_auc_interval(
    table: ScoreTable, *, seed: int, confidence: float = 0.95, draws: int = 2000
) -> Interval:
    """Mean of the defined per-client AUCs, each client weighing the same, with its interval."""
    aucs = per_client_auc(table)
    return mean_interval(aucs, seed=seed, confidence=confidence, draws=draws, span=1.0)
