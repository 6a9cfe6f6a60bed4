"""Attacks that several processes share: the same results, and an end that is clean."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from audits.commands import _recorded_truth
from audits.run.audit import attack_all
from audits.run.workers import shared_out
from secure_fedrec.errors import HostError
from secure_fedrec.wire import Transcript

ATTACKS = ("direct", "intersection", "lattice", "denoiser-sums", "collusion-linkage")


def test_any_number_of_workers_finds_the_same(recorded: Path) -> None:
    transcript = Transcript.open(recorded / "transcript")
    config, truth = _recorded_truth(recorded, transcript)

    def found(workers: int) -> list[object]:
        findings = attack_all(
            transcript, truth, config.adversaries, ATTACKS, seed=1, bars=False, workers=workers
        )
        assert [each.attack for each in findings] == [*ATTACKS, *ATTACKS]
        parts = ("reason", "rounds", "figures", "units", "details", "null_control", "roc")
        return [[repr(getattr(each, part)) for part in parts] for each in findings]

    alone = found(1)
    assert found(2) == alone
    assert found(3) == alone
    assert not multiprocessing.active_children()


def test_results_come_in_order_and_all_that_work_is_elsewhere() -> None:
    told: list[int] = []
    found = shared_out(
        lambda number: (number, os.getpid()), 20, workers=3, done=lambda: told.append(1)
    )
    assert [number for number, _ in found] == list(range(20))
    assert os.getpid() not in {process for _, process in found}
    assert len(told) == 20


def test_a_worker_that_is_killed_is_named_and_nobody_is_left() -> None:
    def work(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(HostError, match=r"a worker was killed \(exit code -9\)"):
        shared_out(work, 8, workers=2)
    assert not multiprocessing.active_children()


def test_what_a_worker_raises_is_raised_here() -> None:
    def work(number: int) -> int:
        raise KeyError(f"of number {number}")

    with pytest.raises(KeyError, match="of number"):
        shared_out(work, 8, workers=2)
    assert not multiprocessing.active_children()


def test_an_interrupt_ends_all_workers() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared_out(lambda number: number, 8, workers=2, done=stop)
    assert not multiprocessing.active_children()
