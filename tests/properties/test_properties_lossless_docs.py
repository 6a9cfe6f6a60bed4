"""The code of the page on losslessness runs, and the page names what there is."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import secure_fedrec
from secure_fedrec.properties import Comparison
from tests.properties.lossless_zoo import CASES

ROOT = Path(secure_fedrec.__file__).parents[1]
PAGE = (ROOT / "docs" / "losslessness.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)

COMBINED = """
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(federation=federations(width=D, collectors=(TwoServers,)) | federations(width=D))
def combined(federation):
    assert_lossless(algorithm=pmf, **federation.arguments())


combined()
"""
"""The page's algorithm under its collector, and under denoisers, on many federations."""


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    assert len(BLOCKS) == 9
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", "\n".join([*BLOCKS, COMBINED])],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr


def test_names_of_the_page_exist() -> None:
    for linked in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / linked).resolve().exists(), linked
    numbers = {"invited", "taken", "exempt", "rows", "unreported", "virtual_rows", "compared"}
    assert numbers < {field.name for field in fields(Comparison)}
    for name in numbers | {"first_difference", "blames"}:
        assert f"`{name}`" in PAGE, name


def test_the_page_lists_every_verdict() -> None:
    for verdict in {case.expected for case in CASES.values()}:
        assert f"`{verdict}`" in PAGE, verdict
