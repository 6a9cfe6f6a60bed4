"""Shares work among processes of this machine, with the same results as one process.

Workers are forked: they have all that is in memory, and only a number is sent to them. Each item of
work is independent, so results do not depend on which worker did it, or on how many there are.
Workers end with the process that forked them, however it ends.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from audits.interrupts import ENDINGS
from audits.peak_memory import LOOK_EVERY, look_at
from audits.terminal import leave_bars
from secure_fedrec.core.allocator import return_freed_memory
from secure_fedrec.errors import HostError

Result = TypeVar("Result")

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


def shared_out(
    work: Callable[[int], Result],
    count: int,
    *,
    workers: int,
    dear_last: bool = False,
    done: Callable[[int, Result], object] = lambda _number, _result: None,
) -> list[Result]:
    """The results of ``work(0)`` to ``work(count - 1)``, in that order.

    Args:
        work: the function that does an item of work; its results and errors go through a pipe.
        count: how often.
        workers: number of processes; with one, or where processes cannot be forked, all is done
            here.
        dear_last: whether the last items take longest: several workers then begin with them, so
            that none of them is left for the end.
        done: called after each, with its number and its result.

    Raises:
        HostError: a worker was killed.
        Exception: the first error that ``work`` raised.
    """
    if min(workers, count) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        found = []
        for number in range(count):
            found.append(work(number))
            return_freed_memory()
            done(number, found[-1])
        return found
    with _crew(work, min(workers, count)) as crew:
        order = range(count)
        return _collected(crew, order[::-1] if dear_last else order, done)


class _Worker(Generic[Result]):
    """A forked process and the pipe to it."""

    def __init__(self, work: Callable[[int], Result], others: Sequence["_Worker[Result]"]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, far = context.Pipe()
        ours = [self.pipe, *(each.pipe for each in others)]
        self.process = context.Process(
            target=_serve, args=(work, far, ours, os.getpid()), daemon=True
        )
        # Signals are blocked until each process has set its handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        far.close()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return int(self.process.pid or 0)

    def give(self, number: int) -> None:
        """Ask it for a piece of work.

        Raises:
            HostError: the process has ended.
        """
        with self._alive():
            self.pipe.send(number)

    def received(self) -> tuple[int, Any, BaseException | None]:
        """The next finished item: (number, result, error).

        Raises:
            HostError: the process has ended.
        """
        with self._alive():
            number, result, error = self.pipe.recv()
        return number, result, error

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            self.process.join()
            raise HostError(
                f"a worker was killed (exit code {self.process.exitcode}): is there too little "
                "memory? run.workers = 1 takes least"
            ) from None


@contextmanager
def _crew(work: Callable[[int], Result], size: int) -> Iterator[list[_Worker[Result]]]:
    crew: list[_Worker[Result]] = []
    return_freed_memory()  # the workers would not use it
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for _ in range(size):
            crew.append(_Worker(work, crew))
        yield crew
    finally:
        for worker in crew:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _collected(
    crew: Sequence[_Worker[Result]], order: Sequence[int], done: Callable[[int, Result], object]
) -> list[Result]:
    found: dict[int, Any] = {}
    ungiven = iter(order)
    for worker, number in zip(crew, ungiven, strict=False):
        worker.give(number)
    while len(found) < len(order):
        ready = wait([worker.pipe for worker in crew], timeout=LOOK_EVERY)
        look_at(worker.pid for worker in crew)
        for worker in (each for each in crew if each.pipe in ready):
            number, found[number], error = worker.received()
            if error is not None:
                raise error
            done(number, found[number])
            if (following := next(ungiven, None)) is not None:
                worker.give(following)
    return [found[number] for number in range(len(order))]


def _serve(
    work: Callable[[int], object], pipe: Connection, ours: Sequence[Connection], parent: int
) -> None:
    """Do the items of work that are requested, until the requests end."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent handles interrupts
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    leave_bars()
    for other in ours:
        other.close()
    gc.freeze()  # collecting inherited objects would copy their pages
    with suppress(EOFError, OSError):
        while True:
            number = pipe.recv()
            answer: tuple[int, object, Exception | None]
            try:
                answer = (number, work(number), None)
            except Exception as error:
                answer = (number, None, error)
            return_freed_memory()
            pipe.send(answer)
