"""One thread for linear algebra: sums that are split among threads round differently."""

import sys
from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """A context in which the libraries that are loaded by now use one thread each."""
    # Looking for them reads the process's memory map; nothing is loaded unless a module is.
    found: AbstractContextManager[object] = _controller(len(sys.modules)).limit(limits=1)
    return found


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    return ThreadpoolController()
