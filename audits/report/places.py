"""The place of a finding in the configuration: the setting that would have to change.

The cloak is responsible for what an adversary can tell about rated sets, the layer that collects
uploads for the rest of what it sees, and the layers of bags for what it finds in bags. Without such
a layer the algorithm is responsible, since it sends uploads in clear. The place of a gate on
utility, losslessness or epsilon is the gate itself.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from attacks.scoring.measures import MEASURES
from attacks.scoring.severities import SEVERITIES
from audits.config.lines import line_of
from audits.gates.figures import figures_of
from audits.gates.verdict import Objection, Report
from audits.report.claims import record_of
from secure_fedrec.protection import BAG_RECORDS, RECORDS

_CLOAKED = ("rated_sets", "virtual_rows")
"""Kinds of claims about what a cloak covers."""
_NO_FILE = "config.json"
"""The configuration file of a run folder, used for an audit without a configuration file."""


def config_path(report: Report) -> str:
    """The configuration file as an URI relative to where the audit ran."""
    return quote(report.get("source", {}).get("path", _NO_FILE))


def config_line(report: Report, key: str) -> int:
    """The 1-based line of a key, or of its enclosing table if it is not in the file."""
    return line_of(key, report.get("source", {}).get("lines", {}))


def key_of_objection(report: Report, objection: Objection) -> str:
    """The key that an objection belongs to."""
    if objection.state == "fail" and objection.waiver is not None:
        return f"waivers[{objection.waiver}].expires"
    if objection.attack is not None:
        for finding in report["findings"]:
            if (finding["adversary"], finding["attack"]) == (objection.adversary, objection.attack):
                if objection.metric is None and finding.get("lacks"):
                    return "recording"
                return key_of_finding(report, finding, objection.metric)
        return "attacks"  # the attack was switched off
    return "gates" if objection.gate is None else key_of_gate(report, objection.gate)


def key_of_gate(report: Report, number: int) -> str:
    """The key of a gate's bound."""
    return f"gates[{number}].{report['gates'][number]['bound']}"


def key_of_finding(report: Report, finding: Mapping[str, Any], metric: str | None = None) -> str:
    """The key that is responsible for a finding.

    Args:
        report: with its configuration.
        finding: of it.
        metric: the figure in question; None for the worst.
    """
    figures = figures_of(finding)
    metric = metric or min(
        (key for key in MEASURES if figures.get(key) is not None),
        key=lambda key: SEVERITIES.index(MEASURES[key].severity.grade(key, figures)),
        default=None,
    )
    kind = MEASURES[metric].kind if metric and metric in MEASURES else ""
    if kind == "drafts" and (layers := _layers(report, "bag_protection")):
        return f"bag_protection[{len(layers) - 1}].layer"
    layers = _layers(report, "protection")
    known = RECORDS.keys() | BAG_RECORDS.keys()
    roles = [record_of(name).role if name in known else "" for name in layers]
    for role in ("cloak", "collector") if kind in _CLOAKED else ("collector", "cloak"):
        if role in roles:
            return f"protection[{roles.index(role)}].layer"
    return "protection[0].layer" if layers else "algorithm.name"


def key_of_adversary(report: Report, name: str | None) -> str:
    """The key of an adversary."""
    tables = setting(report, "adversaries")
    found = tables if isinstance(tables, list) else []
    names = [each.get("name") if isinstance(each, dict) else each for each in found]
    return f"adversaries[{names.index(name)}]" if name in names else "adversaries"


def setting(report: Report, key: str) -> Any:
    """The value of a key of the configuration; None without one."""
    value: Any = report["configuration"]
    for step in re.findall(r"[^.\[\]]+", key):
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def _layers(report: Report, section: str) -> list[str]:
    """Names of the layers of a section; for plug-ins, their own names."""
    tables = setting(report, section)
    found = tables if isinstance(tables, list) else []
    own = {each["object"]: each["name"] for each in report["manifest"].get("plugins", ())}
    written = (str(setting(report, f"{section}[{n}].layer")) for n in range(len(found)))
    return [own.get(name, name) for name in written]
