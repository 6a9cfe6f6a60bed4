"""``data list``, ``data get NAME``, ``data describe NAME``: the known data sets.

``data describe FILE``, for a user's own file, is in ``own_data``.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from audits.own_data import describe_file
from audits.rating_data import TableData
from audits.terminal import print_json
from secure_fedrec.data import (
    DATASETS,
    EXAMPLE_SETS,
    ORGANISATIONS,
    Organisations,
    RatingTable,
    get,
    load_organisations,
    locate,
)
from secure_fedrec.data.newsgroups import load_newsgroups
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.errors import MISSING, ConfigError, DataError

_FILES = {**DATASETS, **EXAMPLE_SETS}
_MADE_OF: Mapping[str, str] = {
    **{name: name for name in _FILES},
    **{name: dataset for name, (dataset, _) in ORGANISATIONS.items()},
}
_SEED = 1


def data(arguments: argparse.Namespace) -> int:
    """Describe data sets, or fetch one."""
    if arguments.action == "list":
        return _list(arguments)
    if arguments.name is None:
        raise ConfigError("NAME", MISSING, "is missing", _MADE_OF)
    if arguments.action == "get":
        folder = get(arguments.name, arguments.data_dir, progress=not arguments.quiet)
        print_json({"folder": str(folder)}) if arguments.json else print(folder)
        return 0
    if arguments.name not in _MADE_OF:
        if Path(arguments.name).exists() or Path(arguments.name).suffix:
            return describe_file(arguments)
        raise ConfigError("data.name", arguments.name, "unknown data set", _MADE_OF)
    for option, given in (
        ("--write", arguments.write),
        ("--plot", arguments.plot),
        ("--set", arguments.overrides or None),
    ):
        if given is not None:
            raise ConfigError(option, arguments.name, "applies only to a file of your own")
    facts = _describe(arguments.name, arguments.data_dir)
    facts["licence"] = _FILES[_MADE_OF[arguments.name]].licence
    if arguments.json:
        print_json(facts)
    else:
        for key, value in facts.items():
            print(f"{key:28} {value}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    found = []
    for name, info in _FILES.items():
        where = "generated"
        if info.files:
            try:
                locate(name, arguments.data_dir)
                where = "present"
            except DataError:
                where = f"absent; secure-fedrec data get {name}" if info.origin else "absent"
        found.append({"name": name, "title": info.title, "status": where})
    if arguments.json:
        print_json(found)
    else:
        for entry in found:
            print(f"{entry['name']:18} {entry['title']:48} {entry['status']}")
    return 0


def _describe(name: str, data_dir: Path | None) -> dict[str, Any]:
    if name in DATASETS:
        return _table(TableData(name=name).read(seed=_SEED, data_dir=data_dir).table)
    if name == "20newsgroups":
        return _texts(load_newsgroups(data_dir))
    return _organisations(load_organisations(name, data_dir, seed=_SEED))


def _table(table: RatingTable) -> dict[str, Any]:
    counts, popularity = table.counts(), table.item_popularity()
    return {
        "name": table.name,
        "clients": table.n_clients,
        "items": table.n_items,
        "ratings": len(table),
        "density": len(table) / (table.n_clients * table.n_items),
        "ratings_per_client_median": float(np.median(counts)),
        "items_without_ratings": int(np.sum(popularity == 0)),
        "scale": str(table.scale),
        "demographics": sorted(table.demographics),
        "timestamps": table.timestamps is not None,
        "fingerprint": table.fingerprint(),
    }


def _texts(texts: UserTexts) -> dict[str, Any]:
    return {
        "name": texts.name,
        "clients": texts.n_users,
        "classes": len(texts.classes),
        "posts": len(texts),
        "posts_per_client_median": float(np.median(np.bincount(texts.users))),
        "clients_with_several_classes": int(texts.mixed_users().sum()),
    }


def _organisations(found: Organisations) -> dict[str, Any]:
    return {
        "name": found.name,
        "clients": found.n_clients,
        "users": sum(found.n_users),
        "items": len(np.unique(np.concatenate(found.item_ids))),
        "attributes": found.n_attributes,
        "records": len(found.train) + len(found.validation) + len(found.test),
        "records_per_client_median": float(np.median(found.train.counts())),
        "levels": found.levels.tolist(),
    }
