"""Write the parts of the pages of the reference that are made from the code.

``python -m docs.write_reference``. A page asks for a part by ``<!-- generated: figures -->``; what
stands below it, up to ``<!-- end -->``, is that part as plain Markdown, so that a repository shows
it. The site makes it anew, with links and signatures.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PART = re.compile(
    r"^<!-- generated: ([\w-]+) -->\n(?:.*?^<!-- end -->\n)?", re.MULTILINE | re.DOTALL
)
_TARGET = re.compile(r"^\([\w.*-]+\)=\n", re.MULTILINE)
_LINK = re.compile(r"\[(`?[^\]]*`?)\]\(#[\w.-]+\)")


def pages() -> Iterator[Path]:
    """Pages that ask for a part."""
    for path in sorted(DOCS.rglob("*.md")):
        if "_build" not in path.parts and PART.search(path.read_text(encoding="utf-8")):
            yield path


def written(page: Path) -> str:
    """The text of a page with its parts as the code has them now."""
    sys.path.insert(0, str(DOCS / "_site"))
    try:
        import reference  # noqa: PLC0415
    finally:
        sys.path.remove(str(DOCS / "_site"))

    def part(match: re.Match[str]) -> str:
        name = match[1]
        made = reference.python_names() if name == "python" else reference.PARTS[name]()
        text = _LINK.sub(r"\1", _TARGET.sub("", made)).strip("\n")
        text = re.sub(r"\n{3,}", "\n\n", text)
        return f"<!-- generated: {name} -->\n\n{text}\n\n<!-- end -->\n"

    return PART.sub(part, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each in pages():
        each.write_text(written(each), encoding="utf-8")
