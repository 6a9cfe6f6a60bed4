"""The JSON Schema (draft 7, which TOML editors read) of configurations.

It refuses nothing that the settings take. It takes what only several keys together make wrong: the
settings say that when a configuration is read.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attacks import SUITE
from audits.config.audit import DEFAULT_SYSTEM, LAYER_TABLES, SECTIONS
from audits.config.judged import ENTRIES
from audits.explain.fields import table_schema
from audits.explain.keys import Trained, absent, layer_facts, top_facts, trained
from audits.run.folder import CONFIG_DIGEST

_DRAFT = "http://json-schema.org/draft-07/schema#"
_ATTACK = {"enum": list(SUITE)}

Schema = dict[str, Any]


def config_schema() -> Schema:
    """The schema of a configuration, TOML or the ``config.json`` of a run."""
    tables: Schema = {name: table_schema(kind) for name, kind in SECTIONS.items()}
    for name, layers in LAYER_TABLES.items():
        tables[name] = {"type": "array", "items": _layers(layers)}
    for name, kind in ENTRIES.items():
        tables[name] = {"type": "array", "items": table_schema(kind)}
    tables["gates"]["items"]["properties"]["attack"] |= _ATTACK
    top = {name: facts.property() for name, facts in top_facts().items()}
    return {
        "$schema": _DRAFT,
        "title": "secure-fedrec configuration",
        "type": "object",
        "properties": {
            **top,
            **_trained_tables(),
            **tables,
            CONFIG_DIGEST: {"type": "string", "description": "written into a run's config.json"},
        },
        "additionalProperties": False,
        "allOf": [_of_pair(pair) for pair in trained()],
    }


def _union(tables: Iterable[Schema]) -> Schema:
    """A table of any of the keys that some tables have, as an editor offers them.

    Whoever knows which of the tables is meant says so beside.
    """
    merged: dict[str, list[Schema]] = {}
    for table in tables:
        for name, schema in table["properties"].items():
            known = merged.setdefault(name, [])
            if schema not in known:
                known.append(schema)
    properties = {
        name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in merged.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _layers(layers: Mapping[str, type[Any]]) -> Schema:
    """A table of one of several layers."""
    extra = {"layer": layer_facts(layers)}
    tables = {name: table_schema(kind, extra=extra) for name, kind in layers.items()}
    cases = [
        {"if": {"properties": {"layer": {"enum": [name]}}, "required": ["layer"]}, "then": table}
        for name, table in tables.items()
    ]
    return {**_union(tables.values()), "required": ["layer"], "allOf": cases}


def _tables_of_pair(pair: Trained) -> tuple[Schema, Schema]:
    data, algorithm = pair.naming()
    return (
        table_schema(pair.data, extra={"name": data}, without=pair.idle),
        table_schema(pair.algorithm, extra={"name": algorithm}),
    )


def _trained_tables() -> Schema:
    data, algorithm = zip(*map(_tables_of_pair, trained()), strict=True)
    tables = {"data": _union(data), "algorithm": _union(algorithm)}
    if absent():  # whose keys are not known here
        for table in tables.values():
            table["additionalProperties"] = True
            # A key that is known here may mean something else there.
            table["properties"] = {key: {} for key in table["properties"] if key != "name"}
    return tables


def _of_pair(pair: Trained) -> Schema:
    """What follows for both tables where their names say that a pair is meant."""
    named = {
        "algorithm": _names(pair.system.name, default=pair.system.name == DEFAULT_SYSTEM),
        "data": _names(*pair.sets, default=pair.system.default_data in pair.sets),
    }
    meant: Schema = {"properties": {key: names for key, (names, _) in named.items()}}
    meant["required"] = [key for key, (_, default) in named.items() if not default]
    data, algorithm = _tables_of_pair(pair)
    return {"if": meant, "then": {"properties": {"data": data, "algorithm": algorithm}}}


def _names(*names: str, default: bool) -> tuple[Schema, bool]:
    """A table with one of some names; it may be left out where one is the default."""
    schema: Schema = {"properties": {"name": {"enum": list(names)}}}
    return (schema if default else {**schema, "required": ["name"]}), default
