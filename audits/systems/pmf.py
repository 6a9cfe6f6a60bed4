"""Federated PMF on rating tables, with every kind of protection: FedRec, FedRec++, SDCF, FedMF.

Parts that are not specific to PMF serve every algorithm that learns from rating tables
(``rating_system``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attacks.suite import FAMILIES
from audits.rating_data import (
    FILE,
    RatingData,
    RatingFileData,
    Source,
    load_source,
    rated_sets,
    table_facts,
)
from audits.system import DataFacts, DataKind, Fresh, Nouns, Secrets, Statement, System, Wanted
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.algorithms.base import RatingAlgorithm
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.registry import Derived
from secure_fedrec.data import DATASETS, RatingTable, Split
from secure_fedrec.engines import rating_problem
from secure_fedrec.engines.rating_problems import held_out_ranks, ranking_problem
from secure_fedrec.evaluation import (
    Pairs,
    RankingFigure,
    RatingFigure,
    Rule,
    figures_of,
    rating_quality,
    score_rules,
)
from secure_fedrec.protection import RECORDS, STACKS, Claim

_PMF = "federated PMF"
"""Words for claims of layers over rows, by the algorithm."""

Learner: TypeAlias = Callable[[Any], RatingAlgorithm]
"""Makes an algorithm of its settings."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RatingTask:
    """An algorithm on one fold of a rating table.

    Args:
        settings: settings of the algorithm.
        table: the whole data set.
        split: its training and test ratings.
        learner: the algorithm.
        implicit: whether they are implicit feedback, which is ranked, not predicted.
    """

    settings: Any
    table: RatingTable
    split: Split
    learner: Learner = PMF
    implicit: bool = False

    @cached_property
    def facts(self) -> DataFacts:
        """The table in figures, and what trivial rules reach."""
        train, test = self.split
        rules = _ranking_rules(self.split) if self.implicit else _rules(self.split)
        nouns = Nouns(examples="interactions") if self.implicit else Nouns()
        return table_facts(self.table, train=train, test=len(test), baselines=rules, nouns=nouns)

    def identity(self) -> str:
        """Digest of training and test ratings."""
        parts = "|".join(part.fingerprint() for part in self.split)
        return sha256(parts.encode()).hexdigest()

    def fresh(self) -> Fresh:
        """The algorithm, the training ratings in vaults, and the error on the test ratings.

        For implicit feedback, instead, the rank of every held-out item among all others.
        """
        algorithm = self.learner(self.settings)
        if self.implicit:
            return Fresh(algorithm, ranking_problem(algorithm, self.split))
        return Fresh(algorithm, rating_problem(algorithm, self.split.train, self.split.test))

    def secrets(self) -> Secrets:
        """The training ratings."""
        return {"ratings": rated_sets(self.split.train)}

    def public(self) -> dict[str, Any]:
        """Only the size of the table, in addition to the settings."""
        return {}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """An empty mapping: a client only gets its ratings."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """A rating table and the folds of its split.

    Args:
        data: its settings.
        algorithm: settings of the algorithm.
        source: the ratings.
        seed: seed of the split.
        learner: the algorithm.
    """

    data: RatingData | RatingFileData
    algorithm: Any
    source: Source
    seed: int
    learner: Learner = PMF

    @property
    def folds(self) -> Sequence[int]:
        """The audited fold and those after it, as many as the utility averages over."""
        steps = range(self.data.utility_folds)
        return [(self.data.fold + step) % self.data.folds for step in steps]

    def task(self, fold: int) -> RatingTask:
        """One fold."""
        split = self.data.parts(self.source, seed=self.seed, fold=fold)
        if self.data.implicit and (split.test.counts() > 1).any():
            problem = "of implicit feedback one row per client is held out"
            raise self.data.refusal("split", problem)
        if not len(split.test):
            raise self.data.refusal("split", "holds nothing out: no client has two ratings")
        return RatingTask(
            settings=self.algorithm,
            table=self.source.table,
            split=split,
            implicit=self.data.implicit,
            learner=self.learner,
        )


def load_ratings(wanted: Wanted, *, learner: Learner = PMF) -> Ratings:
    """Read the rating table of a configuration.

    Raises:
        DataError: it is missing, damaged, or holds a rating outside its scale.
    """
    return Ratings(
        data=wanted.data,
        algorithm=wanted.algorithm,
        source=load_source(wanted),
        seed=wanted.seed,
        learner=learner,
    )


def rating_system(
    name: str, learner: Learner, settings: type, *, title: str = "", **others: Any
) -> System:
    """The system of an algorithm that learns from rating tables and predicts ratings.

    Args:
        name: in configurations: that of the module.
        learner: the algorithm.
        settings: their class.
        title: what it is called in claims; its name if left out.
        others: further fields of ``System``, its statement at least.
    """
    figures = {"metrics": figures_of(RatingFigure), "implicit": figures_of(RankingFigure)}
    of_set, of_file = (DataKind(kind, settings, **figures) for kind in (RatingData, RatingFileData))
    return System(
        name=name,
        kinds=MappingProxyType({**dict.fromkeys(DATASETS, of_set), FILE: of_file}),
        default_data="synthetic",
        claims=STACKS if title == _PMF else Derived(partial(_claims_of, title or name), RECORDS),
        attacks=FAMILIES["ratings"],
        load=partial(load_ratings, learner=learner),
        device=lambda algorithm, facts, own: learner(algorithm),
        **others,
    )


def _claims_of(title: str) -> Mapping[tuple[str, ...], Claim]:
    """The claims of stacks over an algorithm in the place of PMF."""

    def named(claim: Claim) -> Claim:
        if _PMF in claim.system:
            return replace(claim, system=claim.system.replace(_PMF, title))
        return replace(claim, system=f"{title} with the protection of {claim.system}")

    return {names: named(claim) for names, claim in STACKS.items()}


def _rules(split: Split) -> dict[str, Rule]:
    train, test = (Pairs(part.clients, part.items, part.ratings) for part in split)
    if not len(train.scores) or not len(test.scores):
        return {}
    low, high = split.test.scale.low, split.test.scale.high

    def quality(predicted: FloatArray) -> dict[str, float]:
        return rating_quality(predicted, test.scores, low=low, high=high)

    return score_rules(train, test, quality)


def _ranking_rules(split: Split) -> dict[str, Rule]:
    """How well item popularity alone ranks."""
    popularity = split.train.item_popularity().astype(np.float64)
    found = held_out_ranks(split, lambda client, items: popularity[items])
    return {"items by popularity": Rule(figures=found)} if found else {}


def _lossless(algorithm: Any) -> bool:
    """Whether losslessness is possible: not if user vectors train on virtual ratings."""
    return bool(algorithm.user_update != "rated+virtual")


def _statement(algorithm: Any) -> Statement:
    biases = algorithm.biases
    return Statement(
        name="federated probabilistic matrix factorization (as in FedRec, Lin et al. 2020)"
        + (", with biases" if biases else ""),
        stays="ratings and user vectors" + (", every user's mean and slope" if biases else ""),
        leaves="a gradient row for every item rated, summed at the server into item "
        + ("biases and vectors" if biases else "vectors"),
    )


SYSTEM = rating_system("pmf", PMF, PMFConfig, title=_PMF, statement=_statement, lossless=_lossless)
