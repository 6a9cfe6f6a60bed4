"""The plug-ins of docs/how-to/bring-your-own.md and of the examples, as a stranger's distribution.

The page's files and the examples' modules become a wheel, which pip installs into a folder; the
page's commands then find it there.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.page_blocks import NOT_CODE, ROOT, Reader, blocks_of, environment

PAGE = ROOT / "docs" / "how-to" / "bring-your-own.md"
EXAMPLES = ("own_algorithm", "own_layer", "own_attack")


class InAShell(Reader):
    """Runs every command in a process of its own, where plug-ins are found and left behind."""

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(  # noqa: S603
            ["bash", "-euo", "pipefail", "-c", command],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            env=dict(self.environment),
        )
        return done.returncode, done.stdout + done.stderr

    def _toml(self, block: Any) -> None:
        assert self._is_file(block)  # a command reads it


def run(words: list[str], env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, *words], capture_output=True, text=True, check=False, env=env, cwd=cwd
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that has the distribution of the page."""
    folder = tmp_path_factory.mktemp("stranger")
    source, target = folder / "source", folder / "installed"
    source.mkdir()
    reader = InAShell(folder=source, environment=dict(os.environ))
    for block in blocks_of(PAGE):
        named = block.code.startswith(("# own_", "# pyproject"))
        if block.language in ("python", "toml") and named:
            reader.work_through(block)
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / name / f"{name}.py", source)
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    built = run(build, dict(os.environ), folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    put = run([*pip, str(wheel)], dict(os.environ), folder)
    if "No module named pip" in put.stderr:  # an environment that another installer made
        put = run(["-m", "zipfile", "-e", str(wheel), str(target)], dict(os.environ), folder)
    assert put.returncode == 0, put.stderr
    found = environment(folder)
    return {**found, "PYTHONPATH": f"{target}{os.pathsep}{ROOT}"}


def test_the_page_is_worked_through(installed: dict[str, str], tmp_path: Path) -> None:
    reader = InAShell(folder=tmp_path, environment=installed)
    for block in blocks_of(PAGE):
        named = block.code.startswith(("# own_", "# pyproject"))
        if block.language not in NOT_CODE and not named:
            reader.work_through(block)
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    found = {each["attack"]: each for each in report["findings"]}
    assert found["counts"]["counts_named"] == 1.0
    assert found["counts"]["severity"] == "medium"
    assert found["two-rounds"]["status"] == "measured"
    assert found["lengths"]["auc"] == 0.5  # steps of 0.5 leave nothing of so short rows
    brought = ("counts", "two-rounds", "lengths")
    assert all(found[name]["positive_control"]["passed"] for name in brought)
    told = {(each["kind"], each["name"]): each for each in report["manifest"]["plugins"]}
    assert set(told) == {
        ("attack", "two-rounds"),
        ("attack", "lengths"),
        ("attack", "counts"),
        ("figures", "counts_named"),
        ("data set", "made"),
        ("layer", "rounded-values"),
    }
    assert {(each["distribution"], each["version"]) for each in told.values()} == {
        ("brought-along", "1.2")
    }
    kept = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert "own_figure:ATTACK" in kept["attacks"]  # whatever entry points there are later
    assert [each["layer"] for each in kept["protection"]] == ["own_layer:LAYER"]

    # The run is judged again with its plug-ins; a report alone brings none of them along.
    again = ["-m", "audits.cli", "report", str(tmp_path / "run"), "--fail-on", "critical"]
    assert run(again, installed, tmp_path).returncode == 1
    alone = tmp_path / "alone.json"
    shutil.copy(tmp_path / "run" / "report.json", alone)
    ended = run(["-m", "audits.cli", "report", str(alone)], installed, tmp_path)
    assert ended.returncode == 2
    assert "has figures of plug-ins, counts_named" in ended.stderr
    ended = run(["-m", "audits.cli", "attack", str(tmp_path / "run/transcript"), "--attack",
                 "counts", "--json", "--quiet"], installed, tmp_path)  # fmt: skip
    assert json.loads(ended.stdout)[0]["counts_named"] == 1.0


def test_entry_points_are_listed_and_explained(installed: dict[str, str], tmp_path: Path) -> None:
    ended = run(["-m", "audits.cli", "plugins", "--json"], installed, tmp_path)
    told = {each["name"]: each for each in json.loads(ended.stdout)}
    assert set(told) >= {"bpr", "rounded", "two-rounds", "lengths", "counts", "made", "counted"}
    assert told["bpr"]["object"] == "own_algorithm:SYSTEM"
    assert told["bpr"]["distribution"] == "brought-along"
    assert Path(told["bpr"]["file"]).name == "own_algorithm.py"
    assert not any(each["configured"] for each in told.values())
    check = ["-m", "audits.cli", "check", "quickstart.toml", "--rounds", "2", "--quiet"]
    preset = ["-m", "audits.cli", "init", "quickstart", "--out", "quickstart.toml"]
    assert run(preset, installed, tmp_path).returncode == 0
    ended = run([*check, "--set", "algorithm.name=sign-pmf"], installed, tmp_path)
    assert ended.returncode == 0, ended.stderr
    for name, shown in (("counts", "Intersection attacks"), ("bpr", "item_learning_rate")):
        ended = run(["-m", "audits.cli", "explain", name], installed, tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert shown in ended.stdout


@pytest.mark.parametrize(
    ("points", "name", "says"),
    [
        ("[secure_fedrec.attacks]\ndirect = own_attack:ATTACK\n", "direct", "is shipped, and"),
        (
            "[secure_fedrec.attacks]\ncounts = own_attack:ATTACK\n",
            "counts",
            "is the name of 2 plug-ins",
        ),
    ],
)
def test_an_entry_point_takes_no_name_from_another(
    points: str, name: str, says: str, installed: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    metadata = folder / "other-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)
    config = tmp_path / "audit.toml"
    config.write_text(f'attacks = ["{name}"]\n')
    env = installed | {"PYTHONPATH": f"{folder}{os.pathsep}{installed['PYTHONPATH']}"}
    ended = run(["-m", "audits.cli", "audit", str(config), "--out", "out"], env, tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith(f"secure-fedrec: attacks = '{name}'")
    assert says in ended.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_its_contract_and_is_audited(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder)
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    tested = run(["-m", "pytest", *options, str(folder)], env, folder)
    assert tested.returncode == 0, tested.stdout
    words = ["-m", "audits.cli", "audit", "audit.toml", "--out", "run", "--quiet"]
    ended = run(words, env, folder)
    assert ended.returncode == (3 if name == "own_layer" else 1), ended.stdout + ended.stderr
