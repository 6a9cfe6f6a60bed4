"""Attacks that several processes share: the same results, and an end that is clean."""

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from tqdm import tqdm

from audits.config.audit import parse_config
from audits.run import audit, training
from audits.run.audit import attack_all
from audits.run.build import build_federation, load_dataset
from audits.run.folder import one_writer
from audits.run.recorded import recorded_truth
from audits.run.training import open_run, train_others, train_recorded
from audits.run.workers import shared_out
from secure_fedrec.errors import HostError
from secure_fedrec.wire import Transcript

ATTACKS = ("direct", "intersection", "lattice", "denoiser-sums", "collusion-linkage")


def test_any_number_of_workers_finds_the_same(recorded: Path) -> None:
    transcript = Transcript.open(recorded / "transcript")
    config, truth = recorded_truth(recorded, transcript)

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
    told: list[object] = []
    found = shared_out(
        lambda number: (number, os.getpid()), 20, workers=3, done=lambda *each: told.append(each)
    )
    assert [number for number, _ in found] == list(range(20))
    assert os.getpid() not in {process for _, process in found}
    assert sorted(told, key=repr) == sorted(enumerate(found), key=repr)


def test_a_worker_that_is_killed_is_named_and_nobody_is_left() -> None:
    def work(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(HostError, match=r"a worker was killed \(exit code -9\)"):
        shared_out(work, 8, workers=2)
    assert not multiprocessing.active_children()


def test_a_worker_that_is_killed_while_it_draws_leaves_the_bars_to_be_drawn() -> None:
    """Found by attacking: it kept the lock that all bars share, and the next one waited for it."""
    lock: Any = tqdm.get_lock()  # type: ignore[no-untyped-call]

    def work(number: int) -> int:
        own: Any = tqdm.get_lock()  # type: ignore[no-untyped-call]
        own.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
        return number

    with tqdm(total=2, file=io.StringIO()):
        with pytest.raises(HostError, match=r"a worker was killed \(exit code -9\)"):
            shared_out(work, 2, workers=2)
        for each in lock.locks:
            assert each.acquire(timeout=5)
            each.release()


def test_warnings_of_workers_stand_above_the_bar_which_is_drawn_as_it_is() -> None:
    """Found by attacking: a worker drew it again as it was when the worker began."""
    program = """
import sys, warnings
from tqdm import tqdm
from audits import cli
from audits.run.workers import shared_out
sys.argv = ["secure-fedrec", "explain"]
cli.main()
def work(number):
    warnings.warn(f"item {number}", RuntimeWarning)
with tqdm(total=9, initial=3, desc="items", mininterval=0) as bar:
    shared_out(work, 6, workers=2, done=lambda *_: bar.update())
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    )
    shown = ended.stderr.decode()
    lines = [line.split("\r")[-1].rstrip() for line in shown.split("\n")]
    told = {line for line in lines if "secure" in line}
    assert told == {f"secure-fedrec: item {number}" for number in range(6)}
    counts = [int(each) for each in re.findall(r"(\d)/9", shown)]
    assert counts == sorted(counts)
    assert counts[-1] == 9


def test_a_worker_that_is_killed_while_it_waits_is_named_as_well() -> None:
    """Found by attacking: it was told as a standard output that was closed."""

    def kill(_number: int, worker: int) -> None:
        os.kill(worker, signal.SIGKILL)
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)

    with pytest.raises(HostError, match=r"a worker was killed \(exit code -9\)"):
        shared_out(lambda _: os.getpid(), 8, workers=2, done=kill)
    assert not multiprocessing.active_children()


def test_what_a_worker_raises_is_raised_here() -> None:
    def work(number: int) -> int:
        raise KeyError(f"of number {number}")

    with pytest.raises(KeyError, match="of number"):
        shared_out(work, 8, workers=2)
    assert not multiprocessing.active_children()


def test_an_interrupt_ends_all_workers() -> None:
    def stop(_number: int, _result: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared_out(lambda number: number, 8, workers=2, done=stop)
    assert not multiprocessing.active_children()


# --- trainings beside the recorded one ------------------------------------------------------------


@pytest.fixture
def folded(small: dict[str, Any]) -> dict[str, Any]:
    """Three folds and a twin, with few rounds."""
    small["data"] |= {"folds": 3, "fold": 0, "utility_folds": 3, "split": "k-fold"}
    small["algorithm"]["rounds"] = 2
    small["recording"]["payload_rounds"] = [1]
    return small | {"attacks": ["direct", "intersection"], "gates": []}


def test_any_number_of_workers_trains_the_same_folds_and_twin(
    folded: dict[str, Any], tmp_path: Path
) -> None:
    config = parse_config(folded)
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        with one_writer(out, resume=False):
            run = open_run(federation, out, resume=False)
            train_recorded(federation, run, out, progress=False)
            others = train_others(federation, dataset, run, out, progress=False, workers=workers)
        found.append((others, (out / "folds.json").read_bytes()))
    assert found[0] == found[1]
    folds, lossless = found[0][0]
    assert [fold["fold"] for fold in folds] == list(dataset.folds[1:])
    assert lossless is not None
    assert lossless.holds
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("phase", ["folds", "twin", "attacks"])
def test_a_worker_that_is_killed_is_told_and_the_run_resumed(
    phase: str,
    folded: dict[str, Any],
    write_config: Callable[[dict[str, Any]], Path],
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config, whole, out = write_config(folded), tmp_path / "whole", tmp_path / "run"
    expected = command("audit", config, "--out", whole, "--quiet")[0]
    home, name = {
        "folds": (training, "_train_fold"),
        "twin": (training, "check_lossless"),
        "attacks": (audit, "tried"),
    }[phase]
    plain = getattr(home, name)

    def killed(*arguments: Any, **named: Any) -> Any:
        if phase != "folds" or arguments[2] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **named)

    with monkeypatch.context() as patched:
        sizes = (1, 2) if phase == "attacks" else (2, 1)
        crews = tuple(SimpleNamespace(workers=size, lowered=None) for size in sizes)
        patched.setattr(audit, "crews", lambda *_: crews)
        patched.setattr(home, name, killed)
        code, _, told = command("audit", config, "--out", out, "--quiet")
    assert code == 2
    assert told.splitlines()[-1].startswith("secure-fedrec: a worker was killed (exit code -9)")
    assert not (out / "report.json").exists()
    assert command("audit", config, "--out", out, "--quiet", "--resume")[0] == expected
    assert (out / "folds.json").read_bytes() == (whole / "folds.json").read_bytes()


@pytest.mark.parametrize("dear_last", [False, True])
def test_where_the_last_take_longest_workers_begin_with_them(dear_last: bool) -> None:
    """And the results lie in their order all the same."""
    order: list[int] = []
    found = shared_out(
        lambda number: (number, monotonic()),
        9,
        workers=2,
        dear_last=dear_last,
        done=lambda number, _: order.append(number),
    )
    assert [number for number, _ in found] == sorted(order) == list(range(9))
    first, _ = min(found, key=lambda each: each[1])
    assert first in ((7, 8) if dear_last else (0, 1))
