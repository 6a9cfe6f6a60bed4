"""A planted federation for attacks on hierarchical personalization.

Organisations have records that each speak of one attribute, and members with vectors. In a round an
organisation moves all vectors a little, gives out the means of some groups of members, and sends a
vector per attribute, weighted by records times an accuracy. Layouts are those of
``secure_fedrec.algorithms.hpfl.system``; groups are fixed, so it is known which members are alone
in a group.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from attacks.families.hierarchical import MEMBERS
from attacks.planted.recording import PlantedSum, planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.hpfl.aggregation import HPFLTable
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock, Upload
from secure_fedrec.vault import Vault

_MOVE = 1.5
_LARGEST_GROUP = 4
_ROUNDS, _ORGANISATIONS, _MEMBERS, _ATTRIBUTES, _RECORDS = 3, 30, 24, 8, 400


class PlantedOrganisations(PlantedSum):
    """The algorithm; see the module docstring.

    Args:
        attributes: K.
        members: number of members of each kind per organisation.
        rounds: rounds of a run.
    """

    def __init__(self, *, attributes: int, members: int, rounds: int) -> None:
        self.table = HPFLTable(attributes=attributes, hidden=2)
        self.width = self.table.width
        self.rows = self.table.rows
        self.members = members
        self.rounds = rounds

    @property
    def groups(self) -> IntArray:
        """Group of each member: sizes 1, 2, 3, 4, 1, 2, ...: int64[members]."""
        sizes = 1 + np.arange(self.members) % _LARGEST_GROUP
        return np.repeat(np.arange(self.members), sizes)[: self.members]

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Random vectors; those of an organisation lie around a point of their own."""
        size, dim = vault.n_clients, self.table.attributes
        ends = np.arange(size + 1) * self.members
        for lane, name in enumerate(MEMBERS.values()):
            draws = streams.stream("planted-start").generator(lane=lane)
            centres = np.repeat(draws.normal(size=(size, dim)), self.members, axis=0)
            vault.create_ragged(name, ends, centres + draws.normal(size=centres.shape))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Move vectors, form groups, count records."""
        moved = {
            bag: [_MOVE * vault.read_ragged(table, client) for client in clients.tolist()]
            for bag, table in MEMBERS.items()
        }
        rows, values = [], []
        for client in clients.tolist():
            records = vault.examples(client)["attributes"]
            counts = np.bincount(records, minlength=self.table.attributes)
            draws = streams.stream("planted-accuracies").generator(lane=client)
            weights = counts * draws.uniform(0.4, 0.6, len(counts)) / 64.0
            vectors = draws.normal(size=(self.table.attributes, self.table.vector))
            own_rows, own = self.table.contribution(vectors, weights, np.zeros(0, dtype=np.int64))
            rows.append(own_rows)
            values.append(own)
        ends = np.concatenate([[0], np.cumsum([len(each) for each in rows])])
        block = RowBlock(indptr=ends, rows=np.concatenate(rows), values=np.concatenate(values))
        bags = _group_means(moved, self.groups)

        def commit(vault: Vault) -> None:
            for bag, tables in moved.items():
                for client, own in zip(clients.tolist(), tables, strict=True):
                    vault.write_ragged(MEMBERS[bag], client, own)

        upload = Upload(clients=clients, blocks={TABLE: block}, bags=bags)
        return FinishedStep(clients=clients, upload=upload, commit=commit)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Weighted means."""
        table = self.table.means_of(aggregate.values, public.table)
        return PublicState(round=public.round + 1, table=table)

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """At most every row."""
        return np.full(vault.n_clients, n_rows, dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """A draft per group."""
        each = np.full(vault.n_clients, int(self.groups.max()) + 1)
        return dict.fromkeys(MEMBERS, each)

    def public_knowledge(self) -> dict[str, Any]:
        """Where things lie in a row."""
        table = {"attributes": self.table.attributes, "hidden": self.table.hidden}
        traits = asdict(OTHER_ROWS)
        return {"name": "planted-organisations", "table": table, "traits": traits}


def _group_means(moved: Mapping[str, list[FloatArray]], groups: IntArray) -> dict[str, SetBlock]:
    """By bag, the mean of every group of each client's members."""
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    bags = {}
    for bag, tables in moved.items():
        means = [np.add.reduceat(each, starts) / sizes[:, None] for each in tables]
        ends = np.arange(len(means) + 1) * len(sizes)
        bags[bag] = SetBlock(indptr=ends, values=np.concatenate(means))
    return bags


def plant_organisations(
    *,
    layers: Mapping[str, Any] | None = None,
    bag_layers: Mapping[str, Any] | None = None,
    attributes: int = _ATTRIBUTES,
    evenness: float = 0.5,
    seed: int = 20210420,
) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation of organisations.

    Every organisation has a profile of its own over the attributes. A member's attribute is whether
    the first value of its vector is positive.

    Args:
        layers: settings by layer name, over the rows; without layers rows are in clear.
        bag_layers: settings by layer name, over the bags.
        attributes: number of attributes of records.
        evenness: how evenly an organisation's records spread over the attributes; lower values
            concentrate them on fewer.
        seed: seed of data and training.
    """
    rng = np.random.default_rng(seed)
    algorithm = PlantedOrganisations(attributes=attributes, members=_MEMBERS, rounds=_ROUNDS)
    profiles = rng.dirichlet(np.full(attributes, evenness), size=_ORGANISATIONS)
    records = rng.integers(_RECORDS // 2, 2 * _RECORDS, _ORGANISATIONS)
    counts = np.stack([rng.multinomial(n, p) for n, p in zip(records, profiles, strict=True)])
    of_records = np.concatenate([np.repeat(np.arange(attributes), each) for each in counts])
    indptr = np.concatenate([[0], np.cumsum(records)])
    vault = Vault.of_examples(indptr, {"attributes": of_records})
    problem = Problem(vault=vault, n_rows=algorithm.rows)
    shape = BagShape(width=attributes, most=int(algorithm.groups.max()) + 1)
    bags, streams = dict.fromkeys(MEMBERS, shape), Streams.from_seed(seed)
    stack = protected(algorithm, problem, streams, layers or {}, bag_layers=bag_layers, bags=bags)
    # Drafts of round 1 are judged by what the vaults held before round 2.
    run = recorded(algorithm, problem, stack, streams, (1, 2))
    members = run.truth.columns(1, f"private-{MEMBERS['user-drafts']}")
    if members is None:
        raise ValueError("the run was not recorded")
    planted = {"attributes": counts, "members": members["values"]}
    secrets = planted_secrets(planted, "organisations", "lone organisations")
    return run, GroundTruth(recorded=run.truth, secrets=secrets)
