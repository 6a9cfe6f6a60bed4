"""The wheel: what is inside, what is not, and what its command is called."""

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import secure_fedrec

ROOT = Path(secure_fedrec.__file__).parents[1]
PACKAGES = ("secure_fedrec", "attacks", "audits")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that a build leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, "tests", "benchmarks"):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    built = subprocess.run(  # noqa: S603
        [*words, str(source)], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    assert path.name == "secure_fedrec-0.1.0-py3-none-any.whl"
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (each for each in wheel.namelist() if each.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_the_wheel_holds_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {*PACKAGES, "secure_fedrec-0.1.0.dist-info"}
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in wheel.namelist())


def test_every_file_of_the_packages_is_inside(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in wheel.namelist() if name.split("/")[0] in PACKAGES}
    assert inside == expected
    assert inside >= {
        *(f"{package}/py.typed" for package in PACKAGES),
        "secure_fedrec/data/catalogue.toml",
        "audits/configs/quickstart.toml",
        "audits/configs/fedrecpp-ml100k.toml",
        "attacks/planted/ratings.toml",
        "attacks/scoring/figures.toml",
        "audits/report/schema.json",
        "audits/report/charts.mplstyle",
        "audits/own_data.toml.in",
        "audits/report/summary.txt.j2",
        "audits/report/style.css",
        "audits/report/template.html.j2",
    }
    assert all(wheel.getinfo(name).file_size for name in inside if name.endswith((".toml", ".j2")))


def test_the_wheel_installs_one_command_and_a_plugin_of_pytest(wheel: zipfile.ZipFile) -> None:
    points = configparser.ConfigParser()
    points.read_string(metadata(wheel, "entry_points.txt"))
    assert {section: dict(points[section]) for section in points.sections()} == {
        "console_scripts": {"secure-fedrec": "audits.cli:main"},
        "pytest11": {"audits.pytest_plugin": "audits.pytest_plugin"},
    }


def test_the_wheel_describes_itself(wheel: zipfile.ZipFile) -> None:
    fields = message_from_string(metadata(wheel, "METADATA"))
    assert fields["Name"] == "secure-fedrec"
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in (fields.get_all("Classifier") or [])
    required = [
        line.split(";")[0]
        for line in fields.get_all("Requires-Dist") or []
        if "extra ==" not in line
    ]
    assert not any(line.startswith(("pytest", "hatch", "phe", "gmpy2")) for line in required)
    assert any(line.startswith("numpy") for line in required)
    assert metadata(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_an_installed_wheel_runs_without_the_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "import audits.cli, secure_fedrec\n"
        "assert secure_fedrec.__file__.startswith(sys.path[0]), secure_fedrec.__file__\n"
        "raise SystemExit(audits.cli.main(['init', 'quickstart']))\n"
    )
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-c", program, str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    preset = ROOT / "audits" / "configs" / "quickstart.toml"
    assert ended.stdout == preset.read_text(encoding="utf-8")
