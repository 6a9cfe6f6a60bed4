"""The schema of ``report.json``: its frame, and a key for every figure that is listed."""

import json
from pathlib import Path
from typing import Any

from attacks.scoring.measures import MEASURES
from attacks.scoring.scales import Unit
from audits.report.not_tried import KINDS

_FRAME = Path(__file__).with_name("schema.json")


def report_schema() -> dict[str, Any]:
    """The schema that reports of this version follow (JSON Schema 2020-12)."""
    schema: dict[str, Any] = json.loads(_FRAME.read_text(encoding="utf-8"))
    schema["properties"]["not_tried"] = _not_tried()
    finding = schema["$defs"]["finding"]["properties"]
    finding["details"]["properties"] = _graded()
    for each in MEASURES.values():
        if not each.page.listed:
            continue
        shape = _shape(each.scale.unit)
        finding[each.key] = {**shape, "description": each.about}
        # A ratio is below 1, the ends of its interval may not be.
        ends = shape if each.scale.unit.low is not None else {"type": shape["type"]}
        finding |= dict.fromkeys(each.ends, ends)
        if each.prior is not None:
            about = each.prior.about or f"For comparison: {each.prior.words}."
            finding[each.prior.key] = {**shape, "description": about}
    return schema


def _graded() -> dict[str, Any]:
    """Details that severities are graded by: figures, and the certain parts of gains."""
    names = (name for key in MEASURES for name in (key, f"{key}_certain"))
    return {name: {"type": ["number", "null"]} for name in names}


def finding_fields() -> frozenset[str]:
    """Names of a finding's fields other than figures, at any depth."""
    schema = json.loads(_FRAME.read_text(encoding="utf-8"))
    return frozenset(_properties(schema["$defs"]["finding"]))


def _properties(schema: Any) -> set[str]:
    """Names of all properties in a part of a schema."""
    if not isinstance(schema, dict | list):
        return set()
    inner = schema.values() if isinstance(schema, dict) else schema
    own = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return set(own).union(*map(_properties, inner))


def _not_tried() -> dict[str, Any]:
    """What was not tried, by kind."""
    kinds = "; ".join(f"{kind}: {words}" for kind, words in KINDS.items())
    fields = {
        "kind": {"enum": list(KINDS), "description": f"{kinds}."},
        "text": {"type": "string", "description": "The same in words."},
        "attacks": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of the attacks concerned; empty if no attack of the suite is.",
        },
    }
    return {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": list(fields),
            "properties": fields,
        },
        "description": "What was not tried; a verdict does not cover this.",
    }


def _shape(unit: Unit) -> dict[str, Any]:
    """A number in the unit's range, or null."""
    limits = {"minimum": unit.low, "maximum": unit.high}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": ["number", "null"], **given}
