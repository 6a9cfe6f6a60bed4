"""The processors that this process may use."""

import os
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from multiprocessing import parent_process
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """How many there are for it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_second_core() -> bool:
    """Whether a thread beside this one has a core: a worker of many has but one of its own."""
    return parent_process() is None and usable_cores() > 1


def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """As ``map(work, items)``, in a thread that is one result ahead of whoever takes them.

    Args:
        work: never under way twice; what it raises is raised where its result was due.
        items: taken when their turn comes, by the taker.

    Closed before its end, it waits for what is under way. If that is interrupted, what is under way
    ends by itself, and its result is dropped.
    """
    # An interrupt may strike the taker between any two steps: no lock of Python's own is held
    # here, which it could leave so, and no thread waits to be told that it is over.
    waiting, results = iter(items), SimpleQueue[tuple[list[Result], BaseException | None]]()
    ended: LockType | None = None

    def serve(item: Item, over: LockType) -> None:
        try:
            results.put(([work(item)], None))
        except BaseException as error:
            results.put(([], error))
        finally:
            over.release()

    def begun() -> bool:
        nonlocal ended
        for item in islice(waiting, 1):
            over = allocate_lock()
            over.acquire()
            start_new_thread(serve, (item, over))
            ended = over
            return True
        return False

    try:
        more = begun()
        while more:
            found, error = results.get()
            if error is not None:
                raise error
            more = begun()
            yield found.pop()
    finally:
        if ended is not None:
            ended.acquire()
