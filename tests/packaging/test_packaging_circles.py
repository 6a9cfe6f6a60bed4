"""No module imports itself through others, imports for annotations counted."""

import ast
import itertools
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("secure_fedrec", "attacks", "audits")


def modules() -> Mapping[str, Path]:
    """Every module of the packages, by name; a package's is its ``__init__``."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """Known modules that a source imports anywhere: in functions and for annotations as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names = (name for name in (whole, node.module) if name in known)
                yield from itertools.islice(names, 1)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def circle_of(arrows: Mapping[str, set[str]]) -> list[str]:
    """Modules of one circle, in order; none where there is none."""
    try:
        tuple(TopologicalSorter(arrows).static_order())
    except CycleError as found:
        circle: list[str] = found.args[1]
        return circle
    return []


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    arrows = {
        name: {each for each in imported(path.read_text("utf-8"), known) if each != name}
        for name, path in known.items()
    }
    assert sum(map(len, arrows.values())) > 2 * len(known)
    assert circle_of(arrows) == []


@pytest.mark.parametrize(
    "line", ["if TYPE_CHECKING:\n    from a import B", "def f():\n    from a import B", "import a"]
)
def test_an_import_anywhere_counts(line: str) -> None:
    assert set(imported(line, {"a": None})) == {"a"}
    assert circle_of({"a": {"b"}, "b": {"a"}})
