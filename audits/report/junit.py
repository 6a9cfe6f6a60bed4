"""The report as JUnit XML, as test runners of pipelines read it.

A gate is a test case, and so is every attack by every adversary: a failure is a gate that fell or a
finding that must not be there, an error is what could not be decided, and skipped is an attack that
did not apply or a finding that is excused. No failure and no error is exit code 0, and a failure is
exit code 1.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from audits.gates.policy import objections
from audits.gates.verdict import FAIL, KNOWN, OPEN, WAIVED, Objection, Report
from audits.report.text import spoken

_KINDS = {FAIL: "failure", OPEN: "error", WAIVED: "skipped", KNOWN: "skipped"}
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_Case = tuple[str, str, str, str]
"""Class, name, outcome ("" for passed), and reason."""


def render_junit(report: Report) -> str:
    """Writes a report as JUnit XML."""
    found = objections(report)
    suites = {"gates": _gates(report, found), "attacks": _attacks(report, found)}
    if others := [each for each in found if each.gate is None and each.attack is None]:
        suites["audit"] = [("audit", each.text, _KINDS[each.state], each.text) for each in others]
    root = ET.Element("testsuites")
    for number, (name, cases) in enumerate(suites.items()):
        root.append(_suite(report, number, name, cases))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", short_empty_elements=True)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _gates(report: Report, found: Sequence[Objection]) -> list[_Case]:
    against = {each.gate: each for each in found if each.gate is not None}
    cases = []
    for number, gate in enumerate(report["gates"]):
        where = ".".join(gate[part] for part in ("adversary", "attack") if gate[part])
        each = against.get(number)
        kind, why = ("", gate["reason"]) if each is None else (_KINDS[each.state], each.text)
        cases.append((f"gates.{where}" if where else "gates", gate["name"], kind, why))
    return cases


def _attacks(report: Report, found: Sequence[Objection]) -> list[_Case]:
    """Attacks that no gate covers."""
    cases = []
    order = (FAIL, OPEN, WAIVED, KNOWN)
    for finding in report["findings"]:
        pair = finding["adversary"], finding["attack"]
        mine = [e for e in found if e.gate is None and (e.adversary, e.attack) == pair]
        worst = min(mine, key=lambda each: order.index(each.state), default=None)
        kind, why = (
            ("", finding["sentence"]) if worst is None else (_KINDS[worst.state], worst.text)
        )
        if finding["status"] != "measured" and worst is None:
            kind, why = "skipped", str(finding["reason"])
        cases.append((f"attacks.{pair[0]}", pair[1], kind, why))
    ran = {(each["adversary"], each["attack"]) for each in report["findings"]}
    return cases + [
        (f"attacks.{each.adversary}", str(each.attack), _KINDS[each.state], each.text)
        for each in found
        if each.gate is None
        and each.attack is not None
        and (each.adversary, each.attack) not in ran
    ]


def _suite(report: Report, number: int, name: str, cases: Sequence[_Case]) -> ET.Element:
    manifest, kinds = report["manifest"], [kind for _, _, kind, _ in cases]
    suite = ET.Element(
        "testsuite",
        {
            "name": name,
            "package": "secure-fedrec",
            "id": str(number),
            "timestamp": _second(manifest["started"]),
            "hostname": "localhost",
            "tests": str(len(cases)),
            **{word: str(kinds.count(kind)) for kind, word in _COUNTED.items()},
            "time": f"{manifest['seconds'] if number == 0 else 0:.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    told = {"title": report["title"], "verdict": report["verdict"]["outcome"]}
    for key, value in told.items():
        ET.SubElement(properties, "property", {"name": key, "value": spoken(value)})
    for where, what, kind, why in cases:
        case = ET.SubElement(
            suite, "testcase", {"name": spoken(what), "classname": spoken(where), "time": "0"}
        )
        if kind == "skipped":
            ET.SubElement(case, kind, {"message": spoken(why)})
        elif kind:
            told = {"message": spoken(why), "type": "gate" if kind == "failure" else OPEN}
            ET.SubElement(case, kind, told).text = spoken(why)
    ET.SubElement(suite, "system-out").text = spoken(report["verdict"]["summary"])
    ET.SubElement(suite, "system-err").text = spoken("\n".join(report["verdict"]["reasons"]))
    return suite


def _second(moment: str) -> str:
    """A time without its zone, as the format requires; the first second of 1970 without a time."""
    found = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", moment)
    return found[0] if found else "1970-01-01T00:00:00"
