"""Sphinx extension: parts of pages that are made from the code while the site is built.

A page asks for a part by a comment of its own line, ``<!-- generated: figures -->``. Below it
stands the part as plain Markdown, up to ``<!-- end -->`` (``docs/write_reference.py``), for whoever
reads the page in a repository. A page of ``project`` is a file of the project's root,
``<!-- file: SECURITY.md -->``, with its links turned to the pages of the site.
"""

import json
import re
from pathlib import Path
from typing import Any

import reference
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from audits.explain.schema import config_schema
from audits.report.schema import report_schema

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Files of the project's root, and the pages that show them."""

_PART = re.compile(
    r"^<!-- (generated|file): ([\w.-]+) -->$(?:\n(?:(?!<!-- ).*\n)*<!-- end -->$)?", re.MULTILINE
)
_LINK = re.compile(r"(\]\()((?:\.\./)*)((?:docs/)?)([\w./-]+\.\w+)((?:#[\w-]*)?\))")


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("source-read", _read)
    app.connect(
        "autodoc-process-docstring", _unmarked, priority=100
    )  # before its sections are read
    app.connect("build-finished", _write_schemas)
    app.connect("build-finished", _require_own_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(_app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = linked(page, _PART.sub(_part, source[0]))


_CODE = re.compile(r"(``.*?``)", re.DOTALL)
_MARKS = re.compile(r"(?<!\\)([*|]|_\b)")
_BLOCK = re.compile(r"^( *)(\S.*[^:\n]):\n\n(?=\1    +\S)", re.MULTILINE)


def _unmarked(
    _app: Sphinx, _what: str, _name: str, _of: object, _options: object, lines: list[str]
) -> None:
    """Docstrings are plain text with ``code``: what reST would take for marks is escaped.

    What stands indented behind a colon and an empty line is a block of code.
    """
    parts = _CODE.split(_BLOCK.sub(r"\1\2::\n\n", "\n".join(lines)))
    parts[::2] = [_MARKS.sub(r"\\\1", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def _part(match: re.Match[str]) -> str:
    kind, name = match.groups()
    if kind == "file":
        return (ROOT / name).read_text(encoding="utf-8")
    return reference.PARTS[name]()


def linked(page: str, text: str) -> str:
    """A page's text, with links to files of the project's root turned to the pages that show them.

    Args:
        page: name of the page, "protection/masking".
        text: its Markdown. A link is meant from where the text stands in the repository: of a file
            of the root from there, of a page from the page.
    """
    depth = page.count("/")
    of_root = page.startswith("project/") and page != "project/index"

    def turned(match: re.Match[str]) -> str:
        start, ups, docs, path, end = match.groups()
        outside = (of_root and not docs) or ups.count("../") == depth + 1
        if outside and path in ROOT_PAGES:
            return f"{start}{'../' * depth}{ROOT_PAGES[path]}{end}"
        if of_root:
            up = "../" if docs else "../../"
            return f"{start}{up}{path}{end}"
        return match[0]

    return _LINK.sub(turned, text)


def _require_own_files(app: Sphinx, failed: Exception | None) -> None:
    """Pages load nothing from elsewhere, so that reading them tells nobody.

    Raises:
        ExtensionError: one does.
    """
    if failed is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*.html")):
        foreign = _FOREIGN.search(path.read_text(encoding="utf-8"))
        if foreign:
            raise ExtensionError(f"{path.name} loads {foreign[0]}")


_FOREIGN = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//[^\"]*"
    r"|<link\b(?=[^>]*\brel=\"(?:stylesheet|preload|preconnect|icon)\")[^>]*\bhref=\"(?:https?:)?//[^\"]*"
)


def _write_schemas(app: Sphinx, failed: Exception | None) -> None:
    """The two schemas, where the reference links them."""
    if failed is None and app.builder.format == "html":
        for name, schema in (("config", config_schema()), ("report", report_schema())):
            path = Path(app.outdir) / "reference" / f"{name}.schema.json"
            path.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
