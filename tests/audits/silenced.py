"""Findings of reports with nothing left in them that a verdict asks about."""

from typing import Any

from audits.gates.figures import grades


def silence(finding: dict[str, Any]) -> None:
    """Leave nothing in a finding that is above info."""
    for key in grades(finding):
        for part in (finding, finding["details"]):
            for name in (key, f"{key}_certain"):
                if name in part:
                    part[name] = 0.0
    finding["severity"] = "info" if finding["severity"] else None
    assert not grades(finding)
