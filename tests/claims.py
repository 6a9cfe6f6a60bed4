"""What the toolkit claims, and the tests that carry its marks."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
        name: by which tests are marked: ``@pytest.mark.claim("name")``.
        text: what is claimed.
        tests: that hold it: ``tests/file.py::function``, or a whole file.
    """

    name: str
    text: str
    tests: tuple[str, ...]


@cache
def claims() -> dict[str, Claim]:
    """Every claim of ``claims.toml`` by name, with its tests in the order of their files.

    Raises:
        ValueError: a test is marked with a name that nobody claims.
    """
    texts = tomllib.loads((TESTS / "claims.toml").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {name: [] for name in texts}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, test in _marked(path):
            if name not in found:
                raise ValueError(f"{test} is marked with the claim {name!r}, which nobody makes")
            found[name].append(test)
    return {name: Claim(name, text.strip(), tuple(found[name])) for name, text in texts.items()}


def _marked(path: Path) -> Iterator[tuple[str, str]]:
    """Names of claims, and the test or file that each is marked at."""
    text = path.read_text(encoding="utf-8")
    if "mark.claim(" not in text:
        return
    file = path.relative_to(ROOT).as_posix()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from ((name, file) for name in _named(node.value))
        elif isinstance(node, ast.FunctionDef):
            for mark in node.decorator_list:
                yield from ((name, f"{file}::{node.name}") for name in _named(mark))


def _named(node: ast.expr) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.claim":
            yield from (ast.literal_eval(each) for each in call.args)
