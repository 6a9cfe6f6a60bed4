"""What importing a part brings along, and what the command refuses to run beside."""

import re
import subprocess
import sys
from importlib.metadata import entry_points  # noqa: TID251 - reads, imports nothing
from pathlib import Path

import pytest

import secure_fedrec
from audits import cli, owners

LOOKED_UP = owners.owners_of  # as it is before other tests spare themselves the look

ROOT = Path(secure_fedrec.__file__).parents[1]
COMMANDS = (
    "audit",
    "train",
    "deploy",
    "gather",
    "roster",
    "site",
    "attack",
    "check",
    "plan",
    "report",
    "compare",
    "data",
    "init",
    "explain",
    "plugins",
)


def modules(package: str) -> list[str]:
    """Every module of a package by its full name."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append(".".join(part for part in parts if part != "__init__"))
    return found


def imported_after(names: list[str]) -> set[str]:
    """Top-level packages a fresh process holds once it has imported some modules."""
    lines = [f"import {name}" for name in names]
    lines += ["import sys", "print(*{name.split('.')[0] for name in sys.modules})"]
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def imported_by(words: list[str]) -> set[str]:
    """Top-level packages that a command has imported when it ends."""
    lines = [
        "import atexit, sys",
        "tell = lambda: print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)",
        "atexit.register(tell)",
        "from audits import cli",
        f"cli.main({words!r})",
    ]
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    return set(ended.stderr.splitlines()[-1].split())


ON_TORCH = (
    "secure_fedrec.needs_torch",
    "secure_fedrec.dp_sgd",
    *(
        f"secure_fedrec.models.{name}"
        for name in ("document", "graph", "lstm", "ncd", "ncf", "split")
    ),
    *(f"secure_fedrec.algorithms.{name}" for name in ("furl", "local_training")),
    *(f"secure_fedrec.studies.{name}" for name in ("central", "furl", "hpfl.networks")),
    *(f"secure_fedrec.properties.{name}" for name in ("client_step", "split", "strategies.split")),
)
"""How the names of modules begin whose work is PyTorch's; nothing else may import it."""


ON_FLOWER = tuple(
    f"secure_fedrec.engines.flower.{name}"
    for name in (
        "forwarded",
        "grid_transport",
        "message_bytes",
        "mod",
        "model_records",
        "recorded_mod",
        "recorded_strategy",
        "runtime_client",
        "scrubbed_replies",
        "strategy",
        "superlink",
        "tasks",
    )
)
"""Modules that import flwr; nothing else may."""


def test_the_library_brings_neither_attacks_nor_audits_nor_torch() -> None:
    names = [
        name for name in modules("secure_fedrec") if not name.startswith((*ON_TORCH, *ON_FLOWER))
    ]
    names += ["secure_fedrec.models.lstm.loops"]  # compiled loops of a model, and no more
    assert len(names) > 30
    # Strategies and assertions for other people's tests need their test tools.
    tools = {"hypothesis", "pytest"}
    plain = [name for name in names if not name.startswith("secure_fedrec.properties")]
    assert not imported_after(plain) & {"attacks", "audits", "flwr", "torch", *tools}
    assert not imported_after(names) & {"attacks", "audits", "flwr", "torch"}


def test_attacks_bring_no_audits_and_no_torch() -> None:
    assert not imported_after(modules("attacks")) & {"audits", "torch"}


def test_protection_alone_brings_no_torch() -> None:
    found = imported_after(["secure_fedrec.protection"])
    assert "secure_fedrec" in found
    assert not found & {"attacks", "audits", "torch", "pydantic", "matplotlib", "jinja2"}


def test_the_command_brings_no_test_tools_and_no_torch() -> None:
    found = imported_after(["audits.cli", "audits.command_line", "audits.commands"])
    assert "numpy" in found
    assert not found & {"hypothesis", "pytest", "torch"}


@pytest.mark.parametrize(
    "words",
    [["--help"], ["audit", "--help"], ["--version"], ["init", "plain"], ["init", "nothing"]],
)
def test_what_runs_nothing_imports_nothing_that_takes_long(words: list[str]) -> None:
    slow = {"jinja2", "llvmlite", "matplotlib", "numba", "numpy", "scipy"}
    assert not imported_by(words) & {*slow, "tqdm"}


@pytest.mark.parametrize("name", ["lattice", "protection.rho", "algorithm.rank", "config.json"])
def test_who_asks_what_a_name_means_waits_for_nothing(name: str) -> None:
    """Not for the systems either whose keys are among the answers, and what these train with."""
    found = imported_by(["explain", name])
    slow = {"jinja2", "llvmlite", "matplotlib", "numba", "pandas", "scipy", "sklearn", "torch"}
    assert "numpy" in found
    assert not found & slow


def test_the_way_in_imports_nothing_that_takes_long() -> None:
    assert not imported_after(["audits.cli"]) & {"numpy", "scipy", "numba", "pydantic", "argparse"}


@pytest.mark.parametrize("package", ["attacks", "audits"])
@pytest.mark.parametrize("file", ["{}/__init__.py", '"{}/a, b.py"', "{}.py"])
def test_a_foreign_package_of_our_name_is_refused(
    package: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = tmp_path / "adversarial_attacks-1.0.dist-info"
    site.mkdir()
    about = "Metadata-Version: 2.1\nName: adversarial-attacks\nVersion: 1.0\n"
    (site / "METADATA").write_text(about)
    (site / "RECORD").write_text(f"my_{package}.py,,\none/{package}/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(owners, "owners_of", LOOKED_UP)
    assert cli.main(["explain", "lattice"]) == 0
    capsys.readouterr()
    (site / "RECORD").write_text(f"one.py,,\n{file.format(package)},,\n")
    assert cli.main(["explain", "lattice"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "secure-fedrec: environment = ['adversarial-attacks']: also installs a package named "
        f"{package!r}; use a dedicated environment\n"
    )


def test_the_environment_of_the_tests_is_sound() -> None:
    owners.require_own_packages()


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="secure-fedrec")
    assert script.value == "audits.cli:main"
    assert script.load() is cli.main


def test_the_command_registers_exactly_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    usage = capsys.readouterr().out
    listed = usage.split("COMMAND", 2)[-1]
    assert tuple(re.findall(r"^ {4}(\w+) ", listed, flags=re.MULTILINE)) == COMMANDS
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: secure-fedrec {name}")


def test_the_command_states_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "0.1.0\n"
