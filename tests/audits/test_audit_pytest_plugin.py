"""The pytest plugin, in sessions of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import audits.pytest_plugin
from tests.audits.test_audit_python import TINY

pytest_plugins = ["pytester"]

PLUGIN = "audits.pytest_plugin"
ROOT = Path(audits.pytest_plugin.__file__).parents[1]


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for a session with the plugin, warnings being errors."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makefile(".json", config=json.dumps(TINY))
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")
    return pytester


def run(session: pytest.Pytester, *words: str) -> pytest.RunResult:
    return session.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", *words)


def test_a_marker_names_the_configuration_which_is_trained_once(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest
        from audits.testing import assert_no_leak

        seen = []
        pytestmark = pytest.mark.recorded_run("config.json")

        def test_one(recorded_run):
            seen.append(recorded_run.folder)
            assert recorded_run.seed == 3
            assert_no_leak(recorded_run, attack="direct", adversary="server", max_support_auc=0.6)

        @pytest.mark.recorded_run("config.json", algorithm__rounds=1, seed=4)
        def test_another_configuration(recorded_run):
            assert (recorded_run.seed, len(recorded_run.history)) == (4, 1)

        def test_two(recorded_run):
            seen.append(recorded_run.folder)

        @pytest.fixture(scope="session")
        def of_a_session(recorded_run):
            return recorded_run.folder

        def test_three(of_a_session):
            assert {*seen, of_a_session} == {of_a_session} and len(seen) == 2
            print("FOLDER", of_a_session)
        """
    )
    ended = run(session, "-s")
    ended.assert_outcomes(passed=4)
    folder = next(line.split()[-1] for line in ended.outlines if "FOLDER" in line)
    assert not Path(folder).exists()


def test_an_ini_option_names_it_and_a_marker_goes_before(session: pytest.Pytester) -> None:
    (session.path / "tox.ini").write_text("[pytest]\nrecorded_run = config.json\n")
    session.makepyfile(
        """
        import pytest

        def test_ini(recorded_run):
            assert recorded_run.seed == 3

        @pytest.mark.recorded_run("config.json", seed=5)
        def test_marker(recorded_run):
            assert recorded_run.seed == 5
        """
    )
    run(session).assert_outcomes(passed=2)


def test_a_failure_says_the_seed_of_its_run(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest
        from audits.testing import assert_no_leak

        @pytest.mark.recorded_run("config.json")
        def test_leak(recorded_run):
            assert_no_leak(recorded_run, attack="lattice", adversary="server", max_auc=0.6)

        def test_without_a_run():
            assert False
        """
    )
    ended = run(session)
    ended.assert_outcomes(failed=2)
    ended.stdout.fnmatch_lines(
        [
            ">*assert_no_leak(recorded_run, attack=*",
            "E*AssertionError: server/lattice, seed 3:",
            "E*auc <= 0.6 does not hold: auc is *",
            "*secure-fedrec*",
            "recorded_run: seed = 3, A small federation",
        ]
    )
    assert str(ended.stdout).count("recorded_run: seed = ") == 1


def test_a_run_of_nothing_fails_and_says_what_to_set(session: pytest.Pytester) -> None:
    session.makepyfile("def test_one(recorded_run): pass")
    ended = run(session)
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines(["*recorded_run needs a configuration: mark the test*ini option*"])


def test_a_marker_without_a_configuration_is_refused(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest

        @pytest.mark.recorded_run
        def test_one(recorded_run): pass
        """
    )
    ended = run(session)
    assert ended.ret != 0
    assert "recorded_run takes one configuration" in str(ended.stdout) + str(ended.stderr)


def test_a_wrong_configuration_is_told_by_its_key(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest

        @pytest.mark.recorded_run({"algorithm": {"name": "nothing"}})
        def test_one(recorded_run): pass
        """
    )
    ended = run(session)
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines(["*ConfigError: algorithm.name = 'nothing': unknown algorithm*"])


def test_a_session_without_a_run_imports_pytest_and_nothing_else(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import sys

        def test_one():
            held = {name for name in sys.modules if name.partition(".")[0] == "audits"}
            assert held == {"audits", "audits.pytest_plugin"}
            slow = {"attacks", "secure_fedrec", "numpy", "numba", "torch", "pandas", "tqdm"}
            assert not slow & set(sys.modules)
        """
    )
    run(session).assert_outcomes(passed=1)


def test_the_plugin_costs_what_importing_pytest_costs() -> None:
    """What it imports beside is its own two modules."""
    program = (
        "import pytest, sys; before = set(sys.modules); import audits.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.stdout.split() == ["audits", "audits.pytest_plugin"]


def test_the_marker_is_listed(session: pytest.Pytester) -> None:
    run(session, "--markers").stdout.fnmatch_lines(["@pytest.mark.recorded_run(config, *"])
