"""What the whole pipeline finds where there is nothing, and that it finds what was planted.

``make nulls`` runs all 1,000 null audits.
"""

import os

import pytest
from scipy.stats import binom

from tests.audits.nulls import SCALES, SCORES, Spec, null_audit, null_specs, planted_audit

NULLS = int(os.environ.get("SECURE_FEDREC_NULLS", "100"))
FAMILY_ERROR, RARE = 0.01, 1e-3  # 21 of 1,000 are exceeded that rarely


def even(rounds: int, clients: int = 100) -> Spec:
    return Spec(
        scale="1 to 10",
        skewed=False,
        shuffled=True,
        rounds=rounds,
        scores="noise",
        clients=clients,
        items=40,
    )


@pytest.mark.claim("null-audits")
def test_audits_of_nothing_find_nothing() -> None:
    specs = null_specs(NULLS)
    assert binom.ppf(1 - RARE, 1000, FAMILY_ERROR) == 21
    assert {spec.scale for spec in specs} == set(SCALES)
    assert {spec.scores for spec in specs} == set(SCORES)
    assert {(spec.skewed, spec.shuffled) for spec in specs} == {
        (one, other) for one in (True, False) for other in (True, False)
    }
    assert sum(spec.rounds == 12 for spec in specs) >= NULLS // 4
    found = [null_audit(spec, seed) for seed, spec in enumerate(specs)]
    alarms = sum(severity != "info" for severity in found)
    print(f"{alarms} of {NULLS} null audits above info")
    assert alarms <= binom.ppf(1 - RARE, NULLS, FAMILY_ERROR)


@pytest.mark.claim("null-audits")
def test_a_planted_lift_of_a_tenth_is_found() -> None:
    """Normal scores shifted by 0.358 have an AUC of 0.60, popularity has 0.50; 24 pairs judged."""
    found = [planted_audit(even(rounds), seed, 0.358) for seed in range(15) for rounds in (1, 3)]
    assert sum(severity != "info" for severity in found) >= 0.8 * len(found)


@pytest.mark.claim("null-audits")
def test_a_plain_upload_is_critical() -> None:
    """On every kind of federation, of 30 clients and 12 rounds too."""
    specs = null_specs(24)
    assert sum(spec.rounds == 12 for spec in specs) == 6
    assert all(planted_audit(spec, seed, None) == "critical" for seed, spec in enumerate(specs))
    assert all(planted_audit(even(1), seed, None) == "critical" for seed in range(20))
