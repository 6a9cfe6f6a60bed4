"""What the core does without PyTorch, and what it says where an extra is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from audits import cli
from tests.packaging.test_packaging_imports import ON_FLOWER, ON_TORCH, modules

BLOCKED = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""A process in which some packages are not installed."""

TORCH = ("torch", "opacus", "sklearn")
STUDIES = (
    *("audits.systems.furl", "audits.systems.hpfl", "audits.reproduction"),
    *("secure_fedrec.algorithms.hpfl", "secure_fedrec.studies.hpfl"),
)


def run_without(
    absent: tuple[str, ...], code: str, *, cwd: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", BLOCKED.format(absent=set(absent)) + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def command(*words: str) -> str:
    return f"from audits import cli; sys.exit(cli.main({list(words)!r}))"


def test_every_module_comes_without_torch_or_names_the_extra(tmp_path: Path) -> None:
    names = [
        name
        for package in ("secure_fedrec", "attacks", "audits")
        for name in modules(package)
        if not name.startswith(ON_FLOWER)
    ]
    code = f"""
from secure_fedrec.errors import MissingExtraError
for name in {names!r}:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except MissingExtraError as absent:
        print(name, absent.name, "|", absent)
"""
    ended = run_without(TORCH, code, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    refused = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert set(refused.values()) == {
        f"{absent} is not installed; pip install 'secure-fedrec[torch]' installs it"
        for absent in (
            "torch | torch",
            "sklearn | the clustering of HPFL's drafts needs scikit-learn, which",
        )
    }
    assert len(refused) > 30
    assert [name for name in refused if not name.startswith((*ON_TORCH, *STUDIES))] == []


@pytest.mark.parametrize(
    "words",
    [
        (
            "audit",
            "--set",
            "algorithm.rounds=3",
            "--set",
            "recording.payload_rounds=[1]",
            "--out",
            "run",
        ),
        ("plan", "--clients", "1000", "--dim", "5000", "--noise-multiplier", "1"),
        ("explain", "lattice"),
    ],
    ids=lambda words: words[0],
)
def test_the_core_needs_no_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    ended = run_without(TORCH, command(*words), cwd=tmp_path)
    assert ended.returncode in (0, 1, 3), ended.stderr
    assert ended.stdout


def test_a_key_is_explained_without_torch(tmp_path: Path) -> None:
    """Nothing else is said of a key that no absent algorithm has, and the answer comes first."""
    ended = run_without(TORCH, command("explain", "protection.rho"), cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("protection.rho\n")
    ended = run_without(TORCH, command("explain", "algorithm.user_dim"), cwd=tmp_path)
    assert ended.returncode == 2
    assert 'keys left out: algorithm.name = "furl" needs torch, which' in ended.stderr


@pytest.mark.parametrize(("algorithm", "needed"), [("furl", "torch"), ("hpfl", "scikit-learn")])
def test_a_system_on_torch_is_refused_in_one_line(
    algorithm: str, needed: str, tmp_path: Path
) -> None:
    preset = f"{algorithm}-quickstart"
    assert cli.main(["init", preset, "--out", str(tmp_path / "audit.toml")]) == 0
    ended = run_without(TORCH, command("audit", "audit.toml", "--out", "run"), cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == (
        f'secure-fedrec: algorithm.name = "{algorithm}" needs {needed}, which is not installed; '
        "pip install 'secure-fedrec[torch]' installs it\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["audit.toml"]


@pytest.mark.parametrize(
    ("absent", "code", "extra"),
    [
        ("torch", "from secure_fedrec.properties import check_split_personalization", "torch"),
        ("hypothesis", "import secure_fedrec.properties.strategies", "properties"),
        (
            "phe",
            "from secure_fedrec.protection.paillier import phe_bridge as b\nb._require_phe()",
            "paillier",
        ),
    ],
    ids=["torch", "hypothesis", "phe"],
)
def test_who_needs_an_extra_is_told_its_name(
    absent: str, code: str, extra: str, tmp_path: Path
) -> None:
    ended = run_without((absent,), code, cwd=tmp_path)
    last = ended.stderr.splitlines()[-1]
    assert f"{absent} is not installed; pip install 'secure-fedrec[{extra}]' installs it" in last


def test_a_deployment_without_flower_names_the_extra(tmp_path: Path) -> None:
    config = tmp_path / "plain.toml"
    config.write_text('[data]\nname = "synthetic"\nclients = 3\n[algorithm]\nrounds = 1\n')
    words = ("deploy", str(config), "--out", str(tmp_path / "out"))
    ended = run_without(("flwr",), command(*words), cwd=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert "pip install 'secure-fedrec[flower]' installs it" in ended.stderr


def test_metrics_without_their_library_name_the_extra(tmp_path: Path) -> None:
    config = tmp_path / "plain.toml"
    config.write_text('[data]\nname = "synthetic"\nclients = 3\n[algorithm]\nrounds = 1\n')
    words = ("deploy", str(config), "--out", str(tmp_path / "out"), "--metrics", "m.prom")
    ended = run_without(("prometheus_client",), command(*words), cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "secure-fedrec: --metrics needs prometheus-client, which is not installed; "
        "pip install 'secure-fedrec[metrics]' installs it\n",
    )
    assert list(tmp_path.iterdir()) == [config]
