"""What all tests share."""

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from secure_fedrec.core.allocator import reuse_freed_memory

# Some installed packages ship a ``benchmarks`` too.
sys.path.insert(0, str(Path(__file__).parents[1]))
gc.disable()  # until all is collected: what is imported stays
reuse_freed_memory()  # as commands do
settings.register_profile("untimed", deadline=None)  # no test hangs on seconds
settings.load_profile("untimed")

# Hypothesis also draws constants of the local modules that this process has imported so far: the
# examples of a test would hang on the tests that ran before it.
assert hasattr(providers, "_get_local_constants")
providers._get_local_constants = Constants

_WAITING = ("test_deploy_flower.py", "test_mutants_table.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse cases from a set: every worker of xdist orders them anew, and the whole run ends."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        cases = mark.kwargs.get("argvalues", mark.args[-1])
        if isinstance(cases, (set, frozenset)):
            pytest.fail(f"{metafunc.definition.nodeid}: parametrize over a set; sort it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait for processes come first: meanwhile other checks use the machine."""
    items.sort(key=lambda item: item.path.name not in _WAITING)


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay: the garbage collector need not look at them again.

    Nor so often as by default: it took a tenth of the time of tests that make many small objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture
def one_paillier_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Federations under Paillier share one key (``tests.paillier_key``)."""
    from tests.paillier_key import share

    share(monkeypatch)
