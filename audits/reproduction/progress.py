"""Running what is missing, one study after the other, with a progress bar."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tqdm import tqdm

__all__ = ["run_each"]

Wanted = TypeVar("Wanted")
Made = TypeVar("Made")


def run_each(
    missing: Sequence[Wanted],
    run: Callable[[Wanted, "tqdm[Any]"], Made],
    *,
    named: Callable[[Wanted], str],
    progress: bool,
) -> Iterator[tuple[Wanted, Made]]:
    """Run studies in order.

    Args:
        missing: the studies.
        run: runs one of them; may refresh the bar and add to it.
        named: what the bar calls a study.
        progress: whether to draw a bar, where standard error is a terminal.

    Yields:
        Every study with its result, as soon as it is there.
    """
    with tqdm(
        total=len(missing), unit="study", file=sys.stderr, disable=not progress or None
    ) as bar:
        for each in missing:
            bar.set_description(named(each))
            yield each, run(each, bar)
            bar.update()
