"""The audit report: ``report.json`` for machines, one self-contained ``report.html`` for people.

Both hold the same facts. ``schema.json`` in this package describes them; its version is
:data:`SCHEMA_VERSION`.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from audits.report.html import SCHEMA_VERSION, render_html

__all__ = ["HTML_NAME", "JSON_NAME", "SCHEMA_PATH", "SCHEMA_VERSION", "render_html", "write_report"]

JSON_NAME = "report.json"
HTML_NAME = "report.html"
SCHEMA_PATH = Path(__file__).with_name("schema.json")


def write_report(report: Mapping[str, object], directory: Path) -> tuple[Path, Path]:
    """Writes ``report.json`` and ``report.html`` into a directory, both or neither.

    Both files are rendered in memory and staged beside their targets before either target is
    touched: an error while rendering, or a full disk, leaves an earlier report as it was.

    Args:
        report: a report as described by ``schema.json``.
        directory: where to write; made if missing.

    Returns:
        The paths of the JSON file and of the page.

    Raises:
        DataError: the report follows another schema version.
        ValueError: the report holds a NaN or an infinity, which JSON cannot say.
    """
    encoded = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    contents = {JSON_NAME: encoded, HTML_NAME: render_html(report)}
    payloads = {
        directory / name: content.encode(errors="backslashreplace")
        for name, content in contents.items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    staged: dict[Path, Path] = {}
    try:
        for target, payload in payloads.items():
            staged[target] = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            _write_durably(staged[target], payload)
        for target, temporary in staged.items():
            os.replace(temporary, target)  # noqa: PTH105 - the atomic rename, by its own name
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    return directory / JSON_NAME, directory / HTML_NAME


def _write_durably(path: Path, payload: bytes) -> None:
    """Writes a new file and waits for the disk, so the rename never publishes an empty one."""
    with path.open("xb") as stream:
        stream.write(payload)
        stream.flush()
        os.fsync(stream.fileno())
