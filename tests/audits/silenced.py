"""What keeps findings out of the way of tests that are about something else."""

from collections.abc import Mapping
from typing import Any

from attacks.suite import FAMILIES
from audits.gates.figures import grades


def all_waived(raw: Mapping[str, Any]) -> list[dict[str, str]]:
    """Waivers for whatever attacks on ratings find, as a configuration has them."""
    told = {"reason": "not what is tested", "owner": "ann", "expires": "2999-12-31"}
    return [
        {"adversary": adversary["name"], "attack": attack, **told}
        for adversary in raw["adversaries"]
        for attack in FAMILIES["ratings"]
    ]


def silence(finding: dict[str, Any]) -> None:
    """Leave nothing in a finding that is above info, and nothing that no price bounds."""
    for key in grades(finding):
        for part in (finding, finding["details"]):
            for name in (key, f"{key}_certain"):
                if name in part:
                    part[name] = 0.0
    finding["held"] = []
    finding["severity"] = "info" if finding["severity"] else None
    assert not grades(finding)
