"""One thread for linear algebra: sums that are split among threads round differently."""

import sys
from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """A context in which the libraries loaded so far use one thread each."""
    # Looking for thread pools reads the process's memory map, so this is done only once a module is
    # loaded.
    found: AbstractContextManager[object] = _controller(len(sys.modules)).limit(limits=1)
    return found


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    return ThreadpoolController()
