"""Refusals name the keys that a configuration has, whichever package refuses its value."""

import dataclasses
import re
from typing import Any

import pytest

from audits.config.audit import parse_config
from audits.run.privacy import prices, with_noise_found
from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.protection import (
    BAG_LAYERS,
    BAG_STACKS,
    LAYERS,
    STACKS,
    BagShape,
    Sizes,
    build_stack,
)
from secure_fedrec.streams import Streams

CLIP = {"layer": "clip"}
MASKS = {"layer": "masking", "min_survivors": 30}
SKELLAM = {"layer": "skellam", "noise_multiplier": 1.0}
VIRTUAL = {"layer": "virtual-ratings", "sticky": True}
DENOISERS = {"layer": "denoisers"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "masking": MASKS,
    "skellam": {**SKELLAM, "fraction_bits": 2},  # short tables of noise
    "virtual-ratings": VIRTUAL,
}
BAG_DEFAULTS: dict[str, dict[str, Any]] = {"local-dp": {"fraction_bits": 0}}  # short tables
HPFL: dict[str, Any] = {"algorithm": {"name": "hpfl"}}
INNER = re.compile(r"\b(dp|routing|paillier|masking|policy|plan|layout)\.[a-z_]+")
# Below, at and beyond every limit, and what is not a number at all.
EXTREMES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 3, 8, 40, 41, 64, 65, 2048, 10**6, 2**31, 2**40),
    *(-1.0, 0.0, 1e-300, 1e-9, 0.5, 0.9, 0.99, 1.0, 1e3, 1e9, 1e300),
    *("x", "real", "clients", "active"),
)


def build(raw: dict[str, Any]) -> None:
    """Read a configuration and put its layers together, as an audit does."""
    config = parse_config(raw)
    bags = {"drafts": BagShape(width=4, most=3)} if config.bag_protection else {}
    sizes = Sizes(n_clients=64, n_items=50, width=4, cohort=40, bags=bags)
    layers = with_noise_found(config.protection, rounds=5, sizes=sizes)
    stack = build_stack(
        layers,
        sizes=sizes,
        codec=config.ring,
        streams=Streams.from_seed(1),
        bag_layers=config.bag_protection,
    )
    if bags:
        prices(stack, rounds=5)


def refused(raw: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as found:
        build(raw)
    return found.value


@pytest.mark.parametrize(
    ("layers", "ring", "key", "value", "mentions"),
    [
        ([VIRTUAL, DENOISERS, {"layer": "routing", "layers": 0}], {}, "layers", 0, ""),
        ([VIRTUAL, DENOISERS, {"layer": "routing", "layers": 17}], {}, "layers", 17, ""),
        (
            [VIRTUAL, DENOISERS, {"layer": "routing", "kem": "rsa"}],
            {},
            "kem",
            "rsa",
            "",
        ),
        (
            [VIRTUAL, DENOISERS, {"layer": "routing", "cell_bytes": 9}],
            {},
            "cell_bytes",
            9,
            "",
        ),
        ([VIRTUAL, {"layer": "shared-upload", "kem": "rsa"}], {}, "kem", "rsa", ""),
        (
            [{**CLIP, "norm": 1e9}, SKELLAM, MASKS],
            {},
            "fraction_bits",
            12,
            "a vector of norm protection.norm = 1e+09",
        ),
        ([CLIP, {**SKELLAM, "fraction_bits": 41}, MASKS], {}, "fraction_bits", 41, ""),
        (
            [CLIP, {**SKELLAM, "noise_multiplier": 1e4}, MASKS],
            {},
            "fraction_bits",
            12,
            "lower the ring's fraction_bits",
        ),
        (
            [CLIP, {**SKELLAM, "noise_multiplier": 1e-300}, MASKS],
            {},
            "noise_multiplier",
            1e-300,
            "",
        ),
        (
            [CLIP, {**SKELLAM, "fraction_bits": 14}, MASKS],
            {"bits": 16, "fraction_bits": 4, "clip": 8.0},
            "ring.bits",
            16,
            "lower protection.fraction_bits, or lower protection.norm",
        ),
        (
            [{"layer": "masking", "corrupt": 0.97}],
            {},
            "corrupt",
            0.97,
            "which leaves fewer than 2 honest survivors",
        ),
    ],
)
def test_a_refusal_names_the_key_that_was_written(
    layers: list[dict[str, Any]], ring: dict[str, Any], key: str, value: object, mentions: str
) -> None:
    error = refused({"protection": layers, "ring": ring})
    assert error.key == (key if "." in key else f"protection.{key}")
    assert error.value == value
    assert mentions in error.problem
    assert not INNER.search(str(error))


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(stack) or "none")
def test_no_value_of_any_setting_is_refused_under_another_name(stack: tuple[str, ...]) -> None:
    tried = 0
    for layer in stack:
        for entry in dataclasses.fields(LAYERS[layer]):
            for value in EXTREMES:
                tables = [{**DEFAULTS.get(name, {}), "layer": name} for name in stack]
                changed = tables[stack.index(layer)]
                changed[entry.name] = value
                if (layer, entry.name) == ("skellam", "epsilon"):
                    del changed["noise_multiplier"]
                tried += 1
                try:
                    build({"protection": tables})
                except ConfigError as error:
                    assert re.match(r"(protection|cohort|ring)\.", error.key), str(error)
                    assert not INNER.search(str(error)), str(error)
    assert tried == len(EXTREMES) * sum(len(dataclasses.fields(LAYERS[name])) for name in stack)


@pytest.mark.parametrize("stack", BAG_STACKS, ids=lambda stack: "+".join(stack) or "none")
def test_refusals_over_bags_name_their_own_table(stack: tuple[str, ...]) -> None:
    for layer in stack[-1:]:  # the others are tried where they are the last
        for entry in dataclasses.fields(BAG_LAYERS[layer]):
            for value in EXTREMES:
                tables = [dict(BAG_DEFAULTS.get(name, {}), layer=name) for name in stack]
                tables[stack.index(layer)][entry.name] = value
                try:
                    build(HPFL | {"bag_protection": tables})
                except ConfigError as error:
                    assert re.match(r"(bag_protection|ring)\.", error.key), str(error)
                    assert not INNER.search(str(error)), str(error)
                    assert not re.search(r"(?<![\w.])protection\.", str(error)), str(error)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("noise_multiplier", 1e9), ("clip", 1e12), ("fraction_bits", 41), ("noise", "uniform")],
)
def test_a_refusal_over_bags_repeats_what_was_written(setting: str, value: object) -> None:
    error = refused(HPFL | {"bag_protection": [{"layer": "local-dp", setting: value}]})
    assert error.key in {f"bag_protection.{setting}", "bag_protection.fraction_bits"}
    if error.key.endswith(setting):
        assert error.value == value


def test_only_whole_paths_are_renamed_the_longest_first() -> None:
    keys = {"dp.clip": "protection.norm", "dp.clip_more": "x", "dp": "y"}
    for key, new in {
        "dp.clip": "protection.norm",
        "dp.clip.rows": "protection.norm.rows",
        "dp.clip_more": "x",
        "dp.clips": "y.clips",
        "dp": "y",
        "a.dp.clip": "a.dp.clip",
        "dpclip": "dpclip",
    }.items():
        assert ConfigError(key, 1, "is wrong").renamed(keys).key == new
    assert ConfigError("dp.clip", 1, "is wrong").renamed({}).key == "dp.clip"


def test_keys_in_the_words_of_a_refusal_are_renamed_with_it() -> None:
    related = {"noise": "dp.noise", "clip": "dp.clip"}
    error = ConfigError("dp.bits", 8, "lower {clip} or {noise}", related=related)
    assert str(error) == "dp.bits = 8: lower dp.clip or dp.noise"
    new = error.renamed({"dp": "protection"}, prefix="now: ").renamed({"protection.clip": "norm"})
    assert str(new) == "protection.bits = 8: now: lower norm or protection.noise"
    assert new.related == {"noise": "protection.noise", "clip": "norm"}
    # Without related keys braces are text like any other, whatever a user wrote.
    assert str(ConfigError("a", 1, "not in {b}").renamed({"a": "c"})) == "c = 1: not in {b}"


def test_a_renamed_refusal_keeps_its_class_and_choices() -> None:
    class SpecialError(ConfigError):
        pass

    with pytest.raises(SpecialError) as found, renamed_keys({"in.a": "out.a"}, {"out.a": "mine"}):
        raise SpecialError("in.a", "theirs", "see {it}", ["one"], related={"it": "in.a"})
    error = found.value
    assert (error.key, error.value, error.problem, error.choices) == (
        "out.a",
        "mine",
        "see out.a",
        ("one",),
    )
    with pytest.raises(ValueError, match="passes"), renamed_keys({"in.a": "out.a"}):
        raise ValueError("passes")
