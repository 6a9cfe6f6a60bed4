"""HPFL on the records of organisations: settings of the data, and the task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from audits.rating_data import attribute_columns, given
from audits.system import DataFacts, Fresh, Nouns, Secrets, Undivided, Wanted, digest_of
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import (
    Organisations,
    SplitShares,
    SyntheticOrganisationsConfig,
    generate_organisations,
    load,
    load_organisations,
)
from secure_fedrec.data.organisations.catalogues import OneCatalogue
from secure_fedrec.data.organisations.tables import Records
from secure_fedrec.engines import Problem
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import Pairs, Rule, score_quality, score_rules
from secure_fedrec.settings import Settings
from secure_fedrec.studies.engine import bag_shapes
from secure_fedrec.vault import Vault

_NOUNS = Nouns(clients="organisations", items="items", examples="records")


class OrganisationData(SplitShares):
    """Records of organisations, and the shares of every user's that are held out.

    Args:
        name: data set.

    Raises:
        ConfigError: a share is out of range.
    """

    name: str


class SyntheticOrganisationData(OrganisationData):
    """Made-up organisations; the shape is that of ``SyntheticOrganisationsConfig``.

    Args:
        name: data set.

    Raises:
        ConfigError: a field is out of range.
    """

    shape_of: ClassVar[type[Settings]] = SyntheticOrganisationsConfig
    name: str = "synthetic"
    clients: int | None = None
    users: int | None = None
    items: int | None = None
    listed: float | None = None
    attributes: int | None = None
    mean_records: float | None = None
    shift: float | None = None
    noise: float | None = None
    binary: bool | None = None

    def _agree(self) -> None:
        _ = self.config(0)

    def config(self, seed: int) -> SyntheticOrganisationsConfig:
        """The same as settings of the generator."""
        shape = given(self, SyntheticOrganisationsConfig)
        return SyntheticOrganisationsConfig(seed=seed, **shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class OrganisationTask:
    """HPFL on one split of organisations' records.

    Scores are mapped to the range from 0 to 1 (``trained``), which is that of the model's link.
    With the highest level as its ``gum.scale`` it trains on them as they are, as the paper does.

    Args:
        settings: settings of the algorithm.
        organisations: the data set.
        groups: "attributes.NAME" -> int64[users of all organisations], which attacks try to infer.

    Raises:
        ConfigError: the user model cannot reach the highest score.
    """

    settings: HPFLConfig
    organisations: Organisations
    groups: Mapping[str, IntArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scale, (low, *_, highest) = self.settings.gum.scale, self.organisations.levels.tolist()
        choices = (1.0, highest) if low >= 0 and highest != 1.0 else (1.0,)
        if scale not in choices:
            problem = f"scores go from {low:g} to {highest:g}; 1 maps them to the range from 0 to 1"
            raise ConfigError("algorithm.gum.scale", scale, problem, choices)

    @cached_property
    def trained(self) -> Organisations:
        """The organisations with the scores that the model is trained on."""
        own, levels = self.organisations, self.organisations.levels
        if self.settings.gum.link == "sigmoid" and self.settings.gum.scale == levels[-1]:
            return own
        return own.on((levels - levels[0]) / (levels[-1] - levels[0]))

    @cached_property
    def facts(self) -> DataFacts:
        """The organisations in figures, and what trivial rules reach."""
        own = self.organisations
        parts = (own.train, own.validation, own.test)
        return DataFacts(
            name=own.name,
            fingerprint=self.identity(),
            clients=own.n_clients,
            items=len(np.unique(np.concatenate(own.item_ids))),
            examples=sum(map(len, parts)),
            train=len(own.train) + len(own.validation),
            test=len(own.test),
            nouns=_NOUNS,
            baselines=organisation_rules(own),
        )

    def identity(self) -> str:
        """Digest of all records and of their parts."""
        own = self.organisations
        columns: dict[str, npt.NDArray[Any]] = {}
        for part in ("train", "validation", "test"):
            records = getattr(own, part)
            named = {"indptr": records.indptr, **records.columns()}
            columns |= {f"{part}.{name}": values for name, values in named.items()}
        items = np.concatenate([attributes.ravel() for attributes in own.attributes])
        return digest_of({**columns, "attributes": items, "levels": own.levels})

    def fresh(self) -> Fresh:
        """HPFL, training and validation records in vaults, and the quality on the test records."""
        algorithm, own = HPFL(self.settings, self.trained), self.organisations

        def evaluate(public: PublicState, vault: Vault) -> Mapping[str, float] | None:
            if not len(own.test):
                return {}
            predicted = [
                algorithm.predict_scores(vault, client, *own.test.of(client)[:2])
                for client in range(own.n_clients)
            ]
            scores = np.concatenate(predicted)
            if self.trained is not own:
                scores = own.levels[0] + scores * np.ptp(own.levels)
            return _quality(own, scores)

        problem = Problem(
            vault=self.trained.vault(),
            n_rows=algorithm.rows,
            evaluate=evaluate,
            knowledge={
                "attributes": list(own.attribute_names),
                "levels": self.trained.levels.tolist(),
            },
        )
        return Fresh(algorithm, problem, bag_shapes(algorithm.bag_sizes))

    def public(self) -> dict[str, Any]:
        """How many organisations and attributes there are, and the levels that are trained on."""
        own = self.organisations
        sizes = {"n_clients": own.n_clients, "n_attributes": own.n_attributes}
        return {**sizes, "levels": self.trained.levels.tolist()}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """How many users an organisation has, and the attributes of its items."""
        own = self.organisations
        numbers = {"client": np.array(client), "users": np.array(own.n_users[client])}
        return {**numbers, "items": own.attributes[client]}

    def secrets(self) -> Secrets:
        """Training records per attribute of every organisation, and groups of their users."""
        own = self.organisations
        counts = [
            own.attributes[client][own.train.of(client).items].sum(axis=0)
            for client in range(own.n_clients)
        ]
        histograms = np.array(counts, dtype=np.float64)
        return {"secrets": {"histograms.attributes": histograms, **self.groups}}


def device(
    algorithm: HPFLConfig, facts: Mapping[str, Any], own: Mapping[str, npt.NDArray[Any]]
) -> HPFL:
    """HPFL on a host of its own (``System.device``)."""
    nothing: BoolArray = np.ones((1, facts["n_attributes"]), dtype=np.bool_)
    catalogue = OneCatalogue(
        client=int(own["client"]) if own else None,
        n_clients=facts["n_clients"],
        users=int(own["users"]) if own else 1,
        items=own.get("items", nothing),
        levels=np.array(facts["levels"]),
    )
    return HPFL(algorithm, catalogue)


def organisation_rules(own: Organisations) -> dict[str, Rule]:
    """The quality of trivial rules on the test records, with means of the training records.

    Rules by the organisation's own mean or its users' means need no other organisation.
    """
    if not len(own.test):
        return {}
    train, test = (_pairs(own, part) for part in (own.train, own.test))
    means = [own.train.of(client).scores.mean() for client in range(own.n_clients)]
    within = _quality(own, np.repeat(means, own.test.counts()))
    return {
        "mean score of the organisation": Rule(figures=within, local=True),
        **score_rules(train, test, partial(_quality, own)),
    }


def _quality(own: Organisations, predicted: FloatArray) -> dict[str, float]:
    return score_quality(predicted, own.test.scores, own.levels).metrics()


def _pairs(own: Organisations, records: Records) -> Pairs:
    """Records under the numbers of the whole data set, organisation after organisation."""
    parts = [records.of(client) for client in range(own.n_clients)]
    users = [ids[part.users] for ids, part in zip(own.user_ids, parts, strict=True)]
    items = [ids[part.items] for ids, part in zip(own.item_ids, parts, strict=True)]
    return Pairs(np.concatenate(users), np.concatenate(items), records.scores)


def load_records(wanted: Wanted) -> Undivided:
    """Read or make the organisations of a configuration.

    Raises:
        DataError: the data set is missing or damaged.
        ConfigError: the user model cannot reach the highest score.
    """
    data, seed, data_dir = wanted.data, wanted.seed, wanted.data_dir
    if isinstance(data, SyntheticOrganisationData):
        organisations = generate_organisations(data.config(seed), shares=data)
    else:
        organisations = load_organisations(data.name, data_dir, seed=seed, shares=data)
    groups = _groups(organisations, data_dir) if data.name == "ml-100k-zip" else {}
    return Undivided(
        OrganisationTask(settings=wanted.algorithm, organisations=organisations, groups=groups)
    )


def _groups(organisations: Organisations, data_dir: Path | None) -> dict[str, IntArray]:
    """Gender, age and occupation of every user, organisation after organisation."""
    users, columns = np.concatenate(organisations.user_ids), load("ml-100k", data_dir)
    return {name: values[users] for name, values in attribute_columns(columns).items()}
