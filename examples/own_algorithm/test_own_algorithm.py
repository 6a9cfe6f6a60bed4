"""The algorithm keeps the contracts of algorithms and of systems."""

from own_algorithm import BPR, SYSTEM, BPRConfig

from audits.contracts import SystemContract
from secure_fedrec.algorithms.item_tables.single_tables import item_tables
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import Problem
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.testing import AlgorithmContract

RATINGS = generate(SyntheticConfig(clients=6, items=12, mean_ratings=5.0, seed=2))


class TestBPR(AlgorithmContract):
    """What an engine takes for granted."""

    def algorithm(self):
        """Of a small model."""
        return item_tables(BPR(BPRConfig(rank=2), 12), RATINGS.n_clients)

    def problem(self):
        """A few ratings."""
        return Problem(vault=vault_of(RATINGS), n_rows=12, knowledge={"n_items": 12})


class TestSystem(SystemContract):
    """What an audit takes for granted."""

    system = SYSTEM
