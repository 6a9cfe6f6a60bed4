"""A method on a case of an evaluation by ranking."""

from collections.abc import Mapping

from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.algorithms.item_tables.single_tables import item_tables
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.evaluation.ranks import client_figures, client_ranks


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
