"""Federated EASE: one sum of co-occurrences, scores at the clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from attacks.suite import FAMILIES
from audits.item_tables import METRICS, RankingData, RankingFileData, RankingTask, load_case
from audits.rating_data import FILE
from audits.system import DataKind, Fresh, Statement, System
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.ease import EASE, EASEConfig
from secure_fedrec.data import DATASETS
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.evaluation.ranks import Ranks, client_figures, client_ranks, quality
from secure_fedrec.protection import Claim, Subject, claims_about
from secure_fedrec.vault import Vault

_TOGETHER = 2**22
"""Number of scores held in memory at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EASETask(RankingTask):
    """EASE on one case of an evaluation by ranking; see ``RankingTask``."""

    @property
    @override
    def negatives(self) -> int:
        """No negatives are drawn."""
        return 0

    @override
    def fresh(self) -> Fresh:
        """The algorithm, rows of 0 and 1 in vaults."""
        case = self.case
        algorithm = EASE(self.settings, case.n_clients, case.n_items)

        def evaluate(public: PublicState, vault: Vault) -> Mapping[str, float]:
            return ranked_figures(algorithm, public, case)

        rated = case.rated
        ones = np.ones(len(rated.items))  # whatever the ratings are: that there are some counts
        vault = Vault(indptr=rated.indptr, items=rated.items, ratings=ones)
        return Fresh(algorithm, self.problem(vault, evaluate))


def ranked_figures(algorithm: EASE, public: PublicState, case: RankingCase) -> dict[str, float]:
    """Means of all figures of ``client_figures``.

    Args:
        algorithm: made for the case.
        public: its state.
        case: the held-out items.
    """
    at_once = max(1, _TOGETHER // case.n_items)
    clients = np.arange(case.n_clients)
    parts = [
        client_ranks(case, some, algorithm.scores(public, case.rated.of_all(some)))
        for some in np.split(clients, np.arange(at_once, len(clients), at_once))
    ]
    ranks = Ranks(*map(np.concatenate, zip(*parts, strict=True)))
    return quality(client_figures(case, clients, ranks))


def _device(algorithm: Any, facts: Mapping[str, Any], own: Mapping[str, npt.NDArray[Any]]) -> EASE:
    """The algorithm on a host of its own, without measurements."""
    return EASE(algorithm, facts["n_clients"], facts["n_items"])


def _statement(config: EASEConfig) -> Statement:
    after = "" if not config.candidates else ", and under which shrinkages it found an item"
    return Statement(
        name="Federated EASE (after Steck 2019)",
        stays="interactions and scores",
        leaves=f"which pairs of items a client has, once{after}",
        remark="A client's pairs are its interactions: who reads one upload reads all of them, and "
        "a pair that few people have is a fact about few people in the sum as well.",
    )


_SETTINGS = partial(DataKind, algorithm=EASEConfig, metrics=METRICS)

SYSTEM = System(
    name="ease",
    statement=_statement,
    kinds=MappingProxyType(
        {**dict.fromkeys(DATASETS, _SETTINGS(RankingData)), FILE: _SETTINGS(RankingFileData)}
    ),
    default_data="ml-100k",
    claims=claims_about(
        Subject(
            name="federated EASE",
            things="pairs of items",
            uploads="which pairs of items every client has",
            sums="how many clients have each pair of items",
            few="a pair that few clients have names what they have in common",
            bears_noise=True,
        ),
        Claim(
            system="federated EASE, unprotected",
            hides="nothing of what is sent; scores are not sent",
            assumes="nothing",
            lossless=True,
            found="the diagonal of an upload is the client's interactions",
        ),
    ),
    attacks=FAMILIES["co-occurrences"],
    libraries=("numba", "scipy"),
    load=partial(load_case, task=EASETask),
    device=_device,
)
