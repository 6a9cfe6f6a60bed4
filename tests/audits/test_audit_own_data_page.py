"""Every block of the page on own data runs, in the order of the page."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from audits import cli
from audits.config import parse_config

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = [kind for kind, _ in BLOCKS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "bash": 2,
        "python": 2,
        "text": 1,
        "toml": 6,
    }
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 - the page's own code
        elif kind == "bash":
            code = cli.main([*shlex.split(block)[1:]])
            assert code == (1 if "audit audit.toml" in block else 0)
        elif kind == "toml":
            parse_config(tomllib.loads(block))
    assert (tmp_path / "run" / "report.html").exists()
