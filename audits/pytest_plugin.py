"""The pytest plugin: a recorded federation as a fixture, and its seed in reports of failing tests.

Installed with the package; ``-p no:audits.pytest_plugin`` leaves it out. Only pytest is imported
before a test asks for a run.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from audits.results import SimulatedRun

_OPTION = "recorded_run"
_MARK = (
    "recorded_run(config, **overrides): the configuration that the fixture recorded_run trains: "
    "settings, a dict, a path relative to pytest's rootdir, or the name of a preset; overrides by "
    "key, with two underscores for each dot"
)
_RUNS = pytest.StashKey["dict[str, SimulatedRun]"]()
"""Runs of a session, by configuration."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option ``recorded_run``."""
    about = "configuration that the fixture recorded_run trains: a path, or the name of a preset"
    parser.addini(_OPTION, about)


def pytest_configure(config: pytest.Config) -> None:
    """The marker ``recorded_run``."""
    config.addinivalue_line("markers", _MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pass the arguments of a test's marker to the fixture."""
    if _OPTION not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(_OPTION)
    if mark is not None:
        if len(mark.args) != 1:
            problem = f"{metafunc.definition.nodeid}: recorded_run takes one configuration"
            raise pytest.UsageError(problem)
        given = mark.args[0]
        name = given if isinstance(given, str) else type(given).__name__
        asked = (given, {key.replace("__", "."): value for key, value in mark.kwargs.items()})
        metafunc.parametrize(_OPTION, [asked], ids=[name], indirect=True, scope="session")


@pytest.fixture(scope="session")
def recorded_run(request: pytest.FixtureRequest) -> "SimulatedRun":
    """A federation that was trained and recorded, once in a session for each configuration.

    The configuration is named by the marker ``recorded_run(config, **overrides)``, else by the ini
    option of that name. ``audits.attack`` and ``assert_no_leak`` take it. Its folder is removed
    when the session ends.

    Raises:
        Failed: neither names a configuration.
        ConfigError, DataError: as ``audits.simulate`` does.
    """
    given, overrides = getattr(request, "param", None) or (request.config.getini(_OPTION), {})
    if not given:
        problem = "recorded_run needs a configuration: mark the test with recorded_run(config), or "
        pytest.fail(f"{problem}set the ini option {_OPTION!r}", pytrace=False)
    import audits  # noqa: PLC0415 - a session without such a test does not wait for it

    root = request.config.rootpath
    if isinstance(given, str) and (root / given).is_file():
        given = root / given
    runs = request.config.stash.setdefault(_RUNS, {})
    key = repr((given, sorted(overrides.items())))
    if key not in runs:
        runs[key] = audits.simulate(given, overrides=overrides)
    return runs[key]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Release the runs of the session, which removes their folders."""
    if _RUNS in config.stash:
        del config.stash[_RUNS]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure how its recorded run can be repeated."""
    report = yield
    run: Any = getattr(item, "funcargs", {}).get(_OPTION)
    if report.failed and run is not None:
        told = f"recorded_run: seed = {run.seed}, {run.config.title}"
        report.sections.append(("secure-fedrec", told))
    return report
