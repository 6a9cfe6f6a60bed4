"""A planted federation whose clients train on sampled negatives and leak held-out items.

A client sends a row for every positive and for every negative of the round: the private vector for
positives and its negative for negatives, each times a different factor. Nothing is learnt. Data,
split and draws are those of an evaluation by ranking, so under the clean protocol what is never
touched tells nothing.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attacks.families.item_changes import SCORE_TABLE
from attacks.planted.recording import PlantedSum, planted_secrets, protected, recorded
from attacks.scoring.held_out import held_out_grid
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.negatives import Ragged, draw_negatives
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.evaluation.protocols import ranking_case
from secure_fedrec.streams import Streams
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import RowBlock, Upload
from secure_fedrec.vault import Vault

_CLIENTS, _ITEMS, _RATINGS, _ROUNDS = 60, 120, 14.0, 10
_NEGATIVES = 4


@dataclass(frozen=True, slots=True, eq=False)
class PlantedUntouched(PlantedSum):
    """The algorithm; see the module docstring.

    Args:
        items: rows of the table.
        kept_out: items from which a client's negatives are never drawn.
        rounds: rounds of a run.
    """

    width = 4

    items: int
    kept_out: Ragged
    rounds: int

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """A vector of every client."""
        draws = streams.stream("planted-start").generator()
        vault.create(SCORE_TABLE, draws.normal(size=(vault.n_clients, self.width)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Rows of positives and of this round's negatives, of all clients at once."""
        rated = vault.rated(clients)
        drawn = draw_negatives(
            Ragged(rated.indptr, rated.items),
            self.kept_out.of_all(clients),
            self.items,
            per_positive=_NEGATIVES,
            stream=streams.stream("negatives"),
            round=public.round + 1,
            clients=clients,
        )
        owners = np.repeat(np.arange(len(clients)), np.diff(drawn.indptr))
        grid = np.zeros((len(clients), self.items))
        draws = streams.stream("planted-sizes").generator(lane=public.round)
        grid[owners, drawn.items] = 2 * drawn.labels - 1
        rows, items = np.nonzero(grid)
        sizes = grid[rows, items] * draws.uniform(0.2, 0.8, len(rows))
        ends = np.searchsorted(rows, np.arange(len(clients) + 1))
        values = sizes[:, None] * vault.read(SCORE_TABLE, clients)[rows]
        block = RowBlock(indptr=ends, rows=items.astype(np.int32), values=values)
        upload = Upload(clients=clients, blocks={TABLE: block})
        return FinishedStep(clients=clients, upload=upload, commit=lambda _: None)

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """All items at most."""
        return np.minimum(vault.example_counts() * (1 + _NEGATIVES), n_rows)

    def public_knowledge(self) -> dict[str, Any]:
        """Rows are items, some of which are not positives."""
        traits = RowTraits(rows="items", row_sets="drawn", form="scored")
        return {"name": "planted-untouched", "traits": asdict(traits)}


def plant_untouched(
    *, protocol: str = "published", rounds: int = _ROUNDS, seed: int = 20240501
) -> tuple[RecordedRun, GroundTruth]:
    """Run and record it.

    Args:
        protocol: protocol of the evaluation, which says what negatives are drawn from.
        rounds: rounds of training.
        seed: seed of data, split and draws.
    """
    data = SyntheticConfig(clients=_CLIENTS, items=_ITEMS, mean_ratings=_RATINGS, seed=seed)
    case = ranking_case(generate(data), protocol=protocol, seed=seed, negatives=1)
    algorithm = PlantedUntouched(case.n_items, case.kept_out, rounds)
    vault = Vault(indptr=case.rated.indptr, items=case.train.items, ratings=case.train.ratings)
    known = {"n_items": case.n_items, "negatives": _NEGATIVES}
    problem = Problem(vault=vault, n_rows=case.n_items, knowledge=known)
    streams = Streams.from_seed(seed)
    run = recorded(algorithm, problem, protected(algorithm, problem, streams, {}), streams, (2,))
    secrets = planted_secrets({"held_out": held_out_grid(case)}, "untouched")
    return run, GroundTruth(recorded=run.truth, train=case.train, secrets=secrets)
