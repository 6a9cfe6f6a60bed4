"""The processors that this process may use."""

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """How many there are for it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """As ``map(work, items)``, in a thread that is one result ahead of whoever takes them.

    Args:
        work: never under way twice; what it raises is raised where its result was due.
        items: taken when their turn comes, by the taker.

    Closed before its end, it waits for what is under way.
    """
    waiting = iter(items)
    with ThreadPoolExecutor(1) as thread:
        following = [thread.submit(work, item) for item in islice(waiting, 1)]
        while following:
            result = following.pop().result()
            following = [thread.submit(work, item) for item in islice(waiting, 1)]
            yield result
            del result  # the taker's memory serves again while the next is awaited
