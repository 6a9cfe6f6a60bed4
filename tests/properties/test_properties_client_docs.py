"""The code of the page runs, and ends as the page says."""

import re
import subprocess
import sys
from pathlib import Path

import secure_fedrec
from secure_fedrec.properties import client_step

ROOT = Path(secure_fedrec.__file__).parents[1]
PAGE = (ROOT / "docs" / "client-step.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = [each.partition("\n") for each in PAGE.split("```")[1::2]]
    return [code for name, _, code in found if name == language]


def test_the_code_of_the_page_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    code = blocks("python")
    assert len(code) == 2
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", "\n".join(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    (shown,) = blocks("")
    assert ended.stdout.startswith(re.sub(r"\n {2}", " ", shown))
    assert not list(tmp_path.iterdir())


def test_names_of_the_page_exist() -> None:
    for linked in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / linked).resolve().exists(), linked
    for name in client_step.__all__:
        assert hasattr(client_step, name)
    for kind in ("name", "value", "reads", "writes"):
        assert f"| `{kind}` |" in PAGE
