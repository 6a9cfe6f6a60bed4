"""The example runs, the code of the page runs, and both say what is so."""

import re
import subprocess
import sys
from pathlib import Path

import secure_fedrec
from secure_fedrec import properties
from secure_fedrec.properties import split

ROOT = Path(secure_fedrec.__file__).parents[1]
PAGE = (ROOT / "docs" / "split-personalization.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "split_personalization.py"


def run(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_example_runs(tmp_path: Path) -> None:
    ended = run(str(EXAMPLE), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    passed, drawn, refuted, *violations, last = ended.stdout.splitlines()
    assert passed.startswith("split personalization: holds (9 random trials, 4 users;")
    assert refuted.startswith("split personalization: constraint (1) refuted")
    assert drawn.startswith("- users' values that were drawn: normal ")
    assert all(line.startswith(("- ", "  read at ")) for line in violations)
    assert "split_personalization.py:" in violations[1]
    assert "constraint (1)" in violations[0]
    assert last == "private parameters at home: every round equal to the bit"
    assert not list(tmp_path.iterdir())


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    assert len(blocks()) == 3
    ended = run("-c", "\n".join(blocks()), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "split personalization: holds" in ended.stdout


def test_a_model_is_tested_in_twenty_lines() -> None:
    lines = [line for line in blocks()[0].splitlines() if line.strip()]
    start = lines.index("def loss(model, user, batch):")
    assert len(lines[start:]) <= 20


def test_names_of_the_page_exist() -> None:
    for linked in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / linked).resolve().exists(), linked
    for name in ("federated_averaging", "keep_local", "Averaging", "FedProx", "AggregationInput"):
        assert name in PAGE
        assert name in split.__all__
        assert hasattr(split, name)


def test_everything_exported_is_there_and_torch_comes_only_when_it_is_asked_for() -> None:
    for name in properties.__all__:
        assert hasattr(properties, name)
    for name in split.__all__:
        assert hasattr(split, name)
    code = (
        "import sys, secure_fedrec.properties as p; assert 'torch' not in sys.modules; "
        "p.check_split_personalization; assert 'torch' in sys.modules; p.nothing"
    )
    ended = run("-c", code, cwd=ROOT)
    assert ended.returncode == 1
    assert "has no attribute 'nothing'" in ended.stderr


def test_only_the_strategies_need_hypothesis() -> None:
    blocked = "import sys; sys.modules['hypothesis'] = None; "
    modules = ("split", "lossless")
    imports = "; ".join(f"import secure_fedrec.properties.{name}" for name in modules)
    assert run("-c", blocked + imports, cwd=ROOT).returncode == 0
    refused = run("-c", blocked + "import secure_fedrec.properties.strategies.split", cwd=ROOT)
    assert "pip install 'secure-fedrec[properties]'" in refused.stderr
