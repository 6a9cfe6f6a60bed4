"""What FedRec++ leaks on the real ml-100k, against the figures of an independent prototype."""

from collections.abc import Callable
from typing import Any

import pytest

from attacks import Finding
from secure_fedrec.wire import Adversary
from tests.attacks.made import LatticeAt

pytestmark = [pytest.mark.data, pytest.mark.xdist_group("ml-100k")]

RecordedRun = Callable[[int, int, int], Any]
N_CLIENTS = 943
ROUNDS = {1: 20, 2: 8, 3: 20}  # past the switch from averages to predictions
COLLUSION = Adversary(name="server+denoisers", corrupt=frozenset({"server", "denoisers"}))


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None, (finding.reason, name)
    return value


@pytest.mark.parametrize("rho", [1, 2, 3])
def test_intersection_over_rounds(recorded: RecordedRun, rho: int) -> None:
    """After five rounds the AUC is at least 0.99; within the first upload it is a coin flip."""
    finding = recorded(rho, 1, ROUNDS[rho]).attacked("intersection")
    history = finding.details["auc_by_rounds"]
    assert history["5"]["auc"] >= 0.99
    assert history["5"]["support_auc"] >= 0.99
    assert history["1"]["support_auc"] == 0.5
    expected_first = {1: 0.972, 2: 0.944, 3: 0.917}[rho]
    assert history["1"]["auc"] == pytest.approx(expected_first, abs=0.003)
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize("rho", [1, 3])
@pytest.mark.parametrize("round_", [1, 20])
def test_lattice_decodes_one_upload(recorded: RecordedRun, rho: int, round_: int) -> None:
    """One upload gives every rating, the user vector, and nearly always the exact rated set."""
    finding = recorded(rho, 1, ROUNDS[rho]).attacked(LatticeAt(round_))
    assert figure(finding, "rating_accuracy") == 1.0
    assert figure(finding, "user_vector_share") == 1.0
    assert figure(finding, "recall") == 1.0
    assert figure(finding, "precision") >= 0.97
    assert figure(finding, "exact_set_share") >= 0.95
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize("rho", [1, 2, 3])
def test_collusion_links_messages(recorded: RecordedRun, rho: int) -> None:
    """Server and denoiser name the sender of every anonymous message."""
    run = recorded(rho, 1, ROUNDS[rho])
    finding = run.attacked("collusion-linkage", COLLUSION)
    assert figure(finding, "linked_by_value_share") >= 0.999
    assert figure(finding, "linked_by_set_and_size_share") >= 0.995
    if rho == 1:
        assert figure(finding, "linked_by_set_share") >= 0.995
    # By its items alone a message fits its sender and all who upload the whole catalogue.
    everything = len(run.federation.stack.capped(run.federation.task.split.train.counts()))
    assert everything == {1: 0, 2: 2, 3: 5}[rho]
    assert figure(finding, "candidates_by_set_median") == everything + 1


def test_more_denoisers_leak_more(recorded: RecordedRun) -> None:
    """The server alone unmasks nothing behind one denoiser, and nearly all behind n/4."""
    shares, exposed = [], []
    for count in (1, 50, N_CLIENTS // 4, N_CLIENTS // 2):
        run = recorded(1, count, 1)
        shares.append(figure(run.attacked("denoiser-sums"), "unmasked_share"))
        exposed.append(figure(run.attacked("denoiser-exposure"), "recall"))
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[2] >= 0.9
    # Independent prototype: 0, 0.49, 0.87 and 0.96 of a denoiser's own items.
    assert exposed == sorted(exposed)
    assert exposed == pytest.approx([0.0, 0.49, 0.87, 0.96], abs=0.03)


def test_no_false_proof(recorded: RecordedRun) -> None:
    """What the sums prove is true: no real row is called virtual, no virtual row real."""
    finding = recorded(1, N_CLIENTS // 4, 1).attacked("denoiser-sums")
    assert figure(finding, "wrongly_unmasked_share") == 0.0
    assert figure(finding, "precision") == 1.0
