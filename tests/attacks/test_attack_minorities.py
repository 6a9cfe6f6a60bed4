"""Few clients in the clear among many under masks: each is found, and nobody where all are hidden.

Means over clients say little of one in a hundred; figures in persons do.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from attacks import SUITE, Finding, evaluate
from attacks.planted.controls import WHO
from attacks.scoring.measures import severity_of
from tests.attacks.minorities import FEDERATIONS, SHARES, Shape, some_of

JUDGED = 20
PERSONS = ("exact_clients", "reidentified_clients")
DRAWN = 20


def findings(name: str, shape: Shape, share: float) -> Mapping[str, Finding]:
    """What the server learns from single uploads of a federation, by attack."""
    transcript, truth = FEDERATIONS[name](shape, share)
    server = WHO["server"]
    tried = {
        attack: evaluate(SUITE[attack], server, transcript, truth, seed=0, judged=JUDGED)
        for attack in SUITE
        if SUITE[attack].control.breaks == "owners"  # others read sums, which say what they say
    }
    return {attack: finding for attack, finding in tried.items() if finding.measured}


@pytest.mark.claim("clear-uploads-counted")
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", FEDERATIONS)
def test_few_in_the_clear_are_found_in_persons(name: str, share: float) -> None:
    shape = Shape()
    found = findings(name, shape, share)
    clear = found["clear-uploads"].figures
    denoisers = shape.clients // 10 if name == "fedrecpp" else 0
    there = len(some_of(shape.clients, share))
    assert there - denoisers <= (clear["clear_clients"] or 0) <= there
    assert clear["clear_precision"] == 1.0
    assert severity_of(clear) == "high"
    told = [
        each.figures[key] or 0 for each in found.values() for key in PERSONS if key in each.figures
    ]
    assert max(told) <= there  # and nobody who is hidden
    assert not any(each.details.get("sure_sets_wrong") for each in found.values())
    if name == "pmf":  # whose rows are its rated items: known for certain
        known = found["direct"].figures
        assert known["clients_exposed"] == there
        assert (known["largest_profile"], known["disclosures_wrong"]) == (1.0, 0.0)
        assert severity_of(known) == "critical"
    if share >= 0.03 or name != "pfedrec":  # whose one small set a guess could have come to
        assert max(told) >= 1, "what they hold is told as well"


@pytest.mark.claim("clear-uploads-counted")
def test_where_all_are_hidden_nothing_is_above_info() -> None:
    """Federations of odd shapes: what is a finding by chance is counted, and there is none."""
    rng = np.random.default_rng(7)
    above = []
    for number in range(DRAWN):
        clients, items = int(rng.integers(12, 70)), int(rng.integers(20, 120))
        mean = float(rng.uniform(5.0, max(6.0, items / 4)))
        shape = Shape(clients=clients, items=items, mean_ratings=mean, seed=100 + number)
        name = list(FEDERATIONS)[number % len(FEDERATIONS)]
        for attack, finding in findings(name, shape, 0.0).items():
            if severity_of(finding.figures) != "info":
                above.append((name, shape, attack))
            assert not any(finding.figures.get(key) for key in (*PERSONS, "clear_clients"))
    assert not above
