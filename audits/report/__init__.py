"""The audit report in several formats: data for machines, and a self-contained page for people.

``report.json`` holds all facts, the others are written from it: the page, and what pipelines read
(SARIF, JUnit, Markdown). ``report_schema`` describes them; its version is :data:`SCHEMA_VERSION`. A
format is a writer of its own module, entered in :data:`WRITERS` and imported when it is used: the
command line and the pages only need its record.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from audits.report.html import SCHEMA_VERSION, render_html
    from audits.report.schema import report_schema

__all__ = ["FORMATS", "SCHEMA_VERSION", "WRITERS", "render_html", "report_schema", "write_report"]

Render: TypeAlias = Callable[[Mapping[str, object]], str]


class Writer(NamedTuple):
    """A format of the report; called with a report, it gives the text of the file.

    Args:
        file: name of its file in a run folder.
        purpose: whom or what it is for, in Markdown.
        render: writes it.
    """

    file: str
    purpose: str
    render: Render

    def __call__(self, report: Mapping[str, object]) -> str:
        """The text of the file."""
        return self.render(report)


def _json(report: Mapping[str, object]) -> str:
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _written_by(name: str) -> Render:
    """``render_NAME`` of the module NAME, imported when it writes."""

    def write(report: Mapping[str, object]) -> str:
        render: Render = getattr(import_module(f"{__name__}.{name}"), f"render_{name}")
        return render(report)

    return write


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "json": Writer(
            "report.json",
            "programs; `secure-fedrec explain report.json` prints its schema",
            _json,
        ),
        "html": Writer("report.html", "people", _written_by("html")),
        "sarif": Writer("report.sarif", "code scanning (SARIF 2.1.0)", _written_by("sarif")),
        "junit": Writer("report.junit.xml", "lists of tests", _written_by("junit")),
        "md": Writer(
            "report.md",
            "summaries of jobs, comments on changes: verdict, gates, findings, what to change",
            _written_by("markdown"),
        ),
    }
)
"""Writers of a report, by format."""

FORMATS = ("json", "html")
"""Default formats of an audit; the others are written from the first."""


def __getattr__(name: str) -> Any:
    """Names imported on demand, from modules that take long to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from audits.report import html, schema  # noqa: PLC0415

    return getattr(schema if name == "report_schema" else html, name)


def write_report(
    report: Mapping[str, object], directory: Path, formats: Iterable[str] = FORMATS
) -> Mapping[str, Path]:
    """Writes a report into a directory, all files or none.

    All files are rendered in memory and staged beside their targets before a target is touched: an
    error while rendering, or a full disk, leaves an earlier report as it was. Formats that lie
    there already are rewritten, so that none shows an earlier verdict.

    Args:
        report: a report as described by ``report_schema``.
        directory: where to write; made if missing.
        formats: formats of ``WRITERS``.

    Returns:
        The paths of the files by format.

    Raises:
        DataError: the report follows another schema version.
        ValueError: the report holds a NaN or an infinity, which JSON cannot express.
    """
    every = {name: directory / each.file for name, each in WRITERS.items()}
    known = [name for name, file in every.items() if file.exists() and name != FORMATS[0]]
    files = {name: every[name] for name in dict.fromkeys((*formats, *known))}
    payloads = {
        file: WRITERS[name](report).encode(errors="backslashreplace")
        for name, file in files.items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    staged: dict[Path, Path] = {}
    try:
        for target, payload in payloads.items():
            staged[target] = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
            _write_durably(staged[target], payload)
        for target, temporary in staged.items():
            os.replace(temporary, target)  # noqa: PTH105 - the atomic rename, by its own name
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    return files


def _write_durably(path: Path, payload: bytes) -> None:
    """Writes a new file and waits for the disk, so the rename never publishes an empty one.

    Raises:
        OSError: it cannot be written; the error names it.
    """
    try:
        with path.open("xb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as refused:
        refused.filename = str(path)  # errors of a stream do not name its file
        raise
