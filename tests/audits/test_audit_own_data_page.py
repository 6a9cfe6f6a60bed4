"""Every block of the page on own data runs, in the order of the page."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from audits import cli
from audits.config import parse_config
from tests.page_blocks import commands_of

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = [kind for kind, _ in BLOCKS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "bash": 3,
        "python": 3,
        "text": 2,
        "toml": 7,
    }
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 - the page's own code
        elif kind == "bash":
            for command, expected in commands_of(block):
                assert cli.main(shlex.split(command)[1:]) == expected, command
        elif kind == "toml":
            parse_config(tomllib.loads(block))
            if named := re.match(r"# (\S+\.toml)\n", block):
                Path(named[1]).write_text(block, encoding="utf-8")
    assert (tmp_path / "run" / "report.html").exists()
    held_out = len((tmp_path / "test.csv").read_text(encoding="utf-8").splitlines()) - 1
    report = json.loads((tmp_path / "own-split" / "report.json").read_text(encoding="utf-8"))
    assert held_out == 240
    assert [gate["outcome"] for gate in report["gates"]] == ["pass", "pass", "fail"]
