"""Repeats a plain run: if two plain runs differ, the difference is not due to the stack."""

from collections.abc import Callable
from dataclasses import dataclass

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.properties.lossless.plain_run import PlainRun

_NO_FUNCTION = (
    "two plain runs of one seed differ: it draws from elsewhere than `streams`, or remembers "
    "earlier runs"
)
_ROWS = "the rows that it gives to a cloak are not those of its upload"
_SHARES = "what a client uploads or keeps depends on who shares its batch or came before it"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """A round of a plain run: enough to repeat it, and to check whether the result is the same.

    Args:
        due: the clients that must take part.
        batches: the same clients, in the batches of the tested stack.
        reported: bool[N], which of their rows were summed.
        empty: see ``PlainRun.finish``.
        digest: see ``PlainRun.digest``.
    """

    due: list[IntArray]
    batches: list[IntArray]
    reported: BoolArray
    empty: dict[str, FloatArray]
    digest: bytes


def fault_of_algorithm(
    start: Callable[[], PlainRun], settled: list[Settled], *, covered: bool
) -> str | None:
    """Why two plain runs differ, in words; None if they are equal.

    Args:
        start: begins the same plain run again.
        settled: the rounds of the first one.
        covered: whether the tested stack has a cloak.
    """
    alone = [each.due for each in settled]
    # Side by side, as the first run was: two runs may share a generator that each of them seeds.
    if not _repeats([start(), start()], settled, alone):
        return _NO_FUNCTION
    if not _repeats([start()], settled, [each.batches for each in settled]):
        return _SHARES
    if covered and not _repeats([start()], settled, alone, as_covered=True):
        return _ROWS
    return None


def _repeats(
    runs: list[PlainRun],
    settled: list[Settled],
    batches: list[list[IntArray]],
    *,
    as_covered: bool = False,
) -> bool:
    for due, each in zip(settled, batches, strict=True):
        for run in runs:
            run.compute(each, as_covered=as_covered)
        if any(len(run.rows) != len(due.reported) for run in runs):
            return False
        for run in runs:
            run.finish(due.reported, due.empty)
        if any(run.digest() != due.digest for run in runs):
            return False
    return True
