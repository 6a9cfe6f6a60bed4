"""A second thread is one result ahead, and no interrupt holds it or its taker up."""

import signal
import sys
import time
from random import Random

import pytest

from secure_fedrec.core.cores import ahead, has_second_core


def threads() -> int:
    """All that run in this process, those included that ``threading`` does not know."""
    return len(sys._current_frames())


def settled(before: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while threads() > before and time.monotonic() < end:
        time.sleep(0.01)
    return threads() <= before


def test_results_come_in_order_and_one_ahead() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        return number * number

    before, found = threads(), []
    for taken, result in enumerate(ahead(work, range(20))):
        found.append(result)
        assert taken < len(begun) <= taken + 2
    assert found == [number * number for number in range(20)]
    assert begun == list(range(20))
    assert list(ahead(work, [])) == []
    assert threads() == before


def test_an_error_is_raised_where_its_result_was_due() -> None:
    before = threads()
    found: list[int] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(ahead(lambda number: 6 // (3 - number), range(9)))
    assert found == [2, 3, 6]
    assert threads() == before


def test_closing_waits_for_what_is_under_way() -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.05)
        ended.append(number)

    before, works = threads(), ahead(work, range(9))
    next(works)
    works.close()
    assert ended == [0, 1]
    assert settled(before, 0.5)


def test_interrupts_at_any_moment_hold_nothing_up() -> None:
    def interrupted(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    random, before, interrupts = Random(3), threads(), 0
    handler = signal.signal(signal.SIGALRM, interrupted)
    try:
        for _ in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
                for result in ahead(lambda number: sum(range(number)), range(60)):
                    assert result >= 0
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert interrupts > 100
    assert settled(before)


def test_a_worker_of_many_has_no_second_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, parent, has in ((2, None, True), (1, None, False), (2, object(), False)):
        monkeypatch.setattr("secure_fedrec.core.cores.usable_cores", lambda cores=cores: cores)
        monkeypatch.setattr("secure_fedrec.core.cores.parent_process", lambda parent=parent: parent)
        assert has_second_core() == has
