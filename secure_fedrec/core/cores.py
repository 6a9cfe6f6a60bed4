"""The processors that this process may use."""

import os
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from multiprocessing import parent_process
from queue import Empty, SimpleQueue
from typing import TypeVar
from weakref import ref

Item = TypeVar("Item")
Result = TypeVar("Result")

_PATIENCE = 1.0
"""Seconds after which a thread looks if anybody is left to ask it."""


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
    # An interrupt may strike the taker between any two steps. So no lock of Python's own is held
    # here, which it could leave so, and a thread that nobody tells that it is over finds out.
    asked: SimpleQueue[list[Item]] = SimpleQueue()
    done: SimpleQueue[tuple[list[Result], BaseException | None]] = SimpleQueue()
    ended, waiting, started = allocate_lock(), iter(items), False

    def ask() -> bool:
        following = list(islice(waiting, 1))
        if following:
            asked.put(following)
        return bool(following)

    try:
        if more := ask():
            ended.acquire()
            start_new_thread(_serve, (work, ref(asked), done, ended))
            started = True
        while more:
            found, error = done.get()
            if error is not None:
                raise error
            more = ask()
            yield found.pop()
    finally:
        asked.put([])
        if started:
            ended.acquire()


def _serve(
    work: Callable[[Item], Result],
    asked: "ref[SimpleQueue[list[Item]]]",
    done: "SimpleQueue[tuple[list[Result], BaseException | None]]",
    ended: LockType,
) -> None:
    """Do what is asked for, until that is nothing, or nobody is there to ask."""
    try:
        while (asking := asked()) is not None:
            try:
                items = asking.get(timeout=_PATIENCE)
            except Empty:
                continue
            finally:
                del asking
            if not items:
                return
            try:
                done.put(([work(items.pop())], None))
            except BaseException as error:
                done.put(([], error))
    finally:
        ended.release()
