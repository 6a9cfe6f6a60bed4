"""Every key of a configuration is explained, and the JSON Schema says what the settings say."""

import argparse
import copy
import dataclasses
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jsonschema
import pytest

from attacks import SUITE
from audits.config.audit import LAYER_TABLES, load_config, parse_config
from audits.config.judged import ENTRIES
from audits.explain import keys as every
from audits.explain.cards import layer_names, layers_named
from audits.explain.command import SCHEMAS, explain
from audits.explain.fields import facts_of
from audits.explain.figures import KEYS_TOO, figure_cards
from audits.explain.keys import Key, keys, keys_named
from audits.explain.schema import config_schema
from audits.gates.gate import METRICS
from audits.presets import PRESETS
from audits.systems import system_named
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import BAG_RECORDS, BAG_STACKS, RECORDS, STACKS
from secure_fedrec.settings import Count, Settings, Unit

Command = Callable[..., tuple[int, str, str]]

CONFIGS = Path(__file__).parents[2] / "audits" / "configs"
KEYS = keys()
PATHS = {key.path for key in KEYS}
VALIDATOR = jsonschema.Draft7Validator(config_schema())
TABLES = {*LAYER_TABLES, *ENTRIES}
VALUES: tuple[Any, ...] = (
    -1,
    0,
    1,
    3,
    16,
    64,
    2**70,
    -0.1,
    0.01,
    0.5,
    1.5,
    "x",
    "",
    True,
    [],
    [1],
    ["x"],
    {"x": 1},
)
ENTRY: dict[str, dict[str, Any]] = {
    "adversaries": {"name": "server", "corrupt": ["server"]},
    "gates": {"metric": "lossless", "equals": True},
}
STACKED: dict[str, dict[str, Any]] = {
    "masking": {"min_survivors": 30},
    "skellam": {"noise_multiplier": 1.0, "fraction_bits": 2},
}


def paths_of(value: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Dotted paths of everything in a configuration that is not a table."""
    for name, each in value.items():
        inner = each if isinstance(each, list) else [each]
        for entry in inner:
            if isinstance(entry, dict):
                yield from paths_of(entry, f"{path}{name}.")
        if not any(isinstance(entry, dict) for entry in inner) and name not in TABLES:
            yield f"{path}{name}"


def raw_preset(name: str) -> dict[str, Any]:
    return tomllib.loads((CONFIGS / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_key_of_every_preset_is_explained(preset: str) -> None:
    resolved = load_config(CONFIGS / f"{preset}.toml").as_json()
    for told in (raw_preset(preset), resolved):
        for path in paths_of(told):
            assert path in PATHS, path


def test_no_key_is_without_meaning() -> None:
    assert len(PATHS) >= 150
    for key in KEYS:
        assert len(key.facts.meaning.split()) >= 2, key.path
        assert "None" not in key.facts.meaning, f"{key.path}: files of settings have no None"
        assert key.facts.type, key.path
        assert key.facts.default is not None, key.path


def test_a_meaning_belongs_to_one_key() -> None:
    """A line of a docstring for several fields says what none of them is."""
    shared = Counter((key.table, key.places, key.facts.meaning) for key in KEYS)
    assert max(shared.values()) == 1, shared.most_common(3)


def test_a_new_key_has_its_meaning_by_its_docstring_alone() -> None:
    class Shape(Settings, section="new"):
        """Shape.

        Args:
            size: of it; long enough
                for two lines.

        Raises:
            ConfigError: never.
        """

        size: Annotated[Count, Unit("bytes")] = 7

    class Parent(Settings, section="new"):
        """Parent.

        Args:
            words: some.
        """

        words: tuple[str, ...] = ()

    class New(Parent):
        """New.

        Args:
            words: as of ``Parent``.
            more: some more.
            either: true, false, or left out.
        """

        more: frozenset[int] = frozenset()
        shape_of: ClassVar[type[Settings]] = Shape
        size: int | None = None
        either: bool | None = None

    facts = facts_of(New)
    assert facts["words"].words() == {
        "type": "list of strings",
        "default": "[]",
        "meaning": "some.",
    }
    assert facts["size"].words() == {
        "type": "integer",
        "unit": "bytes",
        "default": "7",
        "allowed": "at least 1",
        "meaning": "of it; long enough for two lines.",
    }
    assert facts["either"].words() == {
        "type": "boolean",
        "default": "not set",
        "meaning": "true, false, or left out.",
    }


def context(key: Key) -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration in which a key has its meaning, and the table that it is written in."""
    root, _, rest = key.path.partition(".")
    raw: dict[str, Any] = {}
    if not rest:
        return raw, raw
    if root in LAYER_TABLES:
        layer = key.places[0] if key.places else next(iter(LAYER_TABLES[root]))
        stacks = BAG_STACKS if root == "bag_protection" else STACKS
        if root == "bag_protection":
            raw["algorithm"] = {"name": "hpfl"}
        stack = min((each for each in stacks if layer in each), key=len)
        raw[root] = [{"layer": name, **STACKED.get(name, {})} for name in stack]
        return raw, raw[root][stack.index(layer)]
    if root in ENTRIES:
        raw[root] = [dict(ENTRY.get(root, {}))]
        return raw, raw[root][0]
    if key.places:
        system, _, name = key.places[0].partition("/")
        raw |= {"algorithm": {"name": system}, "data": {"name": name}}
    table = raw.setdefault(root, {})
    for step in rest.split(".")[:-1]:
        table = table.setdefault(step, {})
    return raw, table


def taken(raw: dict[str, Any]) -> bool:
    try:
        parse_config(copy.deepcopy(raw))
    except ConfigError:
        return False
    return True


def test_the_schema_refuses_nothing_that_the_settings_take() -> None:
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for key in KEYS:
        for value in (*VALUES, *key.facts.schema.get("enum", ())[:3]):
            raw, table = context(key)
            table[key.path.rpartition(".")[2]] = value
            by_settings, by_schema = taken(raw), VALIDATOR.is_valid(raw)
            outcomes[by_settings, by_schema] += 1
            assert by_schema or not by_settings, f"{key.path} = {value!r}"
    assert not outcomes[True, False]
    assert outcomes[True, True] >= 600, outcomes
    # What it lets pass is wrong beside other keys only.
    assert outcomes[False, False] >= 9 * outcomes[False, True], outcomes


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_follow_the_schema(preset: str) -> None:
    VALIDATOR.validate(raw_preset(preset))
    VALIDATOR.validate(load_config(CONFIGS / f"{preset}.toml").as_json())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("algoritm", {"rounds": 3}),
        ("algorithm.rank", "20"),
        ("algorithm.rnak", 20),
        ("algorithm.rounds", 0),
        ("algorithm.name", "pfm"),
        ("algorithm.user_dim", 8),  # of another algorithm
        ("data.name", "movielens"),
        ("data.fold", "first"),
        ("data.fold", -1),
        ("data.utility_folds", 0),
        ("data.negatives", 4),
        ("ring.bits", 128),
        ("run.check_lossless", "yes"),
        ("attacks", ["latice"]),
        ("attacks", "all"),
        ("protection.0.layer", "virtual_ratings"),
        ("protection.0.count", 5),  # of another layer
        ("protection.0.rho", -1),
        ("protection", {"layer": "masking"}),
        ("adversaries.0.corrupt", ["servers"]),
        ("adversaries.0.taps", ["wire"]),
        ("gates.0.metric", "aucc"),
        ("gates.0.max", "0.5"),
        ("gates.0.attack", "latice"),
    ],
)
def test_typical_mistakes_are_refused(path: str, value: object) -> None:
    raw: Any = raw_preset("quickstart")
    VALIDATOR.validate(raw)
    *steps, last = path.split(".")
    table = raw
    for step in steps:
        table = table[int(step)] if isinstance(table, list) else table.setdefault(step, {})
    table[last] = value
    errors = list(VALIDATOR.iter_errors(raw))
    assert errors
    assert not taken(raw)


@pytest.mark.parametrize("column", [0, -1, "", " ", True])
def test_what_names_no_column_is_refused(column: object) -> None:
    raw: dict[str, Any] = {"data": {"name": "file", "path": "r.csv", "user": 1, "item": "book"}}
    assert VALIDATOR.is_valid(raw)
    raw["data"]["item"] = column
    assert not VALIDATOR.is_valid(raw)


def test_layers_are_named_and_closed() -> None:
    raw = raw_preset("quickstart")
    del raw["protection"][0]["layer"]
    assert not VALIDATOR.is_valid(raw)


def test_names_mean_one_thing() -> None:
    """A name is that of an attack, of a figure, of a layer, or of a key."""
    groups = [set(SUITE), set(METRICS), set(layer_names()), PATHS, set(SCHEMAS)]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_explain_speaks_of_keys(command: Command) -> None:
    code, out, _ = command("explain", "protection.cell_bytes")
    assert code == 0
    assert out.splitlines() == [
        "protection.cell_bytes",
        '  place      layer "routing"',
        "  type       integer",
        "  unit       bytes",
        "  default    65536",
        "  meaning    size of a cell; large enough for a row, 2^24 at most.",
    ]
    told = json.loads(command("explain", "data.folds", "--json")[1])
    assert [(each["key"], each["default"]) for each in told] == [("data.folds", 5)]


def test_explain_speaks_of_tables_and_of_ends_of_keys(command: Command) -> None:
    table = command("explain", "run")[1]
    assert [line.partition(":")[0] for line in table.splitlines()] == [
        "run.checkpoint_every",
        "run.check_lossless",
        "run.evaluate_every",
        "run.max_memory_gb",
        "run.workers",
    ]
    assert command("explain", "rho")[1] == command("explain", "protection.rho")[1]
    assert len(keys_named("noise_multiplier")) == 2


@pytest.mark.parametrize("name", tuple(layer_names()))
def test_every_layer_explains_itself(command: Command, name: str) -> None:
    code, out, _ = command("explain", name)
    assert code == 0
    for field in ("role", "hides", "assumes", "lossless", "found"):
        assert f"\n  {field:10} " in out
    told = json.loads(command("explain", name, "--json")[1])
    for card in told if isinstance(told, list) else [told]:
        assert card["layer"] == name


@pytest.mark.parametrize("name", [*METRICS, *SUITE, *layer_names()])
def test_no_card_has_an_empty_part(command: Command, name: str) -> None:
    told = json.loads(command("explain", name, "--json")[1])
    for card in told if isinstance(told, list) else [told]:
        if "key" not in card:
            assert len(card) >= 6
            assert [part for part, text in card.items() if not text.strip()] == []


def test_every_figure_of_a_gate_is_explained_and_in_the_reference(command: Command) -> None:
    """Utility, losslessness and epsilon as well; a name that is also a key explains both."""
    for name in METRICS:
        code, out, _ = command("explain", name)
        assert code == 0
        assert out.startswith(f"{name}\n  name ")
    both = command("explain", "auc")[1]
    assert both.count("auc\n  name ") == 2
    assert "protection.epsilon (" in command("explain", "epsilon")[1]


_MODULE = re.compile(r"\b(?:audits|attacks|secure_fedrec)\.\w|``\w*[a-z][A-Z]\w*``")


def test_no_text_sends_its_reader_into_the_code() -> None:
    """Meanings of keys and cards are read by people who have a configuration, not the code."""
    texts = {key.path: key.facts.meaning for key in KEYS}
    texts |= {name: str(figure_cards(name)) for name in METRICS}
    texts |= {name: str(dataclasses.asdict(SUITE[name].card)) for name in SUITE}
    texts |= {name: str(layers_named(name)) for name in layer_names()}
    assert len(texts) > 150
    assert {name: text for name, text in texts.items() if _MODULE.search(text)} == {}


@pytest.mark.parametrize("file", SCHEMAS)
def test_explain_prints_schemas(command: Command, file: str) -> None:
    code, out, _ = command("explain", file)
    assert code == 0
    schema = json.loads(out)
    jsonschema.validators.validator_for(schema).check_schema(schema)


def test_an_algorithm_without_its_extra_is_told(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are not known then, so they are neither explained nor refused."""
    real = system_named

    def lacking(name: str) -> Any:
        if name == "furl":
            raise ModuleNotFoundError("torch is not installed")
        return real(name)

    monkeypatch.setattr("audits.explain.keys.system_named", lacking)
    cached = (every.absent, every.trained, every.keys)
    for each in cached:
        each.cache_clear()
    try:
        code, out, error = command("explain", "data.clients")
        table = command("explain", "data")
        silent = command("explain", "data", "--quiet")
        unknown = command("explain", "algorithm.user_dim")
        unasked = command("explain", "protection.rhoo", "--quiet")
        schema = config_schema()
    finally:
        monkeypatch.undo()
        for each in cached:
            each.cache_clear()
    assert code == 0
    assert "furl" not in out
    assert "installed)" in out  # the places are those of the algorithms that are here
    assert error == silent[2] == ""
    assert table[2].strip() == "keys left out: torch is not installed"
    assert unknown[2].splitlines()[1:] == ["keys left out: torch is not installed"]
    assert "(choices: " in unknown[2].splitlines()[0]
    assert len(unasked[2].splitlines()) == 1
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(raw_preset("furl-quickstart"))
    wrong = raw_preset("quickstart")
    wrong["algorithm"]["rnak"] = 2
    assert not validator.is_valid(wrong)


def test_a_figure_is_explained_without_the_algorithms() -> None:
    """Unless one of their keys has its name, none of what they bring along is imported for it."""
    differ = {name for name in METRICS if keys_named(name, algorithms=False) != keys_named(name)}
    assert differ == KEYS_TOO
    program = """
import sys
from audits import cli
for name in ("rmse", "precision_gain", "lossless"):
    assert cli.main(["explain", name, "--quiet"]) == 0
print(sorted({"torch", "sklearn", "opacus", "matplotlib"} & set(sys.modules)))
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("secagg", "masking"),
        ("Secure Aggregation", "masking"),
        ("homomorphic-encryption", "paillier"),
        ("Local_DP", "local-dp"),
        ("differential privacy", "skellam"),
        ("mixnet", "routing"),
    ],
)
def test_what_people_call_a_layer_names_it(said: str, meant: str) -> None:
    """A name that others use for a layer is answered with the layer's own."""
    with pytest.raises(ConfigError) as refused:
        explain(argparse.Namespace(name=said, json=False, quiet=True))
    assert (refused.value.choices or ())[0] == meant


def test_no_two_layers_are_called_alike() -> None:
    """One word has one answer, and no layer's own name is another's second one."""
    records = {**RECORDS, **BAG_RECORDS}
    told = [word for record in set(records.values()) for word in record.also_called]
    assert len(told) == len(set(told)) >= 20
    assert not {*told} & {name.replace("-", " ") for name in records}
