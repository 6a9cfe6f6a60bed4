"""Algorithms by name: each takes its own data, settings and layers, and refuses those of others."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audits.config.audit import AuditConfig, load_config, parse_config
from audits.config.tables import build
from audits.rating_data import RatingData
from audits.system import Wanted
from audits.systems import SYSTEMS, system_named
from audits.systems.pmf import rating_system
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import DATASETS
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import BAG_STACKS, STACKS

Write = Callable[[dict[str, Any]], Path]

FURL: dict[str, Any] = {
    "data": {"name": "stickers", "users": 25, "messages": 10, "length": 12},
    "algorithm": {
        "name": "furl",
        "rounds": 2,
        "user_dim": 3,
        "character_dim": 4,
        "hidden": 4,
        "mlp": 6,
        "local": {"optimizer": "adam", "batch_size": 4},
    },
}
NCF: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 25, "items": 40, "mean_ratings": 8.0},
    "algorithm": {"name": "furl", "rounds": 2, "dim": 3, "hidden": [4]},
}
HPFL: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 4, "users": 8, "items": 12},
    "algorithm": {"name": "hpfl", "rounds": 2, "gum": {"scale": 5.0}, "training": {"epochs": 1}},
}
CONFIGURATIONS = {"furl": FURL, "ncf": NCF, "hpfl": HPFL}


def refused(raw: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as problem:
        parse_config(raw)
    return str(problem.value)


def changed(raw: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A configuration with some tables replaced, or extended where both are tables."""
    raw = copy.deepcopy(raw)
    for name, value in sections.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return raw


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_has_the_settings_of_its_data(name: str) -> None:
    system = system_named(name)
    assert system.name == name
    assert system.default_data in system.kinds
    for data, kind in system.kinds.items():
        needed: dict[str, Any] = {}
        if data == "file":
            needed = {"path": "ratings.csv", "user": 1, "item": 2, "rating": 3}
        elif name == "pmf" and DATASETS[data].implicit:
            needed = {"split": "leave-one-out"}
        assert kind.settings(name=data, **needed).name == data
        assert kind.algorithm().rounds > 0
        assert kind.metrics
    assert () in system.claims
    assert set(system.claims) <= set(STACKS)


def test_a_rating_system_trains_the_algorithm_it_is_of() -> None:
    class Mine(PMF):
        """PMF by another name."""

    pmf = system_named("pmf")
    mine = rating_system("mine", Mine, PMFConfig, statement=pmf.statement)
    assert (set(mine.kinds), mine.attacks) == (set(pmf.kinds), pmf.attacks)
    for stack, claim in pmf.claims.items():  # but for the name
        assert "mine" in mine.claims[stack].system
        assert replace(mine.claims[stack], system=claim.system) == claim
    assert set(mine.claims) == set(pmf.claims)
    data = RatingData(clients=12, items=20, mean_ratings=5.0, utility_folds=2)
    for system, kind in ((mine, Mine), (pmf, PMF)):
        loaded = system.load(
            Wanted(data, PMFConfig.printed(rank=2, rounds=1), 1, None, CohortConfig())
        )
        for fold in loaded.folds:
            assert type(loaded.task(fold).fresh().algorithm) is kind


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_survives_its_own_json(name: str) -> None:
    config = parse_config(CONFIGURATIONS[name])
    again = parse_config(config.as_json())
    assert again == config
    assert again.digest() == config.digest()


def test_a_configuration_survives_with_its_defaults_spelt_out() -> None:
    config = parse_config({"algorithm": {"name": "furl"}})
    plain = config.as_json()
    assert plain["algorithm"]["local"]["betas"] == [0.9, 0.999]
    assert plain["data"] == {"name": "stickers"}
    assert parse_config(plain).digest() == config.digest()


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (
            {"algorithm": {"name": "svd"}},
            "algorithm.name = 'svd': unknown algorithm (choices: ease",
        ),
        ({"algorithm": {"name": 3}}, "algorithm.name = 3: unknown algorithm (choices: ease"),
        (
            {"algorithm": {"name": "furl"}, "data": {"name": "assist2009"}},
            "data.name = 'assist2009': is not a data set that furl learns from "
            "(choices: stickers, ",
        ),
        (
            {"algorithm": {"name": "pmf"}, "data": {"name": "20newsgroups"}},
            "data.name = '20newsgroups': is not a data set that pmf learns from "
            "(choices: ml-100k, ",
        ),
        (
            {"algorithm": {"name": "hpfl"}, "data": {"name": "ml-100k"}},
            "is not a data set that hpfl learns from (choices: synthetic, ml-100k-zip, assist2009",
        ),
        ({"algorithm": {"name": "hpfl"}, "data": {"name": 5}}, "data.name = 5: should be a valid"),
    ],
)
def test_what_does_not_fit_the_algorithm_is_named_with_the_choices(
    raw: dict[str, Any], word: str
) -> None:
    assert word in refused(raw)


@pytest.mark.parametrize(
    ("name", "table", "word"),
    [
        ("furl", {"rank": 3}, "algorithm.rank = 3: unknown key (choices: rounds, local, decay"),
        ("furl", {"local": {"colour": 1}}, "algorithm.local.colour = 1: unknown key (choices: opt"),
        ("furl", {"local": 3}, "algorithm.local = 3: must be a table, written [algorithm.local]"),
        ("furl", {"local": {"epochs": "2"}}, "algorithm.local.epochs = '2': should be a valid int"),
        ("furl", {"local": {"epochs": 0}}, "algorithm.local.epochs = 0: must be at least 1"),
        ("furl", {"local": {"optimizer": "lbfgs"}}, "algorithm.local.optimizer = 'lbfgs': unknown"),
        ("furl", {"hidden": 0}, "algorithm.hidden = 0: must be at least 1"),
        ("furl", {"pooling": "sum"}, "algorithm.pooling = 'sum': unknown pooling (choices: max, "),
        ("furl", {"configuration": "local"}, "algorithm.configuration = 'local': unknown config"),
        (
            "furl",
            {"configuration": "global-server"},
            "trains on a server: nothing is sent (choices: global-fl, personalized-fl",
        ),
        ("furl", {"row_width": 0}, "algorithm.row_width = 0: must be at least 1"),
        ("ncf", {"hidden": []}, "algorithm.hidden = (): needs layers"),
        ("ncf", {"hidden": [4, "x"]}, "algorithm.hidden = 'x': should be a valid integer"),
        (
            "ncf",
            {"user_dim": 3},
            "algorithm.user_dim = 3: unknown key (choices: rounds, local, decay",
        ),
        ("hpfl", {"components": "all"}, "algorithm.components = 'all': unknown (choices: both"),
        ("hpfl", {"gum": {"start": "zero"}}, "algorithm.gum.start = 'zero': unknown (choices: xav"),
        ("hpfl", {"training": {"epochs": 0}}, "algorithm.training.epochs = 0: must be at least 1"),
        ("hpfl", {"rounds": 0}, "algorithm.rounds = 0: must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named_by_its_place_in_the_file(
    name: str, table: dict[str, Any], word: str
) -> None:
    assert word in refused(changed(CONFIGURATIONS[name], algorithm=table))


@pytest.mark.parametrize(
    ("name", "table", "word"),
    [
        ("furl", {"users": 0}, "data.users = 0: must be at least 1"),
        ("furl", {"seed": 3}, "data.seed = 3: unknown key (choices: name, users"),
        ("ncf", {"negatives": 0}, "data.negatives = 0: must be at least 1"),
        ("ncf", {"name": "ml-100k"}, "applies to the synthetic data set only"),
        ("hpfl", {"test": 1.0}, "data.test = 1.0: must be at least 0 and below 1"),
        ("hpfl", {"clients": 0}, "data.clients = 0: must be at least 1"),
    ],
)
def test_wrong_data_are_named(name: str, table: dict[str, Any], word: str) -> None:
    assert word in refused(changed(CONFIGURATIONS[name], data=table))


@pytest.mark.parametrize("layers", [("virtual-ratings",), ("virtual-ratings", "denoisers")])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_cloak_needs_ratings_to_cover(name: str, layers: tuple[str, ...]) -> None:
    raw = changed(CONFIGURATIONS[name], protection=[{"layer": layer} for layer in layers])
    system = raw["algorithm"]["name"]
    said = refused(raw)
    assert f"protection = '{' + '.join(layers)}': these layers do not stack over {system}" in said
    assert said.endswith("(choices: none, masking, paillier)")


def test_masks_are_for_sums_and_not_for_bags() -> None:
    raw = changed(HPFL, bag_protection=[{"layer": "masking"}])
    said = refused(raw)
    assert said == ("bag_protection.layer = 'masking': unknown layer (choices: local-dp, routing)")
    raw = changed(HPFL, bag_protection=[{"layer": "routing"}, {"layer": "local-dp"}])
    said = refused(raw)
    assert "bag_protection = 'routing + local-dp': these layers do not stack over hpfl" in said
    assert "(choices: none, local-dp, routing, local-dp + routing)" in said
    raw["bag_protection"].reverse()
    assert tuple(parse_config(raw).bag_protection) in BAG_STACKS


@pytest.mark.parametrize(
    "raw", [{}, FURL, changed(HPFL, algorithm={"components": "public"})], ids=["pmf", "furl", "K"]
)
def test_layers_over_bags_need_bags(raw: dict[str, Any]) -> None:
    assert "collects nothing in bags" in refused(
        changed(raw, bag_protection=[{"layer": "routing"}])
    )
    assert parse_config(raw).bag_claim is None


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"clip": -1.0}, "bag_protection.clip = -1.0: must be positive"),
        ({"noise": "none"}, "bag_protection.noise = 'none': unknown (choices: "),
        ({"colour": 1}, "bag_protection.colour = 1: unknown key (choices: clip, "),
    ],
)
def test_a_wrong_setting_over_bags_is_named(table: dict[str, Any], word: str) -> None:
    assert word in refused(changed(HPFL, bag_protection=[{"layer": "local-dp", **table}]))


@pytest.mark.parametrize(
    ("name", "gate", "word"),
    [
        ("furl", {"metric": "mae", "max": 1.0}, "is not measured on this data (choices: auc, acc"),
        ("ncf", {"metric": "accuracy", "min": 0.1}, "(choices: hit_rate_at_10, ndcg_at_10)"),
        ("hpfl", {"metric": "f1", "min": 0.1}, "gates.metric = 'f1': unknown metric"),
    ],
)
def test_a_gate_on_a_figure_that_is_not_measured_is_refused(
    name: str, gate: dict[str, Any], word: str
) -> None:
    assert word in refused(changed(CONFIGURATIONS[name], gates=[gate]))


def test_an_auc_without_an_attack_is_that_of_the_utility() -> None:
    gate = {"metric": "auc", "min": 0.5}
    assert parse_config(changed(FURL, gates=[gate])).gates[0].is_utility
    assert "'auc': needs an attack and an adversary" in refused({"gates": [gate]})
    assert "needs an attack" in refused(changed(FURL, gates=[{**gate, "adversary": "server"}]))


def test_overrides_reach_tables_in_tables(write_config: Write) -> None:
    path = write_config(FURL)
    overrides = {"algorithm.local.learning_rate": 0.25, "algorithm.mlp": 7}
    config = load_config(path, overrides)
    assert (config.algorithm.local.learning_rate, config.algorithm.mlp) == (0.25, 7)
    assert config.algorithm.local.optimizer == "adam"
    with pytest.raises(ConfigError, match=r"algorithm\.mlp\.more = 1: no such setting"):
        load_config(path, {"algorithm.mlp.more": 1})


def test_a_refusal_under_a_key_of_the_file_stays_what_it_is() -> None:
    hpfl = system_named("hpfl").kinds["synthetic"].algorithm
    with pytest.raises(ConfigError, match=r"^algorithm\.training\.patience = 3: stops training by"):
        build(hpfl, "algorithm", {"training": {"keep": "last", "patience": 3}})


def test_only_furl_brings_torch_along_and_only_to_train() -> None:
    lines = [
        "import json, sys",
        "import audits.command_line",
        "from audits.config.audit import parse_config",
        "from audits.run.build import load_dataset",
        *(
            f"load_dataset(parse_config(json.loads({json.dumps(raw)!r})), None)"
            for raw in ({}, HPFL)
        ),
        f"furl = parse_config(json.loads({json.dumps(FURL)!r}))",
        "print('torch' in sys.modules)",
        "load_dataset(furl, None)",
        "print('torch' in sys.modules)",
    ]
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["False", "True"], ended.stderr


def test_the_default_algorithm_is_federated_pmf() -> None:
    assert AuditConfig().system == "pmf"
    assert parse_config({}).audited is system_named("pmf")
