"""Planted federations, split and hierarchical: data, a recorded run, and the truth about it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attacks.families.hierarchical import MEMBERS
from attacks.planted.organisations import PlantedOrganisations
from attacks.planted.recording import planted_secrets, protected, recorded
from attacks.planted.split import ITEM_TABLE, PlantedSplit
from attacks.scoring.truth import GroundTruth
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault

_ROUNDS = 3

_CLIENTS, _ITEMS, _CLASSES = 80, 120, 6
_POSITIVES, _NEGATIVES = 12, 4
_MAJORITY_SHARE = 0.8
_OWN_HALF = 0.9
_ORGANISATIONS, _MEMBERS, _ATTRIBUTES, _RECORDS = 30, 24, 8, 400


def plant_split(
    *,
    implicit: bool = False,
    layers: Mapping[str, Any] | None = None,
    payload_rounds: tuple[int, ...] = (2,),
    rounds: int = _ROUNDS,
    seed: int = 20190927,
) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation.

    Clients belong to one of two groups, an attribute; a group prefers one half of the items. Each
    client has a favourite class, and four of five of its examples are of that class.

    Args:
        implicit: instead of that, examples are positives (class 1) and four times as many sampled
            negatives (class 0).
        layers: settings by layer name; none leaves uploads in the clear.
        payload_rounds: rounds to record; in the first, all private vectors are zero.
        rounds: of training.
        seed: of data and training.
    """
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2, _CLIENTS)
    rated = _rated_sets(groups, rng)
    indptr, items, classes = _examples(rated, rng, implicit=implicit)
    kinds = 2 if implicit else _CLASSES
    algorithm = PlantedSplit(items=_ITEMS, classes=kinds, rounds=rounds)
    problem = Problem(
        vault=Vault.of_examples(indptr, {"items": items, "classes": classes}),
        knowledge={"item_table": ITEM_TABLE, "negatives": _NEGATIVES if implicit else 0},
    )
    streams = Streams.from_seed(seed)
    stack = protected(algorithm, problem, streams, layers or {})
    run = recorded(algorithm, problem, stack, streams, payload_rounds)
    counts = np.zeros((_CLIENTS, kinds))
    np.add.at(counts, (np.repeat(np.arange(_CLIENTS), np.diff(indptr)), classes), 1.0)
    secrets = planted_secrets({"classes": counts, "groups": groups}, "split", "implicit")
    return run, GroundTruth(recorded=run.truth, train=_table(rated), secrets=secrets)


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
        layers: settings by layer name, over the rows; none leaves them in the clear.
        bag_layers: likewise, over the bags.
        attributes: of all records.
        evenness: of one organisation's records over them: the less, the fewer it has records of.
        seed: of data and training.
    """
    rng = np.random.default_rng(seed)
    algorithm = PlantedOrganisations(attributes=attributes, members=_MEMBERS, rounds=_ROUNDS)
    profiles = rng.dirichlet(np.full(attributes, evenness), size=_ORGANISATIONS)
    records = rng.integers(_RECORDS // 2, 2 * _RECORDS, _ORGANISATIONS)
    counts = np.stack([rng.multinomial(n, p) for n, p in zip(records, profiles, strict=True)])
    of_records = np.concatenate([np.repeat(np.arange(attributes), each) for each in counts])
    indptr = np.concatenate([[0], np.cumsum(records)])
    problem = Problem(
        vault=Vault.of_examples(indptr, {"attributes": of_records}), n_rows=algorithm.rows
    )
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


def _rated_sets(groups: IntArray, rng: np.random.Generator) -> BoolArray:
    """bool[clients, items]: twelve items each, nine of ten from the group's half."""
    rated = np.zeros((_CLIENTS, _ITEMS), dtype=bool)
    for client, group in enumerate(groups.tolist()):
        own = np.arange(_ITEMS) // (_ITEMS // 2) == group
        odds = np.where(own, _OWN_HALF, 1.0 - _OWN_HALF)
        rated[client, rng.choice(_ITEMS, _POSITIVES, replace=False, p=odds / odds.sum())] = True
    return rated


def _examples(
    rated: BoolArray, rng: np.random.Generator, *, implicit: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows of the clients, item and class of each example."""
    items, classes = [], []
    for client, own in enumerate(rated):
        positives = np.flatnonzero(own)
        if implicit:
            drawn = rng.choice(np.flatnonzero(~own), _NEGATIVES * len(positives), replace=False)
            items.append(np.concatenate([positives, drawn]))
            classes.append(np.repeat([1, 0], [len(positives), len(drawn)]))
            continue
        others = rng.integers(0, _CLASSES, len(positives))
        mine = rng.random(len(positives)) < _MAJORITY_SHARE
        items.append(positives)
        classes.append(np.where(mine, client % _CLASSES, others))
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in items])])
    return indptr, np.concatenate(items), np.concatenate(classes)


def _table(rated: BoolArray) -> RatingTable:
    clients, items = np.nonzero(rated)
    n_clients, n_items = rated.shape
    return RatingTable.from_columns(
        name="planted",
        n_clients=n_clients,
        n_items=n_items,
        clients=clients,
        items=items,
        ratings=np.ones(len(items)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(n_clients),
        item_labels=np.arange(n_items),
    )
