"""A small federation as configuration, and the real command line to run it with."""

import contextlib
import copy
import dataclasses
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from audits import cli, owners
from secure_fedrec.data import DATA_DIR_VARIABLE, registry

SMALL: dict[str, Any] = {
    "title": "A small federation",
    "seed": 3,
    "data": {"name": "synthetic", "clients": 40, "items": 60, "mean_ratings": 12.0},
    "algorithm": {"name": "pmf", "rank": 4, "rounds": 6},
    "recording": {"payload_rounds": [1, 4]},
    "run": {"checkpoint_every": 2},
    "protection": [
        {"layer": "virtual-ratings", "rho": 1},
        {"layer": "denoisers", "count": 10},
    ],
    "adversaries": [
        {"name": "server", "corrupt": ["server"]},
        {"name": "server+denoisers", "corrupt": ["server", "denoisers"]},
    ],
    "gates": [
        {"metric": "lossless", "equals": True},
        {"metric": "auc", "attack": "lattice", "adversary": "server", "max": 0.6},
        {"metric": "rmse", "max": 5.0},
    ],
}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever data sets the machine has, these tests do not see them."""
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)


@pytest.fixture(scope="session", autouse=True)
def one_look_at_the_environment() -> Iterator[None]:
    """Reads the installed distributions once: they do not change between two commands."""
    real, ours = owners.owners_of, ("attacks", "audits")
    found = real(ours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owners, "owners_of", lambda names: found if names == ours else real(names))
        yield


@pytest.fixture
def small() -> dict[str, Any]:
    """A configuration to change at will."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Writes a configuration as TOML."""

    def write(raw: dict[str, Any]) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(_toml(raw), encoding="utf-8")
        return path

    return write


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``secure-fedrec`` with some words: exit code, standard output, standard error."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as ended:  # how argparse refuses
            code = ended.code if isinstance(ended.code, int) else -1
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def refusal(command: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that must be refused: exit code 2, nothing on stdout, one line on stderr."""

    def run(*words: str | Path) -> str:
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert err.startswith("secure-fedrec: ")
        assert err.count("\n") == 1
        return err.removeprefix("secure-fedrec: ").rstrip("\n")

    return run


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished audit of the small federation; not to be changed."""
    folder = tmp_path_factory.mktemp("recorded")
    config = folder / "config.toml"
    config.write_text(_toml(SMALL), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(["audit", str(config), "--out", str(folder / "run"), "--quiet"]) == 1
    return folder / "run"


@pytest.fixture
def ml_100k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up folder in ML-100K's format with ids of six digits, accepted without its digests."""
    rng = random.Random(11)
    folder = tmp_path / "data" / "ml-100k"
    folder.mkdir(parents=True)
    users = [900_000 + 7 * number for number in range(1, 31)]
    items = [800_000 + 3 * number for number in range(1, 41)]
    (folder / "u.user").write_text("".join(f"{user}|30|F|artist|00000\n" for user in users))
    (folder / "u.item").write_text("".join(f"{item}|A film\n" for item in items))
    (folder / "u.data").write_text(
        "".join(
            f"{user}\t{item}\t{rng.randint(1, 5)}\t881250949\n"
            for user in users
            for item in sorted(rng.sample(items, 12))
        )
    )
    info = vars(registry)["DATASETS"]["ml-100k"]
    altered = dataclasses.replace(
        info,
        files=tuple(dataclasses.replace(file, sha256=None) for file in info.files),
        clients=None,
        items=None,
        ratings=None,
    )
    known = MappingProxyType({**vars(registry)["DATASETS"], "ml-100k": altered})
    monkeypatch.setattr(registry, "DATASETS", known)
    return folder


def _toml(raw: dict[str, Any], section: str = "") -> str:
    lines = [f"{key} = {_value(value)}" for key, value in raw.items() if not _is_nested(value)]
    for key, value in raw.items():
        name = f"{section}{key}"
        if isinstance(value, dict):
            lines += [f"[{name}]", _toml(value, f"{name}.")]
        elif _is_nested(value):
            for table in value:
                lines += [f"[[{name}]]", _toml(table, f"{name}.")]
    return "\n".join(lines) + "\n"


def _is_nested(value: object) -> bool:
    tables = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
    return isinstance(value, dict) or bool(tables)


def _value(value: object) -> str:
    finite = not isinstance(value, float) or math.isfinite(value)
    return json.dumps(value) if finite else str(value)
