"""A method on a case of an evaluation by ranking."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.algorithms.item_tables.single_tables import item_tables
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.evaluation.ranks import client_figures, client_ranks
from secure_fedrec.vault import Vault


def ranked(method: ItemTableMethod, case: RankingCase, *, threads: int | None = None) -> ItemTables:
    """The algorithm whose clients draw negatives and rank held-out items as a case says.

    Args:
        method: made for the case's items.
        case: its training table is what the vault holds.
        threads: as of ``ItemTables``.
    """

    def judge(clients: IntArray, scores: SingleArray) -> Mapping[str, FloatArray]:
        return client_figures(case, clients, client_ranks(case, clients, scores))

    return item_tables(method, case.n_clients, kept_out=case.kept_out, judge=judge, threads=threads)


def ranked_between_rounds(
    algorithm: ItemTables, case: RankingCase, public: PublicState, vault: Vault
) -> dict[str, FloatArray]:
    """Figures of all clients by the shared parameters as averaged, and their own as trained.

    Args:
        algorithm: made by ``ranked`` for the case.
        case: the held-out items.
        public: as the server has it after a round.
        vault: vault of the same training.

    Returns:
        float64[n] by name, as ``client_figures``.
    """
    found: dict[str, FloatArray] = {}
    table = public.table.astype(np.float32)
    for client in range(case.n_clients):  # one at a time: a dense method's models are large
        one = np.array([client])
        scores = algorithm.method.scores(algorithm.between_rounds(one, public, vault), table)
        for name, value in client_figures(case, one, client_ranks(case, one, scores)).items():
            found.setdefault(name, np.empty(case.n_clients))[client] = value[0]
    return found
