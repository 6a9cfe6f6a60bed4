"""Reading a report back: from a run folder or its ``report.json``, checked against the schema.

A report may come from another machine or from a pipeline: data that do not follow the schema are
refused before they are used.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attacks.scoring.measures import MEASURES
from audits.plugins import named
from audits.report.html import SCHEMA_VERSION
from audits.report.schema import report_schema
from audits.run.folder import CONFIG_DIGEST, CONFIG_NAME, read_own_config
from secure_fedrec.core.files import read_json
from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.errors import DataError

REPORT_NAME = "report.json"
_UNFINISHED = "the run has no report yet, continue it with audit --resume"

_HUGE = 1e300


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _HUGE  # what is beyond cannot be drawn


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and _number(value),
    "number": _number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def report_file(result: Path) -> Path:
    """The report file of a RESULT: a run folder, or the ``report.json`` of one.

    Raises:
        DataError: there is no report, or the run was not finished.
    """
    if not result.is_dir():
        if not result.exists():
            raise DataError(result, "the run folder or report.json does not exist")
        return result
    if (result / REPORT_NAME).exists():
        return result / REPORT_NAME
    if (result / CONFIG_NAME).exists():
        raise DataError(result, _UNFINISHED)
    raise DataError(result, "is not a run folder: it does not hold a report.json")


def read_report(result: Path) -> dict[str, Any]:
    """The report of a RESULT.

    Raises:
        DataError: it is missing, not JSON, of another version, or does not follow the schema.
    """
    path = report_file(result)
    with readable(path), refused(path, "is not valid JSON: {}", ValueError):
        report = read_json(path)
        json.dumps(report, allow_nan=False)  # Python reads what is not JSON
    version = report.get("schema_version") if isinstance(report, dict) else None
    if not isinstance(report, dict) or version is None:
        raise DataError(path, "is not a report of an audit")
    if version != SCHEMA_VERSION:
        problem = f"has schema version {version!r}, this is version {SCHEMA_VERSION!r}"
        raise DataError(path, problem)
    _require_figures(result, report)
    schema = report_schema()
    for problem in _problems(report, schema, schema["$defs"], "report"):
        raise DataError(path, problem)
    if result.is_dir() and (result / CONFIG_NAME).exists():
        _require_latest(result, report)
    return report


def _require_figures(result: Path, report: Mapping[str, Any]) -> None:
    """Load figures of plug-ins, by which findings are judged, as a run's own configuration does.

    No plug-in is imported for a report without its run folder, since an attacker may have written
    the report.

    Raises:
        ConfigError: a plug-in cannot be loaded.
        DataError: it is a report without its run folder, and has unknown figures.
    """
    manifest = report.get("manifest")
    plugins = manifest.get("plugins") if isinstance(manifest, dict) else None
    told = [each for each in plugins or () if isinstance(each, dict)]
    names = [str(each.get("name")) for each in told if each.get("kind") == "figures"]
    unknown = [name for name in names if name not in MEASURES]
    if unknown and result.is_dir() and (result / CONFIG_NAME).exists():
        named(read_own_config(result))
    elif unknown:
        problem = f"has figures of plug-ins, {', '.join(unknown)}: give its run folder instead"
        raise DataError(result, problem)


def _require_latest(run: Path, report: Mapping[str, Any]) -> None:
    """Refuse the report of a run that was continued under another configuration, unfinished."""
    with refused(run / CONFIG_NAME, "is damaged", OSError, ValueError, KeyError, TypeError):
        begun = read_json(run / CONFIG_NAME)[CONFIG_DIGEST]
    if begun != report["manifest"]["config_sha256"]:
        raise DataError(run, f"report.json is of an earlier configuration: {_UNFINISHED}")


def _problems(
    value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any], where: str
) -> Iterator[str]:
    """Errors of a value, by the part of JSON Schema that the schema of reports uses."""
    if "$ref" in schema:
        yield from _problems(value, defs[schema["$ref"].rpartition("/")[2]], defs, where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{where} should be {' or '.join(kinds)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where} should be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} should be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, int | float) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        yield f"{where} is out of range"
    if choices := schema.get("oneOf"):
        found = [list(_problems(value, each, defs, where)) for each in choices]
        if [] not in found:
            yield found[-1][0]
    if isinstance(value, dict):
        yield from _members(value, schema, defs, where)
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from _problems(each, schema["items"], defs, f"{where}[{number}]")


def _members(
    value: Mapping[str, Any], schema: Mapping[str, Any], defs: Mapping[str, Any], where: str
) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} lacks {name!r}"
    for name, each in value.items():
        if name in known:
            yield from _problems(each, known[name], defs, f"{where}.{name}")
        elif isinstance(others, dict):
            yield from _problems(each, others, defs, f"{where}.{name}")
        elif not others:
            yield f"{where} holds {name!r}, which a report does not"
