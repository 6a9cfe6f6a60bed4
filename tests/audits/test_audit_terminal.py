"""Nothing that a file holds reaches a terminal as a command."""

import io
import sys

import pytest

from audits import cli
from audits.terminal import Spoken


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
