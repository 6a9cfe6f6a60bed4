"""What an adversary that knows the seed holds: private tables that clients begin with, alone."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks import evaluate
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.games import Finding
from attacks.suite import SUITE
from audits.gates.verdict import unread
from audits.run.truth import truth_of
from secure_fedrec.streams import Streams
from secure_fedrec.wire import KNOWLEDGE, Adversary
from tests.adversary.test_adversary_coalitions import Run, recorded

pytestmark = pytest.mark.claim("known-seed")

KNOWING = Adversary(name="x", corrupt=frozenset({"server"}), knows=frozenset({"seed"}))
CLIENTS = 20


def run_of(folder: Path, name: str, *payload_rounds: int, **others: Any) -> Run:
    settings = {
        "seed": 4,
        "data": {"name": "synthetic", "clients": CLIENTS, "items": 40, "mean_ratings": 10},
        "algorithm": {"name": name, "rank": 16, "rounds": 3},
        "cohort": {"clients_per_round": 10},
        "recording": {"payload_rounds": payload_rounds},
        "protection": [{"layer": "masking", "min_survivors": 3}],
        "adversaries": [{"name": "x", "corrupt": ["server"]}],
        **others,
    }
    run = recorded(settings, folder)
    return run._replace(truth=truth_of(run.federation, run.truth.recorded))


def found_by(run: Run, attack: Any, adversary: Adversary = KNOWING) -> Finding:
    return evaluate(attack, adversary, run.transcript, run.truth, seed=0)


@pytest.mark.parametrize("name", ["pmf", "fedmf", "fedncf", "pfedrec", "fedrap"])
def test_it_is_what_the_algorithm_draws_from_the_seed(name: str, tmp_path: Path) -> None:
    """Of whatever algorithm; and where no attack has read it, the audit cannot pass."""
    run = run_of(tmp_path, name, 1)
    algorithm, problem, _ = run.federation.fresh()
    algorithm.initialise(problem.vault, Streams.from_seed(run.federation.config.seed))
    first, drawn = run.truth.first_tables(), problem.vault.tables()
    assert first is not None
    assert first.keys() == {each for each, values in drawn.items() if values.any()}
    for each, values in first.items():
        np.testing.assert_array_equal(values, drawn[each])
    findings = [asdict(found_by(run, SUITE[each])) for each in ("sum-decoding", "moved-rows")]
    assert all(KNOWLEDGE in each["received"] for each in findings)
    assert (KNOWLEDGE in unread(findings).get("x", [])) == (name != "pmf")


def test_nobody_else_knows_it(tmp_path: Path) -> None:
    """Not who is not said to; nobody, where clients draw under secrets of their own."""
    run = run_of(tmp_path, "pmf", 1)
    blind = found_by(run, SumDecoding(), replace(KNOWING, knows=frozenset()))
    assert KNOWLEDGE not in (*blind.received, *blind.read)
    assert blind.details["vectors_known_beforehand"] == 0
    keyed = run.federation.under({client: bytes(32) for client in range(CLIENTS)})
    truth = truth_of(keyed, run.truth.recorded)
    assert truth.first_tables() is None
    found = found_by(run._replace(truth=truth), SumDecoding())
    assert KNOWLEDGE not in (*found.received, *found.read)


def test_what_was_not_recorded_is_read_by_nobody(tmp_path: Path) -> None:
    found = found_by(run_of(tmp_path, "pmf", 2), SumDecoding())
    assert KNOWLEDGE in found.received
    assert KNOWLEDGE not in found.read


def test_where_nothing_is_drawn_nothing_is_known(tmp_path: Path) -> None:
    """Rank 0: the seed tells virtual items of simulated clients, which are no part of it."""
    settings = {"name": "pmf", "rank": 0, "rounds": 3, "biases": True}
    found = found_by(run_of(tmp_path, "pmf", 1, algorithm=settings), SumDecoding())
    assert KNOWLEDGE not in found.received


def test_vectors_are_known_of_whoever_comes_for_the_first_time(tmp_path: Path) -> None:
    run = run_of(tmp_path, "pmf", 1, 2, 3)
    found = found_by(run, SumDecoding())
    assert found.figures["disclosures_wrong"] == 0
    assert 10 < found.details["vectors_known_beforehand"] <= CLIENTS
    assert found.figures["clients_exposed"] == found.details["vectors_known_beforehand"]
