"""What all tests share."""

import gc
import sys
from collections import defaultdict
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

_QUICK = 0.1
_SECONDS = "secure_fedrec/seconds"
_TAKEN = defaultdict[str, float](float)
_WAITING = ("test_deploy_flower.py", "test_adversary_deployed.py", "test_mutants_table.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse cases from a set: every worker of xdist orders them anew, and the whole run ends."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        cases = mark.kwargs.get("argvalues", mark.args[-1])
        if isinstance(cases, (set, frozenset)):
            pytest.fail(f"{metafunc.definition.nodeid}: parametrize over a set; sort it")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick``: the inner loop."""
    quick = f"the first case of every test, but for those that took over {_QUICK} s when last run"
    parser.addoption("--quick", action="store_true", help=quick)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that mostly wait for processes come first: meanwhile other checks use the machine."""
    items.sort(key=lambda item: item.path.name not in _WAITING)
    if not config.getoption("--quick"):
        return
    cache = getattr(config, "cache", None)  # which `-p no:cacheprovider` leaves out
    seconds: dict[str, float] = cache.get(_SECONDS, {}) if cache else {}
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    kept = {id(each) for each in first.values() if seconds.get(each.nodeid, 0) <= _QUICK}
    config.hook.pytest_deselected(items=[each for each in items if id(each) not in kept])
    items[:] = [each for each in items if id(each) in kept]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what a test takes with its fixtures."""
    _TAKEN[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what tests took, for ``--quick``."""
    cache = getattr(session.config, "cache", None)
    if cache and not hasattr(session.config, "workerinput"):
        known = cache.get(_SECONDS, {}) | _TAKEN
        cache.set(_SECONDS, {each: s for each, s in known.items() if s > _QUICK})


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
