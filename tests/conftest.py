"""What all tests share."""

import gc


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
