"""FURL on implicit feedback: neural collaborative filtering whose user vectors stay home."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from audits.rating_data import attribute_columns, load_source, rated_sets, table_facts
from audits.system import DataFacts, Fresh, Nouns, Secrets, Undivided, Wanted, digest_of
from audits.systems.furl.checks import USERS, SplitCase
from audits.systems.furl.settings import InteractionData, InteractionFileData, NCFSettings
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_training import Batch, one_thread
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingTable
from secure_fedrec.data.interactions import Interactions, sample_interactions
from secure_fedrec.engines import Problem
from secure_fedrec.evaluation import Rule
from secure_fedrec.evaluation.ranking import held_out_quality
from secure_fedrec.models.ncf.split import ITEM_TABLE, PRIVATE, NCFSplit, ncf_loss
from secure_fedrec.vault import Vault

_NOUNS = Nouns(clients="clients", items="items", examples="interactions")


def learner(settings: NCFSettings, n_items: int) -> FURL:
    """FURL of a model of so many items."""
    model = settings.model(n_items)
    return FURL(lambda: NCFSplit(model), ncf_loss, settings.furl, private=PRIVATE)


@dataclass(frozen=True, kw_only=True, eq=False)
class InteractionTask:
    """FURL on one split of a rating table.

    Args:
        settings: settings of the algorithm.
        table: the whole data set.
        interactions: its training part, with negatives, and the held-out items.
        negatives: how many were sampled per interaction.
    """

    settings: NCFSettings
    table: RatingTable
    interactions: Interactions
    negatives: int

    @cached_property
    def facts(self) -> DataFacts:
        """The table in figures, and how well item popularity alone ranks."""
        held = self.interactions.held_out
        popularity = self.interactions.positives.item_popularity().astype(np.float64)
        found = Rule(figures=self._quality(lambda client: popularity))
        return table_facts(
            self.table,
            train=self.interactions.positives,
            test=int(np.count_nonzero(held >= 0)),
            nouns=_NOUNS,
            baselines={"items by popularity": found},
        )

    def identity(self) -> str:
        """Digest of positives, negatives and held-out items."""
        own = self.interactions
        columns = {name: getattr(own, name) for name in ("indptr", "items", "ratings", "held_out")}
        return digest_of(columns)

    def fresh(self) -> Fresh:
        """FURL, the examples in vaults, and the rank of every held-out item among all others."""
        algorithm = learner(self.settings, self.interactions.n_items)
        problem = Problem(
            vault=self.interactions.vault(),
            evaluate=partial(self._measure, algorithm),
            knowledge={
                "item_table": ITEM_TABLE,
                "negatives": self.negatives,
                # The user vector is the first input of the model, which is public.
                "private_input": {"layer": "hidden.0.weight", "first": 0},
            },
        )
        return Fresh(algorithm, problem)

    def secrets(self) -> Secrets:
        """Training interactions, and the clients' attributes where the data set has any."""
        ratings = rated_sets(self.interactions.positives)
        return {"ratings": ratings, "secrets": attribute_columns(self.table)}

    def public(self) -> dict[str, Any]:
        """How many items there are."""
        return {"n_items": self.interactions.n_items}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """An empty mapping: a client only gets its examples."""
        return {}

    def split_case(self) -> SplitCase:
        """The model of the first users with their examples."""
        users = min(self.interactions.n_clients, USERS)
        model = self.settings.model(self.interactions.n_items)
        vault = self.interactions.vault()

        def loss(of_all: nn.Module, user: int, batch: Batch) -> Tensor:
            own = torch.full_like(batch["items"], user, dtype=torch.int64)
            return ncf_loss(of_all, {**batch, "users": own})

        return SplitCase(
            build=lambda: NCFSplit(model, users=users),
            loss=loss,
            private=PRIVATE,
            data=[vault.examples(user) for user in range(users)],
            training=self.settings.local,
        )

    def _measure(self, algorithm: FURL, public: PublicState, vault: Vault) -> dict[str, float]:
        items = torch.arange(self.interactions.n_items)

        def scores(client: int) -> FloatArray:
            model = algorithm.local_model(public, vault, client)
            found: FloatArray = model(items).double().numpy()
            return found

        with torch.no_grad(), one_thread():
            return self._quality(scores)

    def _quality(self, scores: Callable[[int], FloatArray]) -> dict[str, float]:
        """Quality of every client's ranking of the items it was not trained on as positives."""

        def candidates(client: int) -> BoolArray:
            others = np.ones(self.interactions.n_items, dtype=np.bool_)
            others[self.interactions.trained_on(client)] = False
            return others

        return held_out_quality(scores, self.interactions.held_out, candidates)


def load_feedback(wanted: Wanted) -> Undivided:
    """Read the rating table of a configuration, hold one item per client out, draw negatives.

    Raises:
        DataError: it is missing or damaged, or a client has nothing to train on.
    """
    data: InteractionData | InteractionFileData = wanted.data
    source, seed = load_source(wanted), wanted.seed
    split = source.leave_one_out(data.held_out, seed=seed)
    task = InteractionTask(
        settings=wanted.algorithm,
        table=source.table,
        interactions=sample_interactions(split, negatives=data.negatives, seed=seed),
        negatives=data.negatives,
    )
    return Undivided(task)
