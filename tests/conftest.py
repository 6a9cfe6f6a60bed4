"""What all tests share."""

import gc
import sys
from pathlib import Path

# Some installed packages ship a ``benchmarks`` too.
sys.path.insert(0, str(Path(__file__).parents[1]))


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
