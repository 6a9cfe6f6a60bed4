"""The JSON Schema (draft 7, which TOML editors read) of configurations.

It accepts everything that the settings accept. It does not check combinations of keys: the settings
classes do when a configuration is read.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attacks import SUITE
from audits.config.audit import DEFAULT_SYSTEM, LAYER_TABLES, SECTIONS
from audits.config.judged import ENTRIES
from audits.explain.fields import table_schema
from audits.explain.keys import Trained, absent, layer_facts, top_facts, trained
from audits.plugin_names import ALL
from audits.plugins import PLUGINS
from audits.run.folder import CONFIG_DIGEST
from audits.systems import SYSTEMS

_DRAFT = "http://json-schema.org/draft-07/schema#"
Schema = dict[str, Any]


def config_schema() -> Schema:
    """The schema of a configuration, TOML or the ``config.json`` of a run."""
    tables: Schema = {name: table_schema(kind) for name, kind in SECTIONS.items()}
    for name, layers in LAYER_TABLES.items():
        tables[name] = {"type": "array", "items": _layers(layers)}
    for name, kind in ENTRIES.items():
        tables[name] = {"type": "array", "items": table_schema(kind)}
    gate = tables["gates"]["items"]["properties"]
    figures = {"enum": gate["metric"].pop("enum")}
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
            PLUGINS: {
                "type": "array",
                "description": "written into a run's config.json: where plug-ins come from",
            },
        },
        "additionalProperties": False,
        "allOf": [*(_of_pair(pair) for pair in trained()), _of_gates(figures)],
    }


def _of_gates(figures: Schema) -> Schema:
    """Names in gates are restricted to known ones if no plug-in is named that could add others."""
    without: Schema = {
        "attacks": {"items": {"enum": [ALL, *SUITE]}},
        "algorithm": {"properties": {"name": {"enum": list(SYSTEMS)}}},
        "measures": {"maxItems": 0},
    }
    gate = {"properties": {"metric": figures, "attack": {"enum": list(SUITE)}}}
    then: Schema = {"properties": {"gates": {"items": gate}}}
    return {"if": {"properties": without}, "then": then}


def _union(tables: Iterable[Schema], chosen_by: str) -> Schema:
    """A table with the union of the keys of some tables, for completion in an editor.

    Other parts of the schema say what the keys of a specific table hold. Here a key may have
    another meaning, and there may be other keys, in the table of a plug-in or of an algorithm that
    is not installed.

    Args:
        tables: all that are known.
        chosen_by: the key that says which of the tables it is.
    """
    merged: dict[str, list[Schema]] = {}
    for table in tables:
        for name, schema in table["properties"].items():
            known = merged.setdefault(name, [])
            if schema not in known:
                known.append(schema)
    chosen = merged.pop(chosen_by)
    offered = {
        name: {"description": each[0].get("description", "")} for name, each in merged.items()
    }
    properties = {chosen_by: chosen[0] if len(chosen) == 1 else {"anyOf": chosen}, **offered}
    return {"type": "object", "properties": properties}


def _layers(layers: Mapping[str, type[Any]]) -> Schema:
    """A table of one of several layers."""
    extra = {"layer": layer_facts(layers)}
    tables = {name: table_schema(kind, extra=extra) for name, kind in layers.items()}
    cases = [
        {"if": {"properties": {"layer": {"enum": [name]}}, "required": ["layer"]}, "then": table}
        for name, table in tables.items()
    ]
    return {**_union(tables.values(), "layer"), "required": ["layer"], "allOf": cases}


def _tables_of_pair(pair: Trained) -> tuple[Schema, Schema]:
    data, algorithm = pair.naming()
    return (
        table_schema(pair.data, extra={"name": data}, without=pair.idle),
        table_schema(pair.algorithm, extra={"name": algorithm}),
    )


def _trained_tables() -> Schema:
    data, algorithm = zip(*map(_tables_of_pair, trained()), strict=True)
    tables = {"data": _union(data, "name"), "algorithm": _union(algorithm, "name")}
    if absent():  # whose data sets are not known here
        tables["data"]["properties"].pop("name")
    return tables


def _of_pair(pair: Trained) -> Schema:
    """The schema of both tables if their names select this pair."""
    named = {
        "algorithm": _names(pair.system.name, default=pair.system.name == DEFAULT_SYSTEM),
        "data": _names(*pair.sets, default=pair.system.default_data in pair.sets),
    }
    meant: Schema = {"properties": {key: names for key, (names, _) in named.items()}}
    meant["required"] = [key for key, (_, default) in named.items() if not default]
    data, algorithm = _tables_of_pair(pair)
    return {"if": meant, "then": {"properties": {"data": data, "algorithm": algorithm}}}


def _names(*names: str, default: bool) -> tuple[Schema, bool]:
    """A table with one of some names; the name may be left out if one is the default."""
    schema: Schema = {"properties": {"name": {"enum": list(names)}}}
    return (schema if default else {**schema, "required": ["name"]}), default
