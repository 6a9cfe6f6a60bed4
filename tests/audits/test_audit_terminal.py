"""What reaches a terminal: no command of a file's, and how long something takes."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audits import cli
from audits.terminal import Spoken

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]


@pytest.mark.parametrize("sign", ["\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\u2028", "\x00"])
def test_control_characters_are_shown_and_not_sent(
    sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", f"a{sign}[31mb"]
    assert cli.main(words) == 2
    assert cli.main(["data", "describe", f"none{sign}[2J.csv"]) == 2
    with pytest.raises(SystemExit):
        cli.main([f"audits{sign}"])
    out, err = capsys.readouterr()
    assert sign not in out + err
    assert ascii(sign)[1:-1] in err


def test_a_line_is_not_written_over_and_a_bar_is() -> None:
    stream = io.StringIO()
    spoken = Spoken(stream)
    print("  fail: a gate\rverdict: pass", file=spoken)
    spoken.write("\rtraining: 10%")
    assert stream.getvalue() == "  fail: a gate\\rverdict: pass\n\rtraining: 10%"


def test_the_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    cli.main(["data", "list"])
    assert (sys.stdout, sys.stderr) == before


def test_a_check_with_real_cryptography_says_what_it_takes(
    command: Command, write_config: Write, small: dict[str, Any]
) -> None:
    small["data"]["clients"] = 8
    small["protection"] = [{"layer": "masking", "min_survivors": 6}]
    small["adversaries"] = small["gates"] = []
    words = ("check", write_config(small), "--rounds", "2")
    code, _, err = command(*words, "--set", "protection.execution=real")
    assert code == 0, err
    first, *rest = err.splitlines()
    assert first.startswith(
        "real cryptography (masking): 8 clients x 2 rounds, all in this process"
    )
    assert any("8 clients x 2 rounds, about " in line and "a round)" in line for line in rest)
    assert "checking: 100%" in err
    assert command(*words, "--quiet")[2] == ""
