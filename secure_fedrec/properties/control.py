"""The control: plain against plain. Where two plain runs differ, no stack is to blame."""

from collections.abc import Callable
from dataclasses import dataclass

from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.properties.plain_run import PlainRun

__all__ = ["Settled", "fault_of_algorithm"]

_NO_FUNCTION = (
    "two plain runs of one seed differ: it draws from elsewhere than `streams`, or remembers runs "
    "before"
)
_SHARES = "what a client uploads or keeps depends on who shares its batch or came before it"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """A round of a plain run: enough to run it again, and to see whether it came out the same.

    Args:
        due: the clients, one by one.
        batches: the same clients as the tested stack had them.
        reported: bool[N], which of their rows were summed.
        empty: see ``PlainRun.finish``.
        digest: see ``PlainRun.digest``.
    """

    due: list[IntArray]
    batches: list[IntArray]
    reported: BoolArray
    empty: dict[str, FloatArray]
    digest: bytes


def fault_of_algorithm(start: Callable[[], PlainRun], settled: list[Settled]) -> str | None:
    """Why two plain runs differ, in words; None if they do not.

    Args:
        start: begins the same plain run anew.
        settled: the rounds of the first one.
    """
    if not _repeats(start(), settled, [each.due for each in settled]):
        return _NO_FUNCTION
    if not _repeats(start(), settled, [each.batches for each in settled]):
        return _SHARES
    return None


def _repeats(run: PlainRun, settled: list[Settled], batches: list[list[IntArray]]) -> bool:
    for due, each in zip(settled, batches, strict=True):
        run.compute(each)
        if len(run.rows) != len(due.reported):
            return False
        run.finish(due.reported, due.empty)
        if run.digest() != due.digest:
            return False
    return True
