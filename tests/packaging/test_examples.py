"""The examples and pages of the protection packages: they run, they are short, they stand alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import secure_fedrec

ROOT = Path(secure_fedrec.__file__).parents[1]
EXAMPLES = ("masking", "paillier", "dp", "routing", "shared_upload")
PAGES = tuple(name.replace("_", "-") for name in EXAMPLES)
PACKAGES = tuple(
    sorted(
        f"secure_fedrec.protection.{path.parent.name}"
        for path in (ROOT / "secure_fedrec" / "protection").glob("*/__init__.py")
    )
)
HEAVY = {"torch", "opacus", "attacks", "audits", "matplotlib", "pydantic", "phe"}


def source(name: str) -> str:
    return (ROOT / "examples" / f"{name}_state_dict.py").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / "docs" / "protection" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def imports(code: str) -> set[str]:
    """Full names of the modules that a program imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


def protection_lines(code: str) -> list[str]:
    """The code between the two marks of an example."""
    _, _, rest = code.partition("\n# --- protection")
    inside, mark, _ = rest.partition("    # --- end of the protection ---")
    assert mark
    return [line for line in inside.splitlines()[1:] if line.strip()]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("masking", "4 survivors"),
        ("paillier", "equal to the plain sum"),
        ("dp", "2 releases of one client's whole contribution to a round (update)"),
        ("routing", "5 updates without a sender"),
        ("shared_upload", "15 rated rows among 30: equal to the plain sum"),
    ],
)
def test_an_example_runs_and_checks_itself(name: str, shown: str, tmp_path: Path) -> None:
    ended = run(str(ROOT / "examples" / f"{name}_state_dict.py"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert shown in ended.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_imports_the_protection_and_no_other_part(name: str) -> None:
    allowed = {"numpy", "torch", *sys.stdlib_module_names}
    for module in imports(source(name)):
        inside = module == "secure_fedrec.protection"
        inside |= module.startswith("secure_fedrec.protection.")
        assert inside or module.split(".")[0] in allowed, module


@pytest.mark.parametrize("name", EXAMPLES)
def test_protecting_a_state_dict_takes_under_thirty_lines(name: str) -> None:
    lines = protection_lines(source(name))
    assert 5 < len(lines) < 30
    # The loop itself is inside: every round passes through the protection.
    assert any("train(" in line for line in lines)
    assert any("load(" in line for line in lines)
    assert len(source(name).splitlines()) <= 90


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_compares_with_the_plain_sum(name: str) -> None:
    after = source(name).partition("# --- end of the protection ---")[2]
    assert "np.testing.assert_array_equal(" in after
    assert "assert_allclose" not in source(name)


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs_on_the_protection_alone(name: str, tmp_path: Path) -> None:
    code = blocks(page(name))
    assert code
    for module in imports("\n".join(code)):
        assert module.startswith("secure_fedrec.protection") or (
            module.split(".")[0] in {"numpy", *sys.stdlib_module_names}
        ), module
    ended = run("-c", "\n".join(code), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_the_price_on_the_page_about_noise_is_right(tmp_path: Path) -> None:
    """Its own block, since it alone needs more than the protection: it prices the example."""
    (price,) = re.findall(r"^```py\n(.*?)^```$", page("dp"), flags=re.MULTILINE | re.DOTALL)
    assert imports(price) == {"secure_fedrec.accounting"}
    ended = run("-c", "\n".join([*blocks(page("dp")), price]), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "epsilon_server = " in ended.stdout


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_a_reader_must_know(name: str) -> None:
    headings = re.findall(r"^## (.+)$", page(name), flags=re.MULTILINE)
    due = ("What it hides, from whom", "Not hidden", "Settings", "On the wire", "What it costs")
    assert [heading for heading in headings if heading in due] == list(due)
    for linked in re.findall(r"\]\(([^)#]+)", page(name)):
        assert (ROOT / "docs" / "protection" / linked).resolve().exists(), linked


def test_no_package_of_the_protection_brings_torch() -> None:
    assert {f"secure_fedrec.protection.{name}" for name in EXAMPLES} < set(PACKAGES)
    # After each import the process says what it holds, so that a failure names the package.
    steps = [
        f"import {name}; print({name!r}, *{{each.split('.')[0] for each in sys.modules}})"
        for name in ("secure_fedrec.protection", *PACKAGES)
    ]
    ended = run("-c", "import sys\n" + "\n".join(steps), cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert len(lines) == 1 + len(PACKAGES)
    assert [(name, HEAVY & set(found)) for name, *found in lines if HEAVY & set(found)] == []
