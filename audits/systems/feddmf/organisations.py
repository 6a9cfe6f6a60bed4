"""FedDMF on a rating table that is cut into organisations: settings of the data, and the task."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from audits.rating_data import FileData, Sample, TableData, load_source, table_facts
from audits.system import DataFacts, Fresh, Nouns, Secrets, Undivided, Wanted, digest_of
from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.algorithms.feddmf.exchanged import ExchangedFedDMF
from secure_fedrec.algorithms.feddmf.served import ServedFedDMF
from secure_fedrec.algorithms.feddmf.summed import AveragedDMF, SummedFedDMF
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import DATASETS, RatingTable
from secure_fedrec.data.organisations.common_items import (
    CommonItems,
    CommonItemsConfig,
    Part,
    split_common_items,
)
from secure_fedrec.engines import Problem
from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.evaluation import Rule
from secure_fedrec.evaluation.scores import area_under_curve
from secure_fedrec.settings import OneOf, Settings, Within
from secure_fedrec.vault import Vault

_CANDIDATES: Final = 1000
"""Number of users whose records a partner is assumed to have, in equal parts from all
organisations."""

_NOUNS = Nouns(clients="organisations", examples="interactions")

FORMS: dict[str, type[ExchangedFedDMF] | type[SummedFedDMF] | type[AveragedDMF]] = {
    "exchanged": ExchangedFedDMF,
    "served": ServedFedDMF,
    "summed": SummedFedDMF,
    "averaged": AveragedDMF,
}


class Cut(Settings, section="cut"):
    """How a table is cut into organisations; see ``CommonItemsConfig``.

    Args:
        organisations: how many.
        common: share of the items that all organisations have.
        users: share of the users that are the first organisation's; equal parts if left out.
        items: share of the items that are not common that are the first organisation's; likewise.
    """

    organisations: Annotated[int, Within(least=2)] = 2
    common: Part = 0.5
    users: Part | None = None
    items: Part | None = None

    def config(self, seed: int) -> CommonItemsConfig:
        """The same as settings of the cut."""
        return CommonItemsConfig(seed=seed, **asdict(self))


class CutData(Sample, TableData):
    """Ratings as interactions of the users of several organisations; see ``TableData``, ``Sample``.

    Args:
        cut: which users and items are whose.

    Raises:
        ConfigError: a field is out of range, or shapes a table that is not synthetic.
    """

    name: Annotated[str, OneOf(DATASETS, "unknown data set")] = "ml-100k"
    cut: Cut = field(default_factory=Cut)
    implicit = True  # only whether an item was rated counts


class CutFileData(Sample, FileData):
    """The same of one's own files; see ``RatingsFile`` and ``Sample``.

    Args:
        cut: which users and items are whose.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    cut: Cut = field(default_factory=Cut)
    implicit = True


class FedDMFSettings(FedDMFConfig, section="algorithm"):
    """FedDMF; see ``FedDMFConfig``.

    Args:
        form: what organisations send: vectors of common items, "exchanged" between organisations or
            "summed" by a server; those of all items ("served"), so that others can recommend them;
            or, of the baseline, "averaged" vectors and layers.

    Raises:
        ConfigError: a field is out of range.
    """

    form: Annotated[str, OneOf(tuple(FORMS))] = "exchanged"


@dataclass(frozen=True, kw_only=True, eq=False)
class CutTask:
    """A form of FedDMF on organisations with common items.

    Args:
        settings: settings of the algorithm.
        table: the whole data set.
        data: the organisations.
    """

    settings: FedDMFSettings
    table: RatingTable
    data: CommonItems

    @cached_property
    def facts(self) -> DataFacts:
        """The organisations in figures, and what the items' popularity elsewhere tells."""
        known = sum(len(self.data.known(place)[0]) for place in range(self.data.n_organisations))
        sales = np.maximum(self.sales, 0)

        def popularity(client: int, items: IntArray) -> FloatArray:
            others = sales.sum(axis=0) - sales[client]
            return np.tile(others[items].astype(np.float64), (int(self.data.n_users[client]), 1))

        rule = Rule(figures=self._auc(popularity))
        facts = table_facts(
            self.table,
            train=self.table,
            test=len(self.table) - known,
            nouns=_NOUNS,
            baselines={"interactions of other organisations' users": rule},
        )
        return replace(facts, clients=self.data.n_organisations, train=known)

    @cached_property
    def sales(self) -> IntArray:
        """int64[n, m], interactions with each item at each organisation; -1 for missing items."""
        own = self.data
        counts = np.full(own.listed.shape, -1, dtype=np.int64)
        for place in range(own.n_organisations):
            items = own.items_of(place)
            counts[place, items] = np.bincount(own.known(place)[1], minlength=len(items))
        return counts

    def identity(self) -> str:
        """Digest of the organisations' items and of all interactions."""
        names = ("listed", "asked", "n_users", "indptr", "users", "items")
        return digest_of({name: getattr(self.data, name) for name in names})

    def fresh(self) -> Fresh:
        """The algorithm, interactions in vaults, and how well others' items are predicted."""
        algorithm = FORMS[self.settings.form](self.settings, self.data)

        def evaluate(public: PublicState, vault: Vault) -> dict[str, float]:
            def scores(client: int, items: IntArray) -> FloatArray:
                return algorithm.across(vault, client, items)

            return self._auc(scores)

        problem = Problem(
            vault=self.data.vault(),
            n_rows=self.data.n_items,
            evaluate=evaluate,
            knowledge={"n_items": self.data.n_items},
        )
        return Fresh(algorithm, problem)

    def public(self) -> dict[str, Any]:
        """Sizes, and which items are common, as every organisation knows."""
        own = self.data
        sizes = {"n_organisations": own.n_organisations, "n_items": own.n_items}
        return {**sizes, "common": np.flatnonzero(own.common).tolist()}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """An organisation's items, and how many users it has."""
        listed, users = self.data.listed[client], self.data.n_users[client]
        return {"client": np.array(client), "listed": listed, "users": np.array(users)}

    def secrets(self) -> Secrets:
        """How often each item was interacted with at each organisation, and by whose users."""
        return {"secrets": {"sales.items": self.sales, "members.users": self.users}}

    @cached_property
    def users(self) -> npt.NDArray[np.int8]:
        """int8[n, C, m + 1], as ``MembersClaim`` has it: some users of all organisations."""
        own, items = self.data, np.arange(self.data.n_items)
        owner = np.repeat(np.arange(own.n_organisations), own.n_users)
        records = np.concatenate([own.truth(n, items) for n in range(own.n_organisations)])
        kept = np.linspace(0, len(owner) - 1, min(len(owner), _CANDIDATES)).astype(np.int64)
        found = np.zeros((own.n_organisations, len(kept), own.n_items + 1), dtype=np.int8)
        found[:, :, :-1] = records[kept] & own.listed[:, None]
        found[:, :, -1] = owner[kept] == np.arange(own.n_organisations)[:, None]
        return found

    def _auc(self, scores: Callable[[int, IntArray], FloatArray]) -> dict[str, float]:
        """Mean over organisations of the AUC of their users' interactions with others' items."""
        found: list[float] = []
        for client in range(self.data.n_organisations):
            items = np.flatnonzero(self.data.asked[client] & ~self.data.common)
            truth = self.data.truth(client, items)
            if len(items):
                auc = area_under_curve(scores(client, items).reshape(-1), truth.reshape(-1))
                found += [] if auc is None else [auc]
        return {"auc": float(np.mean(found))} if found else {}


def device(
    algorithm: FedDMFSettings, facts: Mapping[str, Any], own: Mapping[str, npt.NDArray[Any]]
) -> Algorithm:
    """A form of FedDMF on a host of its own (``System.device``).

    The other organisations are represented by the common items and one user each; interactions are
    in the vault.

    Raises:
        ConfigError: organisations would give each other vectors of items that are not common.
    """
    if algorithm.form == "served":
        problem = "runs in the embedded engine only: hosts know the common items of others alone"
        allowed = tuple(form for form in FORMS if form != "served")
        raise ConfigError("algorithm.form", algorithm.form, problem, allowed)
    n, common = facts["n_organisations"], np.array(facts["common"], dtype=np.int64)
    listed: BoolArray = np.zeros((n, facts["n_items"]), dtype=np.bool_)
    listed[:, common] = True
    n_users = np.ones(n, dtype=np.int64)
    if own:
        listed[int(own["client"])], n_users[int(own["client"])] = own["listed"], own["users"]
    pairs = 2 * n_users  # the fewest that are taken for a user's
    known = [np.flatnonzero(row)[:2] for row in listed]
    data = CommonItems(
        name="one organisation",
        listed=listed,
        asked=np.zeros_like(listed),
        n_users=n_users,
        indptr=np.concatenate([[0], np.cumsum(pairs)]),
        users=np.concatenate([np.repeat(np.arange(count), 2) for count in n_users.tolist()]),
        items=np.concatenate(
            [np.tile(items, count) for items, count in zip(known, n_users.tolist(), strict=True)]
        ),
    )
    return FORMS[algorithm.form](algorithm, data)


def load_organisations(wanted: Wanted) -> Undivided:
    """Read the rating table of a configuration, and cut it.

    Raises:
        DataError: it is missing or damaged.
        ConfigError: two organisations have no item in common, or a user too few interactions.
    """
    data: CutData | CutFileData = wanted.data
    table = load_source(wanted).table
    with renamed_keys({"data.common": "data.cut.common"}):
        organisations = split_common_items(table, data.cut.config(wanted.seed), name=table.name)
    return Undivided(CutTask(settings=wanted.algorithm, table=table, data=organisations))
