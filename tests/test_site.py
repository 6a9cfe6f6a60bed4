"""The reference of the site is what the code says, and what ``explain`` prints."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from attacks import SUITE
from audits.config.audit import LAYER_TABLES
from audits.exit_codes import EXIT_CODES
from audits.explain.keys import keys
from audits.gates.gate import METRICS
from audits.presets import PRESETS
from secure_fedrec.data import DATASETS
from tests.public_api import STABLE

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not {"_build"} & set(page.parts)]


@pytest.fixture(scope="module")
def reference() -> Any:
    """The module that makes the reference, which lies beside the pages."""
    sys.path.insert(0, str(DOCS / "_site"))
    try:
        import reference  # type: ignore[import-not-found]

        return reference
    finally:
        sys.path.remove(str(DOCS / "_site"))


def test_every_part_has_a_page(reference: Any) -> None:
    asked = {
        name
        for page in PAGES
        for name in re.findall(r"^<!-- generated: ([\w-]+) -->$", page.read_text("utf-8"), re.M)
    }
    assert asked == set(reference.PARTS)


def test_the_page_of_keys_says_what_explain_says(reference: Any) -> None:
    page = reference.configuration()
    for key in keys():
        assert f"### `{key.path}`\n" in page
        told = key.words()
        assert reference.plain(told.pop("meaning")) in page
        for line in reference.facts(told, code=("default",)):
            assert f"\n{line}\n" in f"{page}\n", key.path


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("figures", METRICS),
        ("attacks", tuple(SUITE)),
        ("layers", tuple(name for layers in LAYER_TABLES.values() for name in layers)),
        ("presets", PRESETS),
        ("data-sets", tuple(DATASETS)),
        ("exit-codes", tuple(map(str, EXIT_CODES))),
    ],
)
def test_the_reference_is_whole(reference: Any, part: str, names: tuple[str, ...]) -> None:
    page = reference.PARTS[part]()
    for name in names:
        heading = rf"^(?:##+ `{re.escape(name)}`|\| {name} \|)"
        assert re.search(heading, page, re.MULTILINE), name


def test_targets_are_given_once(reference: Any) -> None:
    targets = [
        target
        for part in reference.PARTS.values()
        for target in re.findall(r"^\(([\w.-]+)\)=$", part(), re.MULTILINE)
    ]
    assert len(targets) >= 300
    assert len(targets) == len(set(targets))


def test_every_name_that_pages_import_is_described(reference: Any) -> None:
    found = reference.documented_names()
    assert {"secure_fedrec.protection.masking", "secure_fedrec.fixedpoint"} <= set(found)
    assert {"attacks", "audits", "audits.testing"} <= set(found)
    page = reference.python_api()
    for module, names in found.items():
        for name in names:
            assert f"{module}.{name}\n" in page or f"`{name}` ([" in page, f"{module}.{name}"


def test_text_keeps_its_marks(reference: Any) -> None:
    assert reference.plain("a * b, ``x_y * z`` and <tag> |S|") == (
        r"a \* b, `x_y * z` and \<tag\> \|S\|"
    )


def test_every_page_is_in_a_list_of_pages() -> None:
    """Sphinx warns of one that is not; this says so without building."""
    named = {
        (page.parent / f"{line}.md").resolve()
        for page in PAGES
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        for line in block.splitlines()
        if line and not line.startswith(":")
    }
    assert {page.resolve() for page in PAGES} == named | {(DOCS / "index.md").resolve()}


def test_the_api_lists_all_of_a_protocol_and_no_text_of_a_record(reference: Any) -> None:
    page = reference.python_api()
    collector = page.partition("autoclass:: secure_fedrec.protection.Collector\n")[2]
    assert collector.startswith("   :members:\n   :inherited-members: Protocol\n")
    records = page.split(".. autodata:: ")[1:]
    assert records
    assert all(each.splitlines()[1] == "   :no-value:" for each in records)


def test_what_is_stable_is_documented(reference: Any) -> None:
    names = {
        f"{module}.{name}" for module, all_ in reference.documented_names().items() for name in all_
    }
    assert set(STABLE) - names == set()
    page = reference.python_api()
    assert len(re.findall(r"^Stable: ", page, re.M)) == len({n.rpartition(".")[0] for n in STABLE})


def test_pages_hold_what_the_code_says() -> None:
    """``python -m docs.write_reference`` writes them anew."""
    from docs import write_reference

    found = list(write_reference.pages())
    assert len(found) >= 11
    for page in found:
        assert page.read_text("utf-8") == write_reference.written(page), page.name


def test_no_page_is_a_stub() -> None:
    assert [page.name for page in PAGES if len(page.read_text("utf-8")) < 100] == []
