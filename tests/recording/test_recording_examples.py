"""Loops of the examples: the same training with and without a recorder, and a verdict on them."""

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from audits import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
LEAKS = {  # what an attack finds at least, and lines that the recorder adds
    "recorded_numpy": ("lattice", "reidentified_clients", 60, 17),
    "recorded_torch": ("dense-layer", "reidentified_clients", 40, 20),
    "recorded_pfedrec": ("signed-rows", "exact_clients", 30, 19),
}


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - of this repository
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", LEAKS)
def test_a_recorded_loop_trains_as_before_and_is_judged(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints the same, and the audit of its recording finds what its server could read."""
    attack, figure, least, lines = LEAKS[name]
    if name != "recorded_numpy":
        pytest.importorskip("torch")
    sources = [EXAMPLES / name / each for each in ("plain.py", "recorded.py")]
    before, after = (ran(tmp_path, str(each)) for each in sources)
    assert before.stdout == after.stdout != "", after.stderr
    texts = [each.read_text().splitlines() for each in sources]
    changed = [line for line in difflib.ndiff(texts[0], texts[1]) if line.startswith(("+ ", "- "))]
    code = [line for line in changed if re.search(r"\w", line[2:])]
    assert not [line for line in changed if line.startswith("- ")]
    assert len(code) <= lines, code
    gates = EXAMPLES / name / "gates.toml"
    told = ("recording", "--truth", "truth.npz")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["attack", *told, *f"--gates {gates} --json --quiet --out report".split()]) == 1
    findings = {each["attack"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert {**findings[attack], **findings[attack]["details"]}[figure] >= least
    assert (tmp_path / "report" / "report.html").exists()
    assert cli.main(["transcript", "validate", *told]) == 0
