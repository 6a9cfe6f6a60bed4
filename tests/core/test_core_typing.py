"""The type checker, too, keeps private state out of messages."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
SNIPPET = ROOT / "tests" / "typing_tests" / "vault_misuse.py"
EXPECTED = re.compile(r"# expect: ([a-z-]+)")
FOUND = re.compile(r"vault_misuse\.py:(\d+): error: .*\[([a-z-]+)\]$", re.MULTILINE)


@pytest.mark.claim("vault-stays")
def test_a_vault_in_a_message_is_a_type_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    output, complaints, _ = api.run(
        ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", str(SNIPPET)]
    )
    marked = {
        (number, kind[1])
        for number, line in enumerate(SNIPPET.read_text(encoding="utf-8").splitlines(), start=1)
        if (kind := EXPECTED.search(line))
    }
    assert len(marked) == 7
    assert complaints == ""
    assert {(int(line), kind) for line, kind in FOUND.findall(output)} == marked, output
